"""Rights that nobody has any more: no super user is configured, and the last user who may change ACLs has lost it."""

from __future__ import annotations

from typing import Any

from kit.clock import ManualClock
from kit.exchange import Exchange
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.broker.principal import Principal
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.errors import ErrorCode

AUTHORIZER = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SUPER_USERS = {"super_users": "User:admin"}


def client_of(node: Node, name: str) -> Exchange:
    client = Exchange(node)
    client.connection.peer.principal = Principal("User", name)
    return client


def give(client: Exchange, name: str) -> int:
    """Let a user change ACLs; the error code."""
    creation = CreateAclsRequest.AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{name}",
        host="*",
        operation=AclOperation.ALTER,
        permission_type=PermissionType.ALLOW,
    )
    answer: Any = client.ask(CreateAclsRequest(creations=[creation]), 3)
    (result,) = answer.results
    return int(result.error_code)


def take_all(client: Exchange) -> None:
    everything = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=PermissionType.ANY,
    )
    answer: Any = client.ask(DeleteAclsRequest(filters=[everything]), 3)
    assert [result.error_code for result in answer.filter_results] == [0]


def test_without_super_users_the_last_right_that_is_taken_away_is_gone_for_all_until_a_start_names_one() -> None:
    files, clock = SimulatedFiles(), ManualClock()
    node, _, _ = start_node(files, clock, **AUTHORIZER, **SUPER_USERS)
    assert give(client_of(node, "admin"), "alice") == ErrorCode.NONE
    node.stop()

    node, _, _ = start_node(files, clock, **AUTHORIZER)
    assert give(client_of(node, "admin"), "admin") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    alice = client_of(node, "alice")
    take_all(alice)
    assert give(alice, "alice") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    node.stop()

    node, _, _ = start_node(files, clock, **AUTHORIZER, **SUPER_USERS)
    assert give(client_of(node, "alice"), "alice") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert give(client_of(node, "admin"), "alice") == ErrorCode.NONE
