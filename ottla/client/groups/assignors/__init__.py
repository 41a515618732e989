"""The classic protocol's assignors: pure functions of the members' subscriptions, run by the group's leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.client.groups.assignors.cooperative_sticky import CooperativeStickyAssignor
from ottla.client.groups.assignors.interface import Assignor, GroupMember
from ottla.client.groups.assignors.range import RangeAssignor
from ottla.client.groups.assignors.roundrobin import RoundRobinAssignor
from ottla.client.groups.assignors.sticky import StickyAssignor

__all__ = [
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "to_assignors",
]

BY_NAME: dict[str, type[Assignor]] = {
    kind.name: kind for kind in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_NAMES = {f"org.apache.kafka.clients.consumer.{kind.__name__}": name for name, kind in BY_NAME.items()}


def to_assignors(given: object) -> tuple[Assignor, ...]:
    """Return the assignors that an option names, the preferred one first.

    Names may be in a list or separated by commas. Java's class names are accepted, and so is a program's own `Assignor`
    in the list. Raises ValueError("must be ...") for anything else.
    """
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, Iterable):
        raise ValueError(_WANTED)
    made = tuple(_to_assignor(item) for item in items)
    if not made or len({one.name for one in made}) < len(made):
        raise ValueError(_WANTED)
    return made


def rebalances_cooperatively(assignors: Sequence[Assignor]) -> bool:
    """Whether members keep partitions during a rebalance: only if every assignor is cooperative."""
    return all(assignor.is_cooperative for assignor in assignors)


_WANTED = f"must be one or several of {', '.join(BY_NAME)}, each once"


def _to_assignor(given: object) -> Assignor:
    if isinstance(given, Assignor):
        return given
    if isinstance(given, type) and issubclass(given, Assignor):
        return given()
    name = given.strip() if isinstance(given, str) else ""
    kind = BY_NAME.get(_JAVA_NAMES.get(name, name))
    if kind is None:
        raise ValueError(_WANTED)
    return kind()
