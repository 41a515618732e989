"""The interface of assignors: a function from members and topics to partitions by member.

It is Kafka's `PartitionAssignor`, `GroupSpec` and `MemberSubscription` in one call. An assignor knows neither epochs
nor what members own at present, only the previous target. It must assign every partition of every subscribed topic to
exactly one of the topic's subscribers. The same input always gives the same output: members are sorted by id (in Kafka
the output depends on the order of hash maps).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.groups.partitions import Partitions


class AssignorMember(NamedTuple):
    """A member as assignors see it.

    `topics` are those of its subscription that exist, `target` is its part of the previous target.
    """

    instance_id: str | None
    topics: frozenset[UUID]
    target: Partitions


Members: TypeAlias = Mapping[str, AssignorMember]
"""Members by id, sorted by id."""

PartitionCounts: TypeAlias = Mapping[UUID, int]
"""The number of partitions of each subscribed topic."""

Assignor: TypeAlias = Callable[[Members, PartitionCounts], "dict[str, Partitions]"]
"""Assigns partitions to each member; the mapping has all members."""


def subscribe_alike(members: Members) -> bool:
    """Whether all members subscribe to the same topics (Kafka's homogeneous subscription type)."""
    subscriptions = iter(members.values())
    first = next(subscriptions).topics
    return all(member.topics is first or member.topics == first for member in subscriptions)
