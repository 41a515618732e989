"""DeleteTopics asks for the right to what there is when the topics are deleted, not only when it is asked."""

from __future__ import annotations

from uuid import UUID

import pytest
from kit.exchange import Exchange
from kit.nodes import ask, start_node

from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.create_topics import CreateTopicsRequest
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.errors import ErrorCode

ADMIN = Principal("User", "admin")


@pytest.mark.parametrize("version", [1, 5, 6])
def test_a_topic_that_is_being_created_is_not_deleted_by_who_may_only_describe_it(version: int) -> None:
    node, _, _ = start_node(
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer", super_users="User:admin"
    )
    entry = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC, resource_name="orders", resource_pattern_type=3, principal="User:alice",
        host="*", operation=AclOperation.DESCRIBE, permission_type=3,
    )  # fmt: skip
    ask(node, CreateAclsRequest(creations=[entry]), 3, peer=Peer(principal=ADMIN))
    admin = Exchange(node)
    alice = Exchange(node, beside=admin)
    admin.connection.peer.principal, alice.connection.peer.principal = ADMIN, Principal("User", "alice")
    topic = CreateTopicsRequest.CreatableTopic(
        name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    named = [DeleteTopicsRequest.DeleteTopicState(name="orders", topic_id=UUID(int=0))] if version >= 6 else []
    admin.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    answer = alice.ask(DeleteTopicsRequest(topics=named, topic_names=["orders"], timeout_ms=1000), version)
    assert isinstance(answer, DeleteTopicsResponse)
    assert [one.error_code for one in answer.responses] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert "orders" in node.services.catalog.topics
