"""Who may do what by a list of ACLs, as one loop over all of them: Kafka's documentation, written down.

The judge of `StandardAuthorizer`: no index, no memory, no order.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.metadata.acls import Acl
from ottla.protocol.acls import AclOperation, PatternType, PermissionType

IMPLY = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}
ANY_NAME = "hardcode"
"""The name by which Kafka asks whether a client may do something with all resources of a type."""
NO_NAME = "\0\1"
"""A name, and the end of names, that no ACL and no resource has."""


def naively_allowed(
    acls: Collection[Acl],
    principal: str,
    host: str,
    operation: int,
    resource_type: int,
    name: str,
    *,
    open_without: bool = False,
) -> bool:
    """Whether a client that is no super user may do this; `open_without`: `allow.everyone.if.no.acl.found`."""
    about = [acl for acl in acls if acl.resource_type == resource_type and _stands_for(acl, name)]
    if not about:
        return open_without
    mine = [acl for acl in about if _is_about(acl, principal, host)]
    if any(acl.permission_type == PermissionType.DENY and _names(acl, operation) for acl in mine):
        return False
    enough = {operation, AclOperation.ALL, *IMPLY.get(AclOperation(operation), ())}
    return any(acl.permission_type == PermissionType.ALLOW and acl.operation in enough for acl in mine)


def naively_allowed_somewhere(
    acls: Collection[Acl],
    principal: str,
    host: str,
    operation: int,
    resource_type: int,
    *,
    open_without: bool = False,
) -> bool:
    """Whether there is a name with which the client may do this: tried with a name for each ACL that allows it.

    As in Kafka an operation that is implied by another does not count, but for the one name that Kafka asks for first.
    """
    if naively_allowed(acls, principal, host, operation, resource_type, ANY_NAME, open_without=open_without):
        return True
    mine = [
        acl
        for acl in acls
        if acl.resource_type == resource_type and _is_about(acl, principal, host) and _names(acl, operation)
    ]
    allowing = [acl for acl in mine if acl.permission_type == PermissionType.ALLOW]
    denying = [acl for acl in mine if acl.permission_type == PermissionType.DENY]
    return any(not any(_stands_for(acl, name) for acl in denying) for name in map(_name_of, allowing))


def _name_of(acl: Acl) -> str:
    """A name for which the ACL stands, and no other one that need not."""
    if acl.pattern_type == PatternType.PREFIXED:
        return acl.resource_name + NO_NAME
    return NO_NAME if acl.resource_name == "*" else acl.resource_name


def _stands_for(acl: Acl, name: str) -> bool:
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, "User:*") and acl.host in (host, "*")


def _names(acl: Acl, operation: int) -> bool:
    return acl.operation in (operation, AclOperation.ALL)
