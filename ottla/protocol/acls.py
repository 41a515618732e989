"""Kafka's numbers for access control: operations, types of resources, patterns and permissions, and their rules.

They are used in ACLs, in filters of ACLs, and in authorized operations (KIP-430). Follows Kafka's `AclOperation`,
`ResourceType`, `PatternType`, `AclPermissionType` and `AclEntry`. The types of configuration resources are another
table (`ConfigResource.Type`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ipaddress

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER (Kafka's `Resource.CLUSTER_NAME`)."""
WILDCARD: Final = "*"
"""As the name of a literal pattern: every resource of the type. As a host: every host."""
ANYBODY: Final = "User:*"
"""As the principal of an ACL: every client."""


class AclOperation(IntEnum):
    """The operations on a resource; bit n of a bit set of authorized operations (KIP-430) represents operation n.

    ANY is for filters only. ALL is for ACLs, and means every operation.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The types of resources. CLUSTER is a single resource, named `kafka-cluster`."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in an ACL matches resources (KIP-290). ANY and MATCH are for filters only.

    MATCH finds all ACLs that apply to a resource of the name: literal, prefixed, and the literal `*`.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class PermissionType(IntEnum):
    """Whether an ACL allows or denies. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation

SUPPORTED_OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that exist for each type of resource (Kafka's `AclEntry.supportedOperations`)."""

IMPLIED_BY: Final[dict[AclOperation, frozenset[AclOperation]]] = {
    _O.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
}
"""Implied operations: a right to any of the values is also a right to the key. A denial denies nothing else."""


def operation_bits(resource_type: ResourceType) -> int:
    """The operations of a type as a bit set (KIP-430)."""
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type])


def parse_range(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """The range of addresses in the host of an ACL, `ADDRESS/LENGTH`; bits after the prefix do not count.

    Raises ValueError with the reason.
    """
    import ipaddress  # costs two milliseconds of a start, and is rarely needed

    address, _, length = text.partition("/")
    if not length.isascii() or not length.isdecimal():
        raise ValueError(f"the prefix length {length[:20]!r} is not a number")
    return ipaddress.ip_network((address, int(length)), strict=False)
