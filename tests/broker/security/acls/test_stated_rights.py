"""NEEDS of each API is what its handler and the gate ask for: one test for each right that is stated.

The requests of the matrix of rights are sent by clients with all rights, with exactly those that the API states, and
with all but one of them. So a right that is stated and not asked for is found, and one that is asked for and not
stated.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from kit.exchange import Exchange
from kit.nodes import start_node
from kit.rights import cluster, shares, streams
from kit.rights.matrix import ADMIN, PREPARED, SCENES, Answers, play, user_name
from kit.rights.scene import Ask, Scene, scene

from ottla.broker.api import HANDLERS
from ottla.broker.declarations import Need
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.security.authorizer import AUTHORIZATION_CODES
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import ApiKey
from ottla.protocol.message import Request, Response

Right = tuple[AclOperation, ResourceType]

ADDED = Ask(
    "ADD_PARTITIONS_TO_TXN",
    3,
    {
        "v3AndBelowTransactionalId": "open",
        "v3AndBelowProducerId": 0,
        "v3AndBelowProducerEpoch": 0,
        "v3AndBelowTopics": [{"name": "mine", "partitions": [0]}],
    },
)
"""The transactional id that is there from the beginning writes to a topic."""
MORE = [
    scene(
        "ALTER_CONFIGS",
        1,
        {
            "resources": [
                {"resourceType": kind, "resourceName": name} for kind, name in [(4, "1"), (16, "m"), (32, "g")]
            ]
        },
        what="a broker, a group",
    ),
    scene("DESCRIBE_TRANSACTIONS", 0, {"transactionalIds": ["open"]}, what="open", before=(ADDED,)),
    cluster.UNREGISTERING,
    *shares.SCENES,
    *streams.SCENES,
]
"""What Apache Kafka was not asked."""
ASKED = [*SCENES, *MORE]
ALL, STATED = "s-all", "s-stated"


def needs_of(asked: Scene) -> tuple[Need, ...]:
    return HANDLERS[ApiKey[asked.ask.api]]().needs


def right_of(need: Need) -> Right:
    return need.operation, need.resource_type


def without(need: Need) -> str:
    return f"s-no-{need.operation.name}-{need.resource_type.name}".lower()


def in_place_of(need: Need) -> str:
    return f"s-for-{need.operation.name}-{need.resource_type.name}".lower()


class Client(NamedTuple):
    """What a client may: `only` these rights, or all without those of `lacks`."""

    only: frozenset[Right] | None
    lacks: frozenset[Right]

    def may(self, right: Right) -> bool:
        return (self.only is None or right in self.only) and right not in self.lacks


def clients_of(needs: tuple[Need, ...]) -> dict[str, Client]:
    """The situations in which each request of an API is sent."""
    nothing: frozenset[Right] = frozenset()
    stated = {right_of(need) for need in needs}
    clients = {ALL: Client(None, nothing), STATED: Client(frozenset(stated), nothing)}
    for need in needs:
        right = right_of(need)
        lacks = {right} if need.unless is None else {right, need.unless}
        clients[without(need)] = Client(None, frozenset(lacks))
        if need.unless is not None:
            clients[in_place_of(need)] = Client(frozenset(stated - {right} | {need.unless}), nothing)
    return clients


class Stage:
    """A node whose clients have the rights of their situation."""

    def __init__(self, scenes: list[Scene]) -> None:
        self.node, _, _ = start_node(group_initial_rebalance_delay_ms=0, delegation_token_secret_key="a key")
        object.__setattr__(self.node.services, "authorizer", self)  # frozen
        self._admin = Exchange(self.node)
        self._clients = {ADMIN: Client(None, frozenset())}
        for place, asked in enumerate(scenes):
            clients = clients_of(needs_of(asked))
            for position, situation in enumerate(asked.situations):
                self._clients[user_name(place, position)] = clients[situation]

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return self._clients[peer.principal.name].may((operation, resource_type))

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        return self._clients[peer.principal.name].may((operation, resource_type))

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        return operations

    def ask(self, user: str, request: Request, version: int) -> Response:
        client = self._admin if user == ADMIN else Exchange(self.node, beside=self._admin)
        client.connection.peer.principal = Principal("User", user)
        return client.ask(request, version)

    def settle(self) -> None:
        """Nothing to do: what was answered is in force."""


@pytest.fixture(scope="module")
def answers() -> Answers:
    return {
        scene.name: {situation: alone(scene, situation) for situation in clients_of(needs_of(scene))} for scene in ASKED
    }


def alone(scene: Scene, situation: str) -> Any:
    """The answer of a node to which nothing else has happened."""
    only = scene._replace(situations={situation: []})
    return play(Stage([only]), PREPARED, [only])[scene.name][situation]


ROWS = [
    pytest.param(key, need, id=f"{key.name}-{need.operation.name}-{need.resource_type.name}")
    for key, load in HANDLERS.items()
    for need in load().needs
    if any(scene.ask.api == key.name for scene in ASKED)
]


def scenes_of(key: ApiKey) -> list[str]:
    return [scene.name for scene in ASKED if scene.ask.api == key.name]


def text(answer: Any, situation: str) -> str:
    """An answer as text, without the names that differ because the situation's name is in them."""
    return json.dumps(answer, sort_keys=True).replace(situation, "{s}")


@pytest.mark.parametrize(("key", "need"), ROWS)
def test_without_the_right_an_answer_is_another_and_with_it_the_same(answers: Answers, key: ApiKey, need: Need) -> None:
    situation = without(need)
    differing = [
        name for name in scenes_of(key) if text(answers[name][situation], situation) != text(answers[name][ALL], ALL)
    ]
    assert differing, "the right is stated, and nobody asks for it"
    code = AUTHORIZATION_CODES[need.resource_type].name
    is_refused = any(code in text(answers[name][situation], situation) for name in differing)
    is_left_out = "left out" in need.lacking or "there are none" in need.lacking
    if "TOPIC_AUTHORIZATION_FAILED" in need.lacking:
        assert "TOPIC_AUTHORIZATION_FAILED" in text([answers[name][situation] for name in differing], situation)
    elif "none is created" in need.lacking:
        assert "Unauthorized to CREATE" in text([answers[name][situation] for name in differing], situation)
    else:
        assert is_refused or is_left_out, f"{code} is nowhere in the answers"
    if need.unless is not None:
        situation = in_place_of(need)
        for name in scenes_of(key):
            assert text(answers[name][situation], situation) == text(answers[name][ALL], ALL)


@pytest.mark.parametrize("scene", ASKED, ids=lambda scene: scene.name)
def test_the_rights_that_are_stated_are_all_that_a_request_needs(answers: Answers, scene: Scene) -> None:
    given = answers[scene.name]
    assert text(given[STATED], STATED) == text(given[ALL], ALL), "a right is asked for that is not stated"


def test_every_api_with_rights_has_a_request() -> None:
    asked = {ApiKey[scene.ask.api] for scene in ASKED}
    assert {key for key in HANDLERS if key not in asked and HANDLERS[key]().needs} == set()
