"""OffsetFetch waits until what it answers is durable, and rights may change meanwhile."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, make_topic
from kit.nodes import ask, start_node

from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode

ADMIN = Principal("User", "admin")
PARTITION = OffsetCommitRequest.OffsetCommitRequestPartition(
    partition_index=0, committed_offset=7, committed_metadata=""
)
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def entry(kind: int, name: str, operation: int) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=3, principal="User:alice",
        host="*", operation=operation, permission_type=3,
    )  # fmt: skip


@pytest.mark.parametrize("version", [7, 9])
def test_a_topic_whose_right_comes_while_the_answer_waits_is_refused_and_not_left_out(version: int) -> None:
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:admin"
    )
    make_topic(node, "orders")
    group = entry(ResourceType.GROUP, "g", AclOperation.DESCRIBE)
    ask(node, CreateAclsRequest(creations=[group]), 3, peer=Peer(principal=ADMIN))
    admin = Exchange(node)
    alice = Exchange(node, beside=admin)
    admin.connection.peer.principal, alice.connection.peer.principal = ADMIN, Principal("User", "alice")
    admin.ask(FindCoordinatorRequest(key="g", key_type=0), 1)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="orders", partitions=[PARTITION])
    admin.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    node.settle()
    admin.send(OffsetCommitRequest(group_id="g", topics=[topic]), 7)
    node.services.turn.end()
    if version < 8:
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])
        alice.send(OffsetFetchRequest(group_id="g", topics=[wanted]), version)
    else:
        of_topic = OffsetFetchRequest.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[of_topic])
        alice.send(OffsetFetchRequest(groups=[of_group]), version)
    assert alice.replies() == []
    authorizer = node.services.authorizer
    object.__setattr__(node.services, "authorizer", Everything())  # as if the right had come: frozen
    node.settle()
    object.__setattr__(node.services, "authorizer", authorizer)
    answer = alice.reply()
    assert isinstance(answer, OffsetFetchResponse)
    topics = answer.topics if version < 8 else answer.groups[0].topics
    assert [(one.name, [data.error_code for data in one.partitions]) for one in topics] == [("orders", [DENIED])]


def test_many_groups_are_divided_into_permitted_and_refused_ones_without_comparing_them_with_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A request may name very many, and each comparison is one of all topics and partitions."""
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:admin"
    )
    group = entry(ResourceType.GROUP, "g", AclOperation.DESCRIBE)
    ask(node, CreateAclsRequest(creations=[group]), 3, peer=Peer(principal=ADMIN))
    admin = Exchange(node)
    admin.connection.peer.principal = ADMIN
    admin.ask(FindCoordinatorRequest(key="g", key_type=0), 1)
    names = ["x", "g", "y", "x", "z"]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=[]) for name in names]
    )
    compared: list[object] = []

    def equals(one: object, other: object) -> bool:
        compared.append(other)
        return one is other

    monkeypatch.setattr(OffsetFetchRequest.OffsetFetchRequestGroup, "__eq__", equals)
    alice = Exchange(node, beside=admin)
    alice.connection.peer.principal = Principal("User", "alice")
    answer = alice.ask(request, 9)
    assert isinstance(answer, OffsetFetchResponse)
    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert [(one.group_id, one.error_code) for one in answer.groups] == [
        (name, ErrorCode.NONE if name == "g" else denied) for name in names
    ]
    assert not compared


class Everything:
    """An authorizer that allows everything."""

    def is_allowed(self, *_: object) -> bool:
        return True

    def is_allowed_somewhere(self, *_: object) -> bool:
        return True

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        return operations
