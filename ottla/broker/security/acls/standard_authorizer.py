"""The rights of clients by the ACLs in the metadata: Kafka's `StandardAuthorizer`.

A super user may do everything. For all other clients those ACLs count whose pattern matches the resource and that are
about the client: an ACL that denies the operation (or ALL) wins over all that allow it. A right to READ, WRITE, DELETE
or ALTER implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS; a denial implies no other denial. If no ACL, of
any client, matches the resource, `allow.everyone.if.no.acl.found` decides.

Decisions are remembered until the next change; the memory is bounded. `add_records` changes the validity stamp: no
request template may continue to use the old rights (`runtime/validity.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata.acls import acl_of
from ottla.broker.security.acls.hosts import plain_address
from ottla.broker.security.acls.index import AclIndex, acls_of_client
from ottla.config.access import split_principals
from ottla.protocol.acls import IMPLIED_BY, WILDCARD, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.stored.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.metadata.acls import Acl
    from ottla.broker.peer import Peer
    from ottla.protocol.stored.metadata import MetadataRecord

MAX_DECISIONS: Final = 20_000
"""The most remembered decisions; one more clears them all."""
LONGEST_REMEMBERED_NAME: Final = 256
"""Clients choose the names of resources; decisions about longer names are not remembered."""
_HARDCODED: Final = "hardcode"
"""The name by which Kafka asks for the rights of a super user (`Authorizer.authorizeByResourceType`)."""


class StandardAuthorizer:
    """See the module's text. `on_change` is called at each change of rights."""

    def __init__(
        self, *, super_users: Iterable[str], allow_without_acls: bool, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_without_acls = allow_without_acls
        self._on_change = on_change
        self._index = AclIndex()
        self._decisions: dict[tuple[object, ...], bool] = {}

    @property
    def remembered_count(self) -> int:
        """How many decisions are remembered."""
        return len(self._decisions)

    @classmethod
    def of_config(
        cls, *, super_users: str, allow_without_acls: bool, on_change: Callable[[], None]
    ) -> StandardAuthorizer:
        """Create one from the text of `super.users`, which was checked before."""
        return cls(
            super_users=split_principals(super_users), allow_without_acls=allow_without_acls, on_change=on_change
        )

    def load(self, acls: Mapping[UUID, Acl]) -> None:
        """Load the ACLs of the metadata at a start."""
        for acl_id, acl in acls.items():
            self._index.add(acl_id, acl)

    def add_records(self, records: Sequence[MetadataRecord]) -> None:
        """Apply a change of the metadata: added and removed ACLs."""
        for record in records:
            if isinstance(record, AccessControlEntryRecord):
                self._index.add(record.id, acl_of(record))
            elif isinstance(record, RemoveAccessControlEntryRecord):
                self._index.remove(record.id)
        self._decisions.clear()
        self._on_change()

    def is_allowed(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        """Whether the client may do this with the resource of that name."""
        key = (peer.principal, peer.host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(peer, operation, resource_type, name)
            if len(name) <= LONGEST_REMEMBERED_NAME:
                self._remember(key, decision)
        return decision

    def is_allowed_somewhere(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether the client may do this with at least one resource of the type: an ACL allows it and no other ACL
        denies it. An operation that is implied by another does not count, as in Kafka.
        """
        key = (peer.principal, peer.host, operation, resource_type)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self.is_allowed(peer, operation, resource_type, _HARDCODED) or self._is_allowed_by_one(
                peer, operation, resource_type
            )
            self._remember(key, decision)
        return decision

    def allowed_operations(self, peer: Peer, operations: int, resource_type: ResourceType, name: str) -> int:
        """The operations among these that the client may do: bit sets of AclOperation (KIP-430)."""
        return sum(
            1 << operation
            for operation in AclOperation
            if operations & 1 << operation and self.is_allowed(peer, operation, resource_type, name)
        )

    def _remember(self, key: tuple[object, ...], decision: bool) -> None:
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions.clear()
        self._decisions[key] = decision

    def _decide(self, peer: Peer, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        principal = str(peer.principal)
        if principal in self._super_users:
            return True
        host = plain_address(peer.host)
        allowing = IMPLIED_BY.get(operation, (operation,))
        has_acls = is_allowed = False
        for pattern in self._index.patterns_for(resource_type, name):
            has_acls = True
            for acl in acls_of_client(pattern, principal, host):
                if acl.permission_type != PermissionType.ALLOW:
                    if acl.operation in (operation, AclOperation.ALL):
                        return False
                elif acl.operation == AclOperation.ALL or acl.operation in allowing:
                    is_allowed = True
        return is_allowed or (self._allow_without_acls and not has_acls)

    def _is_allowed_by_one(self, peer: Peer, operation: AclOperation, resource_type: ResourceType) -> bool:
        """The rule of Kafka's `Authorizer.authorizeByResourceType`, for clients that are no super users."""
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for acl in self._index.of_client(resource_type, str(peer.principal), plain_address(peer.host)):
            if acl.operation in (operation, AclOperation.ALL):
                names = allowed if acl.permission_type == PermissionType.ALLOW else denied
                names[acl.pattern_type].add(acl.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        denied_prefixes = denied[PatternType.PREFIXED]
        return any(
            not any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))
            for pattern_type, names in allowed.items()
            for name in names - (denied[PatternType.LITERAL] if pattern_type == PatternType.LITERAL else set())
        )
