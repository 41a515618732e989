"""An ACL of the metadata, its record, and filters of ACLs.

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
"""ANY in filters, the same number in all enums. An access to an enum costs more than the rest of a comparison."""
_MATCH, _PREFIXED = int(PatternType.MATCH), int(PatternType.PREFIXED)


class Acl(NamedTuple):
    """Whether `principal`, from `host`, may do `operation` with which resources. Kafka's `StandardAcl`.

    The numbers are those of `ottla.protocol.acls`; a directory of a later Kafka may have others, which match nothing.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class AclFilter(NamedTuple):
    """A filter of ACLs; None, and ANY for numbers, match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, acl: Acl) -> bool:
        """Whether the filter matches this ACL."""
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
        """Whether all ACLs that it can find have its resource name."""
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
    """The ACL in a record."""
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
    """The record of an ACL."""
    return AccessControlEntryRecord(id=acl_id, **acl._asdict())


def find_acls(acls: Iterable[Acl], wanted: AclFilter) -> list[Acl]:
    """The ACLs that a filter matches. Raises what `check_filter` raises."""
    check_filter(wanted)
    return list(dict.fromkeys(filter(wanted.matches, acls)))


def check_filter(wanted: AclFilter) -> None:
    """Raise KafkaError for a filter that contains the number of Kafka's UNKNOWN."""
    if 0 in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission_type):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter contains UNKNOWN elements")
