"""The `range` assignor: each topic's partitions in consecutive runs, one run for each subscriber.

Subscribers of a topic are sorted: first static members by instance id, then the other members by member id. With P
partitions and N subscribers each gets P // N in a row, and the first P % N one more. Topics with equally many
partitions and the same subscribers are divided at the same places (co-partitioned), so that a join of both finds its
keys at one member. The assignor is sticky only in that the order does not change: a static member that returns keeps
its place.

    7 partitions, members A B C:   A 0 1 2   B 3 4   C 5 6

Source: Kafka 4.1's `RangeAssignor` (KIP-848).
"""

from __future__ import annotations

from uuid import UUID

from ottla.broker.groups.assignors.assignor import Members, PartitionCounts
from ottla.broker.groups.partitions import Partitions


def assign_range(members: Members, partition_counts: PartitionCounts) -> dict[str, Partitions]:
    """The target of each member."""
    line = sorted(members, key=lambda member_id: _place(members, member_id))
    subscribers: dict[UUID, list[str]] = {}
    for member_id in line:
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, topic_subscribers in subscribers.items():
        share, extra = divmod(partition_counts[topic_id], len(topic_subscribers))
        start = 0
        for position, member_id in enumerate(topic_subscribers):
            end = start + share + (position < extra)
            if start < end:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _place(members: Members, member_id: str) -> tuple[bool, str]:
    instance_id = members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
