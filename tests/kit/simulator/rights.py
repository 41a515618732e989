"""What simulated clients know of the ACLs, and what may therefore be answered.

The ACLs that are there have a history: each step of it is what was known after a change was asked for, acknowledged, or
found by a restart. A request is answered as one of the steps between its sending and its answer would have it, and no
other. A record is shown only by a step since it was written: who waits for it, and has lost the right by then, does not
get it. In a step some ACLs are in doubt (a change that is not answered, or was refused by the disk): with each of them
and without are both possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from kit.naive_rights import naively_allowed, naively_allowed_somewhere
from kit.simulator.model import Violation

from ottla.broker.metadata.acls import Acl
from ottla.protocol.acls import AclOperation, ResourceType

MOST_IN_DOUBT = 3


class Who(NamedTuple):
    """A client, as ACLs name it."""

    principal: str
    host: str


class Question(NamedTuple):
    """May a client do this with a resource; with any of the type, if there is no name?"""

    operation: AclOperation
    resource_type: ResourceType
    name: str | None


class Need(NamedTuple):
    """One of these rights is needed, or the answer has the code."""

    code: int
    any_of: tuple[Question, ...]


class Answered(NamedTuple):
    """The code of one element of an answer, and what it needs, in the order in which it is asked."""

    element: str
    needs: Sequence[Need]
    code: int


class _Step(NamedTuple):
    certain: frozenset[Acl]
    doubtful: frozenset[Acl]


class Rights:
    """See the module. `open_without`: `allow.everyone.if.no.acl.found`."""

    def __init__(self, *, open_without: bool) -> None:
        self.open_without = open_without
        self.certain: set[Acl] = set()
        self.doubtful: set[Acl] = set()
        self._steps = [_Step(frozenset(), frozenset())]
        self._written: dict[bytes, int] = {}
        """By value of a record, the step in which it was sent first."""
        self._known: dict[tuple[int, Who, Need], frozenset[bool]] = {}

    @property
    def now(self) -> int:
        """The number of the newest step."""
        return len(self._steps) - 1

    # -- changes ------------------------------------------------------------------------------------------------------

    def asked(self, acls: Iterable[Acl]) -> None:
        """Whether these are there is in doubt: a change was sent that adds or removes them."""
        for acl in acls:
            self.certain.discard(acl)
            self.doubtful.add(acl)
        self._note()

    def acknowledged(self, acls: Iterable[Acl], *, are_there: bool) -> None:
        """They were added, or removed."""
        for acl in acls:
            self.doubtful.discard(acl)
            if are_there:
                self.certain.add(acl)
        self._note()

    def audit(self, found: set[Acl]) -> None:
        """What a restart has found. Raises Violation for what it has lost, or brought back."""
        if lost := self.certain - found:
            raise Violation(f"acknowledged ACLs are gone: {_shown(lost)}")
        if back := found - self.certain - self.doubtful:
            raise Violation(f"ACLs are there that nobody has, or that were deleted: {_shown(back)}")
        self.certain, self.doubtful = found, set()
        self._note()

    def _note(self) -> None:
        self._steps.append(_Step(frozenset(self.certain), frozenset(self.doubtful)))

    # -- records ------------------------------------------------------------------------------------------------------

    def note_written(self, value: bytes) -> None:
        """A record of this value is sent now."""
        self._written[value] = self.now

    def require_shown(self, who: Who, need: Need, values: Iterable[bytes | None], since: int, place: str) -> None:
        """A request that was sent in the step `since` has shown these records. Raises Violation."""
        first = max((self._written.get(value, 0) for value in values if value is not None), default=0)
        if True not in self._possible(who, need, max(since, first)):
            raise Violation(f"{place}: {who.principal} is shown records that were written after its right had ended")

    # -- answers ------------------------------------------------------------------------------------------------------

    def require(self, who: Who, answers: Iterable[Answered], since: int, what: str) -> None:
        """A request that was sent in the step `since` was answered so. Raises Violation."""
        for element, needs, code in answers:
            refusals = [need for need in needs if need.code == code]
            passed = [need for need in needs if need.code != code]
            if refusals:
                passed = passed[: needs.index(refusals[0])] if passed else passed
                if not any(False in self._possible(who, need, since) for need in refusals):
                    raise Violation(f"{what} of {who.principal}: {element} is refused ({code}), and it has the right")
            for need in passed:
                if True not in self._possible(who, need, since):
                    raise Violation(f"{what} of {who.principal}: {element} is answered ({code}), and it lacks {need}")

    def possible(self, who: Who, need: Need, since: int) -> frozenset[bool]:
        """The answers that were right in a step from `since` on."""
        return self._possible(who, need, since)

    def _possible(self, who: Who, need: Need, since: int) -> frozenset[bool]:
        found: frozenset[bool] = frozenset()
        for number in range(self.now, since - 1, -1):
            found |= self._in_step(number, who, need)
            if len(found) == 2:
                break
        return found

    def _in_step(self, number: int, who: Who, need: Need) -> frozenset[bool]:
        key = number, who, need
        known = self._known.get(key)
        if known is None:
            step = self._steps[number]
            known = frozenset(self._has(who, need, step.certain | some) for some in _subsets(step.doubtful))
            self._known[key] = known
        return known

    def _has(self, who: Who, need: Need, acls: frozenset[Acl]) -> bool:
        return any(self._may(who, question, acls) for question in need.any_of)

    def _may(self, who: Who, question: Question, acls: frozenset[Acl]) -> bool:
        operation, resource_type, name = question
        if name is None:
            return naively_allowed_somewhere(acls, *who, operation, resource_type, open_without=self.open_without)
        return naively_allowed(acls, *who, operation, resource_type, name, open_without=self.open_without)


def _subsets(acls: frozenset[Acl]) -> Iterator[frozenset[Acl]]:
    for count in range(len(acls) + 1):
        yield from map(frozenset, combinations(acls, count))


def _shown(acls: Iterable[Acl]) -> str:
    return ", ".join(str(tuple(acl)) for acl in sorted(acls))
