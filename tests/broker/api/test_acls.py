"""DescribeAcls, CreateAcls, DeleteAcls: at a whole node, with an authorizer and without."""

from __future__ import annotations

import errno

import pytest
from kit.nodes import ask, ask_for, start_node

from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ANYTHING = DescribeAclsRequest(
    resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
    operation=1, permission_type=1,
)  # fmt: skip
LITERALS = DescribeAclsRequest(
    resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None, operation=1,
    permission_type=1,
)  # fmt: skip
EVERY_ENTRY = DeleteAclsRequest.DeleteAclsFilter(
    resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
    operation=1, permission_type=1,
)  # fmt: skip
ALICE = Peer(principal=Principal("User", "alice"))


def entry(name: str, pattern: int = 3, operation: int = AclOperation.READ) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=ResourceType.TOPIC, resource_name=name, resource_pattern_type=pattern, principal="User:alice",
        host="*", operation=operation, permission_type=3,
    )  # fmt: skip


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("request_", [LITERALS, CreateAclsRequest(creations=[]), DeleteAclsRequest(filters=[])])
def test_a_broker_without_an_authorizer_says_that_security_is_disabled(request_: Request, version: int) -> None:
    node, _, _ = start_node()
    with pytest.raises(KafkaError) as refused:
        ask(node, request_, version)
    assert refused.value.code == ErrorCode.SECURITY_DISABLED


def test_acls_count_when_they_are_acknowledged_survive_a_restart_and_go_when_they_are_deleted() -> None:
    node, files, clock = start_node(authorizer_class_name=STANDARD)
    stamp = node.services.validity.stamp
    asked = CreateAclsRequest(creations=[entry("orders"), entry("", 3), entry("pay", 4, AclOperation.WRITE)])
    created = ask_for(CreateAclsResponse, node, asked, 3)
    assert [one.error_code for one in created.results] == [0, ErrorCode.INVALID_REQUEST, 0]
    assert node.services.validity.stamp > stamp
    node.stop()
    node, files, clock = start_node(files, clock, authorizer_class_name=STANDARD)
    authorizer = node.services.authorizer
    assert authorizer is not None
    assert authorizer.is_allowed(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")
    assert authorizer.is_allowed(ALICE, AclOperation.WRITE, ResourceType.TOPIC, "payments")
    found = ask_for(DescribeAclsResponse, node, ANYTHING, 3)
    shown = [(one.resource_name, one.pattern_type, one.acls[0].principal) for one in found.resources]
    assert shown == [("orders", 3, "User:alice"), ("pay", 4, "User:alice")]
    stamp = node.services.validity.stamp
    deleted = ask_for(DeleteAclsResponse, node, DeleteAclsRequest(filters=[EVERY_ENTRY]), 3)
    assert [one.resource_name for one in deleted.filter_results[0].matching_acls] == ["orders", "pay"]
    assert node.services.validity.stamp > stamp
    assert not authorizer.is_allowed(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")
    node.stop()
    node, _, _ = start_node(files, clock, authorizer_class_name=STANDARD)
    assert ask_for(DescribeAclsResponse, node, ANYTHING, 3).resources == []


def test_a_change_that_cannot_be_synced_gives_no_right() -> None:
    node, files, _ = start_node(authorizer_class_name=STANDARD)
    files.fail("fdatasync", "*/__cluster_metadata-0/*.log", errno.EIO)
    created = ask_for(CreateAclsResponse, node, CreateAclsRequest(creations=[entry("orders"), entry("b")]), 3)
    assert [one.error_code for one in created.results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert node.services.authorizer is not None
    assert not node.services.authorizer.is_allowed(ALICE, AclOperation.READ, ResourceType.TOPIC, "orders")


def test_after_a_change_that_could_not_be_synced_what_needs_no_change_is_not_acknowledged() -> None:
    """The removal may be on the disk, and the next start would find the entry gone that "is there already"."""
    node, files, _ = start_node(authorizer_class_name=STANDARD)
    created = CreateAclsRequest(creations=[entry("orders")])
    ask(node, created, 3)
    files.fail("fdatasync", "*/__cluster_metadata-0/*.log", errno.EIO)
    deleted = ask_for(DeleteAclsResponse, node, DeleteAclsRequest(filters=[EVERY_ENTRY]), 3)
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.KAFKA_STORAGE_ERROR]
    again = ask_for(CreateAclsResponse, node, created, 3)
    assert [one.error_code for one in again.results] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_version_0_knows_literal_patterns_only() -> None:
    node, _, _ = start_node(authorizer_class_name=STANDARD)
    ask(node, CreateAclsRequest(creations=[entry("orders"), entry("pay", 4)]), 1)
    ask(node, CreateAclsRequest(creations=[entry("old")]), 0)
    found = ask_for(DescribeAclsResponse, node, LITERALS, 0)
    assert [(one.resource_name, one.pattern_type) for one in found.resources] == [("orders", 3), ("old", 3)]


def test_the_acls_are_kept_where_the_authorizer_is_switched_off_and_on_again() -> None:
    node, files, clock = start_node(authorizer_class_name=STANDARD)
    ask(node, CreateAclsRequest(creations=[entry("orders")]), 3)
    node.stop()
    node, files, clock = start_node(files, clock)
    node.stop()
    node, _, _ = start_node(files, clock, authorizer_class_name=STANDARD)
    assert len(ask_for(DescribeAclsResponse, node, ANYTHING, 3).resources) == 1
