"""What an assignor is: a function from members and topics to partitions by member.

Kafka's `PartitionAssignor`, `GroupSpec` and `MemberSubscription` in one call. An assignor knows neither epochs nor what
members own at present, only the target before; it must give every partition of every subscribed topic to exactly one
of the topic's subscribers. The same input always gives the same output, which Kafka leaves to the order of its hash
maps: here members come sorted by id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.groups.partitions import Partitions


class AssignorMember(NamedTuple):
    """A member as assignors see it.

    `topics` are those of its subscription that exist, `target` is its part of the target before this one.
    """

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


Members: TypeAlias = Mapping[str, AssignorMember]
"""Members by id, sorted by id."""

PartitionCounts: TypeAlias = Mapping[UUID, int]
"""How many partitions each subscribed topic has."""

Assignor: TypeAlias = Callable[[Members, PartitionCounts], "dict[str, Partitions]"]
"""Gives each member its partitions; the mapping has all members."""


def subscribe_alike(members: Members) -> bool:
    """Whether all members subscribe to the same topics (Kafka's homogeneous subscription type)."""
    subscriptions = iter(members.values())
    first = next(subscriptions).topics
    return all(member.topics is first or member.topics == first for member in subscriptions)
