"""A simulated administrator of ACLs, who knows which of the changes were acknowledged."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import NAMES
from kit.simulator.model import Violation
from kit.simulator.rights import MOST_IN_DOUBT, Rights, Who
from kit.simulator.users import READER, WRITER

from ottla.broker.metadata.acls import Acl, AclFilter
from ottla.protocol.acls import CLUSTER_NAME, AclOperation, PatternType, PermissionType, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest, CreateAclsResponse
from ottla.protocol.api.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

_TOPIC, _GROUP, _ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_ALLOW, _DENY = PermissionType.ALLOW, PermissionType.DENY
_ALL = AclOperation.ALL
CREATE_VERSION = DELETE_VERSION = 3
BASE: Final = tuple(
    Acl(kind, name, _LITERAL, "User:*", "*", operation, _ALLOW)
    for kind, name, operation in (
        (_TOPIC, "*", _ALL),
        (_GROUP, "*", _ALL),
        (_ID, "*", _ALL),
        (ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE),
    )
)
"""With these everybody may do what simulated clients do."""
_PATTERNS: Final[dict[ResourceType, list[tuple[str, PatternType]]]] = {
    _TOPIC: [("*", _LITERAL), ("t", _PREFIXED), *((name, _PREFIXED) for name in ("topic-", *NAMES, "topic-10"))],
    _GROUP: [
        ("*", _LITERAL),
        ("g0", _LITERAL),
        ("g", _PREFIXED),
        ("m", _PREFIXED),
        ("c0", _LITERAL),
        ("tx", _PREFIXED),
    ],
    _ID: [("*", _LITERAL), ("tx0", _LITERAL), ("tx", _PREFIXED)],
}
_OPERATIONS: Final = {
    _TOPIC: (AclOperation.READ, AclOperation.READ, AclOperation.WRITE, AclOperation.WRITE, AclOperation.DESCRIBE, _ALL),
    _GROUP: (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE, _ALL),
    _ID: (AclOperation.WRITE, AclOperation.DESCRIBE, _ALL),
}
DENIALS: Final = 0.5
MOST_ACLS: Final = 12


class AclAdministrator:
    """Changes that are not answered yet may be several; none of them is about an ACL that another one is about."""

    def __init__(self, rights: Rights, chance: random.Random) -> None:
        self._rights = rights
        self._chance = chance
        self._in_flight: set[Acl] = set()

    def reconnect(self) -> None:
        """The broker has restarted: answers of before will never come."""
        self._in_flight.clear()

    def change(self, line: Line, topic: str | None) -> None:
        """Add or remove ACLs, one that is about `topic` more often than others."""
        rights, chance = self._rights, self._chance
        free = sorted(rights.certain - self._in_flight)
        unclear = sorted(rights.doubtful - self._in_flight)
        what = chance.random()
        if unclear and what < 0.5:
            self._settle(line, chance.choice(unclear))
        elif len(rights.doubtful) >= MOST_IN_DOUBT:
            return
        elif not free or what < 0.15:
            missing = [acl for acl in BASE if acl not in rights.certain and acl not in rights.doubtful]
            self._add(line, missing)
        elif what < 0.6 and len(free) < MOST_ACLS:
            drawn = {self._draw(topic) for _ in range(chance.choice((1, 1, 2)))}
            self._add(line, sorted(drawn - rights.doubtful))
        elif what < 0.95 or self._in_flight:
            denials = [acl for acl in free if acl.permission_type == _DENY]
            found = chance.choice(denials if denials and chance.random() < 0.6 else free)
            self._remove(line, [found], AclFilter(*found))
        else:
            self._remove_all_denials(line, free)

    def deny(self, line: Line, who: Who, topic: str) -> None:
        """Take the right to read a topic from a client."""
        acl = Acl(_TOPIC, topic, _LITERAL, who.principal, "*", AclOperation.READ, _DENY)
        if len(self._rights.doubtful) < MOST_IN_DOUBT and acl not in self._rights.certain | self._rights.doubtful:
            self._add(line, [acl])

    def _draw(self, topic: str | None) -> Acl:
        chance = self._chance
        kind = chance.choice((_TOPIC, _TOPIC, _TOPIC, _GROUP, _ID))
        name, pattern = chance.choice(_PATTERNS[kind])
        if kind is _TOPIC and chance.random() < 0.5:
            name, pattern = topic if topic is not None and chance.random() < 0.7 else chance.choice(NAMES), _LITERAL
        return Acl(
            kind,
            name,
            pattern,
            chance.choice((READER.principal, READER.principal, WRITER.principal, "User:*")),
            chance.choice(("*", "*", "*", READER.host, WRITER.host)),
            chance.choice(_OPERATIONS[kind]),
            _DENY if chance.random() < DENIALS else _ALLOW,
        )

    def _settle(self, line: Line, acl: Acl) -> None:
        """An earlier change of this one was refused: nobody knows what became of it."""
        if self._chance.random() < 0.5:
            self._add(line, [acl])
        else:
            self._remove(line, [acl], AclFilter(*acl))

    def _add(self, line: Line, acls: Sequence[Acl]) -> None:
        """Those that are there already may be among them."""
        if not acls:
            return
        new = [acl for acl in acls if acl not in self._rights.certain]
        self._begin(new)

        def answered(response: Response) -> None:
            assert isinstance(response, CreateAclsResponse)
            codes = {one.error_code for one in response.results}
            self._end(new, is_done=codes == {ErrorCode.NONE}, are_there=True)

        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in acls
        ]
        line.send(CreateAclsRequest(creations=creations), CREATE_VERSION, answered)

    def _remove_all_denials(self, line: Line, free: Sequence[Acl]) -> None:
        """Of one user, by one filter."""
        principal = self._chance.choice((READER.principal, WRITER.principal, "User:*"))
        wanted = AclFilter(1, None, 1, principal, None, 1, _DENY)
        matching = [acl for acl in free if wanted.matches(acl)]
        if len(matching) <= MOST_IN_DOUBT:
            self._remove(line, matching, wanted)

    def _remove(self, line: Line, acls: Sequence[Acl], wanted: AclFilter) -> None:
        must = self._rights.certain.intersection(acls)
        may = must | self._rights.doubtful
        self._begin(acls)

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteAclsResponse)
            result = response.filter_results[0]
            is_done = result.error_code == ErrorCode.NONE
            if is_done:
                _check_removed({_acl_of(one) for one in result.matching_acls}, must, may)
            self._end(acls, is_done=is_done, are_there=False)

        one = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        )
        line.send(DeleteAclsRequest(filters=[one]), DELETE_VERSION, answered)

    def _begin(self, acls: Collection[Acl]) -> None:
        self._in_flight.update(acls)
        self._rights.asked(acls)

    def _end(self, acls: Collection[Acl], *, is_done: bool, are_there: bool) -> None:
        self._in_flight.difference_update(acls)
        if is_done:
            self._rights.acknowledged(acls, are_there=are_there)


def _acl_of(one: DeleteAclsResponse.DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        one.resource_type,
        one.resource_name,
        one.pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


def _check_removed(found: set[Acl], must: Collection[Acl], may: Collection[Acl]) -> None:
    if not found <= set(may) or not found >= set(must):
        raise Violation(f"DeleteAcls has removed {sorted(found)}, and {sorted(must)} were to go")
