"""Every API, asked by users of no right, of the right to describe, of all rights, and of one that is denied.

What Apache Kafka answers is in kafka-4.1.0.json, written by scripts/interop/security-golden; here Ottla is asked the
same (tests/kit/rights). What is compared is in a normal form (`kit/rights/matrix.py`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.exchange import Exchange
from kit.nodes import start_node
from kit.rights import cluster, shares, streams
from kit.rights.matrix import ADMIN, PREPARED, SCENES, Answers, load, play

from ottla.broker.api import HANDLERS
from ottla.broker.principal import Principal
from ottla.protocol.api import ApiKey
from ottla.protocol.message import Request, Response

DIFFERENT = {
    "ConsumerGroupHeartbeat v1, a regex: right": "Ottla matches expressions in the step that brings them",
    "Metadata v12, created by being asked for: create": "Ottla has created the topic when it answers",
    "Metadata v12, created by being asked for: create-in-cluster": "Ottla has created the topic when it answers",
    "AlterConfigs v2, others: right": "Kafka lets nobody take back min.insync.replicas of all brokers, which it sets",
    "CreateDelegationToken v3, for a group: of-the-group": "the token would log in as the user of this name",
    "CreateDelegationToken v3, for a group: of-all": "the token would log in as the user of this name",
}
"""Answers that differ, for reasons that have nothing to do with rights."""

HOST = "127.0.0.1"
"""The scenes' users came from here when Kafka was asked."""
PREPARED_THERE, SCENES_THERE, ANSWERS_THERE = load()


class NodeStage:
    """A node without sockets; each user has a connection of its own."""

    def __init__(self) -> None:
        self.node, _, _ = start_node(
            authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            super_users=f"User:{ADMIN}",
            group_initial_rebalance_delay_ms=0,
            delegation_token_secret_key="a key",
        )
        self._admin = Exchange(self.node)

    def ask(self, user: str, request: Request, version: int) -> Response:
        """As over a connection that has authenticated."""
        client = self._admin if user == ADMIN else Exchange(self.node, beside=self._admin)
        client.connection.peer.principal = Principal("User", user)
        client.connection.peer.host = HOST
        return client.ask(request, version)

    def settle(self) -> None:
        """Nothing to do: what was answered is in force."""


@pytest.fixture(scope="module")
def answers() -> Answers:
    """What a node answers to all scenes."""
    return play(NodeStage(), PREPARED_THERE, SCENES_THERE)


def differences(answers: Answers) -> dict[str, tuple[Any, Any]]:
    """(ours, theirs) of each situation in which they differ."""
    return {
        f"{scene.name}: {situation}": (ours, theirs)
        for scene in SCENES_THERE
        for situation, theirs in ANSWERS_THERE[scene.name].items()
        if (ours := answers[scene.name][situation]) != theirs
    }


def test_answers_are_those_of_kafka(answers: Answers) -> None:
    found = differences(answers)
    unknown = [
        f"{name}\n  Ottla: {json.dumps(ours)}\n  Kafka: {json.dumps(theirs)}"
        for name, (ours, theirs) in found.items()
        if name not in DIFFERENT
    ]
    assert not unknown, "\n".join([f"{len(unknown)} answers differ", *unknown])
    assert found.keys() >= DIFFERENT.keys(), f"no longer different: {sorted(DIFFERENT.keys() - found.keys())}"


def test_every_api_that_is_served_has_a_scene() -> None:
    """But for share and streams groups, which the recorded Kafka 4.1.0 does not serve, and a later API: see
    `test_stated_rights.py`.
    """
    before_rights = {ApiKey.SASL_HANDSHAKE.name, ApiKey.SASL_AUTHENTICATE.name}
    elsewhere = {scene.ask.api for scene in (*shares.SCENES, *streams.SCENES, cluster.UNREGISTERING)}
    assert {scene.ask.api for scene in SCENES} | before_rights | elsewhere == {key.name for key in HANDLERS}


def test_the_recorded_scenes_are_those_that_are_written_down() -> None:
    assert PREPARED_THERE == PREPARED, "run scripts/interop/security-golden"
    assert SCENES_THERE == SCENES, "run scripts/interop/security-golden"
