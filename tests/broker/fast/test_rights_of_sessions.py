"""A session's template answers what its client may read, and nothing that came into the session without that right."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from kit.exchange import Exchange, batch, fetch_templates, make_topic, produce_request
from kit.nodes import ask, start_node
from kit.session_consumer import SessionConsumer

from ottla.broker.fast.session_template import SessionTemplate
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ADMIN, ALICE, ROOT = Principal("User", "admin"), Principal("User", "alice"), Peer(principal=Principal("User", "admin"))
MINE, SECRET = "mine", "secret"


def allow(node: Node, name: str) -> None:
    entry = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC, resource_name=name, resource_pattern_type=3, principal="User:alice", host="*",
        operation=AclOperation.READ, permission_type=3,
    )  # fmt: skip
    answer = ask(node, CreateAclsRequest(creations=[entry]), 3, peer=ROOT)
    assert isinstance(answer, CreateAclsResponse)
    assert [one.error_code for one in answer.results] == [0]


def put(node: Node, topic: str, value: bytes) -> None:
    writer = Exchange(node)
    writer.connection.peer.principal = ADMIN
    writer.ask(produce_request(topic, batch(value=value)), 9)


def consumer(node: Node, principal: Principal = ALICE) -> SessionConsumer:
    client = SessionConsumer(node, 17)
    client.exchange.connection.peer.principal = principal
    return client


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(authorizer_class_name=STANDARD, super_users="User:admin")
    for topic in (MINE, SECRET):
        make_topic(node, topic)
    allow(node, MINE)
    put(node, SECRET, b"the secret")
    return node


def learnt(node: Node, principal: Principal = ALICE) -> SessionConsumer:
    """A consumer in a session over `MINE`, whose requests are answered from a template."""
    client = consumer(node, principal)
    client.positions[MINE, 0] = 0
    for _ in range(3):
        put(node, MINE, b"mine")
        client.fetch()
    assert isinstance(fetch_templates(client.exchange), SessionTemplate)
    return client


def test_a_topic_that_the_client_adds_without_the_right_to_it_stays_refused(node: Node) -> None:
    client = learnt(node)
    client.positions[SECRET, 0] = 0
    for _ in range(5):
        put(node, MINE, b"mine")
        client.fetch()
        assert b"the secret" not in client.answers[-1]
    allow(node, SECRET)
    client.positions[SECRET, 0] = 0
    client.named.pop((SECRET, 0), None)
    client.fetch()
    assert b"the secret" in client.answers[-1]


def test_a_topic_that_another_client_adds_to_the_session_is_refused(node: Node) -> None:
    client = learnt(node)
    other = consumer(node, ADMIN)
    other.session_id, other.epoch, other.positions = client.session_id, client.epoch, {(SECRET, 0): 0}
    other.fetch()
    assert b"the secret" in other.answers[-1]
    put(node, SECRET, b"the secret")
    client.epoch = other.epoch
    client.fetch()
    assert b"the secret" not in client.answers[-1]


def test_what_one_may_read_is_answered_from_the_template_also_after_it_was_added(node: Node) -> None:
    allow(node, SECRET)
    client = learnt(node)
    client.positions[SECRET, 0] = 0
    client.fetch()
    assert b"the secret" in client.answers[-1]
    put(node, SECRET, b"another")
    put(node, SECRET, b"another")
    with patch.object(node.dispatcher, "start", side_effect=AssertionError("the slow path")):
        client.fetch()
    assert b"another" in client.answers[-1]
