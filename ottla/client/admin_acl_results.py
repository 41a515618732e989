"""The ACLs of an Admin: entries, and filters that find them."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.protocol.acls import WILDCARD, AclOperation, PatternType, PermissionType, ResourceType


@dataclass(frozen=True, slots=True)
class Acl:
    """One entry of access control: `principal`, such as "User:alice", may or may not do `operation` on resources.

    `resource_name` is a name, or with `pattern_type` PREFIXED the beginning of names; "*" is every resource of the
    type.
    """

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: PermissionType = PermissionType.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        may = "may" if self.permission == PermissionType.ALLOW else "may not"
        beginning = "..." if self.pattern_type == PatternType.PREFIXED else ""
        where = "" if self.host == WILDCARD else f" from {self.host}"
        resource = f"{self.resource_type.name} {self.resource_name}{beginning}"
        return f"{self.principal}{where} {may} {self.operation.name} {resource}"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """A filter for entries with the given values; None and ANY match everything.

    `pattern_type` MATCH finds all entries that apply to a resource with the name: literal, prefixed and "*".
    """

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: PermissionType = PermissionType.ANY
