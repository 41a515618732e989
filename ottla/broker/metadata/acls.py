"""An ACL as the metadata have it, its record, and filters of ACLs.

Pure. Follows Kafka's `StandardAcl`, `ResourcePatternFilter` and `AccessControlEntryFilter`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.acls import WILDCARD, PatternType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.metadata import AccessControlEntryRecord

_ANY: Final = 1
"""In filters, of all numbers. Looking into an enum costs more than all else that a comparison does."""
_MATCH, _PREFIXED = int(PatternType.MATCH), int(PatternType.PREFIXED)


class Acl(NamedTuple):
    """Who (`principal`, from `host`) may or may not do `operation` with which resources. Kafka's `StandardAcl`.

    The numbers are those of `ottla.protocol.acls`; a directory of a later Kafka may hold others, which match nothing.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """What a filter asks for; None, and ANY for numbers, match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Whether this ACL is one of those that are asked for."""
        return (
            self.principal in (None, acl.principal)
            and self.resource_type in (_ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission_type in (_ANY, acl.permission_type)
        )

    @property
    def names_one_pattern(self) -> bool:
        """Whether the ACLs that it may find all have the name that it gives."""
        return self.resource_name is not None and self.pattern_type != _MATCH

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type != _MATCH:
            return self.pattern_type in (_ANY, acl.pattern_type) and self.resource_name in (None, acl.resource_name)
        if self.resource_name is None:
            return True
        if acl.pattern_type == _PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, WILDCARD)


def acl_of(record: AccessControlEntryRecord) -> Acl:
    """The ACL that a record has brought."""
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


def acl_record(acl_id: UUID, acl: Acl) -> AccessControlEntryRecord:
    """The record that brings an ACL."""
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())


def find_acls(acls: Iterable[Acl], wanted: AclFilter) -> list[Acl]:
    """The ACLs that a filter matches. Raises as `check_filter`."""
    check_filter(wanted)
    return list(dict.fromkeys(filter(wanted.matches, acls)))


def check_filter(wanted: AclFilter) -> None:
    """Raises KafkaError for a filter with the number of Kafka's UNKNOWN in it."""
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter contains UNKNOWN elements")
