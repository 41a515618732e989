"""An index of all ACLs of a broker, by resource and principal: a decision reads the few that concern it, not all.

Literal patterns are found by their name, prefixed ones by each length that a prefix has; the ACLs of a pattern by their
principal. Pure: no configuration, no clients. An ACL is added and removed by its id in the metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.broker.security.acls.hosts import is_of_host, plain_address
from ottla.protocol.acls import ANYBODY, WILDCARD, PatternType

if TYPE_CHECKING:
    from ottla.broker.metadata.acls import Acl

Pattern: TypeAlias = "dict[str, dict[UUID, Acl]]"
"""The ACLs of one pattern: by principal, by id."""


class _Resources:
    """The ACLs of one type of resources."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Pattern] = {}
        self.prefixed: dict[str, Pattern] = {}
        self.lengths: Counter[int] = Counter()
        """The number of prefixes of each length."""


class AclIndex:
    """See the module's text. The hosts of ACLs are in the spelling of `plain_address`."""

    __slots__ = ("_acls", "_types")

    def __init__(self) -> None:
        self._acls: dict[UUID, Acl] = {}
        self._types: dict[int, _Resources] = {}

    def __len__(self) -> int:
        return len(self._acls)

    def add(self, acl_id: UUID, acl: Acl) -> None:
        """Add an ACL; it replaces one with the same id."""
        if acl_id in self._acls:
            self.remove(acl_id)
        acl = acl._replace(host=plain_address(acl.host))
        self._acls[acl_id] = acl
        resources = self._types.get(acl.resource_type)
        if resources is None:
            resources = self._types[acl.resource_type] = _Resources()
        patterns = self._patterns(resources, acl)
        if patterns is None:
            return
        pattern = patterns.get(acl.resource_name)
        if pattern is None:
            pattern = patterns[acl.resource_name] = {}
            if patterns is resources.prefixed:
                resources.lengths[len(acl.resource_name)] += 1
        pattern.setdefault(acl.principal, {})[acl_id] = acl

    def remove(self, acl_id: UUID) -> None:
        """Remove the ACL of that id, which must exist."""
        acl = self._acls.pop(acl_id)
        resources = self._types[acl.resource_type]
        patterns = self._patterns(resources, acl)
        if patterns is None:
            return
        pattern = patterns[acl.resource_name]
        of_principal = pattern[acl.principal]
        del of_principal[acl_id]
        if of_principal:
            return
        del pattern[acl.principal]
        if pattern:
            return
        del patterns[acl.resource_name]
        if patterns is resources.prefixed:
            resources.lengths[len(acl.resource_name)] -= 1
            if not resources.lengths[len(acl.resource_name)]:
                del resources.lengths[len(acl.resource_name)]

    def patterns_for(self, resource_type: int, name: str) -> Iterator[Pattern]:
        """The patterns that match the resource of this name."""
        resources = self._types.get(resource_type)
        if resources is None:
            return
        literal = resources.literal
        if name in literal:
            yield literal[name]
        if name != WILDCARD and WILDCARD in literal:
            yield literal[WILDCARD]
        prefixed = resources.prefixed
        for length in resources.lengths:
            if length <= len(name):
                pattern = prefixed.get(name[:length])
                if pattern is not None:
                    yield pattern

    def of_client(self, resource_type: int, principal: str, host: str) -> Iterator[Acl]:
        """All ACLs for resources of a type that are about this client."""
        resources = self._types.get(resource_type)
        if resources is None:
            return
        for patterns in (resources.literal, resources.prefixed):
            for pattern in patterns.values():
                yield from acls_of_client(pattern, principal, host)

    @staticmethod
    def _patterns(resources: _Resources, acl: Acl) -> dict[str, Pattern] | None:
        """The patterns of the ACL's type; None for an unknown type, which matches nothing."""
        if acl.pattern_type == PatternType.LITERAL:
            return resources.literal
        return resources.prefixed if acl.pattern_type == PatternType.PREFIXED else None


def acls_of_client(pattern: Pattern, principal: str, host: str) -> Iterator[Acl]:
    """The ACLs of a pattern that are about this client: for its principal or `User:*`, from its host or any."""
    for who in (principal, ANYBODY) if principal != ANYBODY else (ANYBODY,):
        of_principal = pattern.get(who)
        if of_principal is not None:
            for acl in of_principal.values():
                if is_of_host(acl.host, host):
                    yield acl
