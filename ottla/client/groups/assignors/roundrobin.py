"""Round robin: all partitions of all topics are assigned one by one, in turn (Kafka's RoundRobinAssignor).

A member that does not subscribe to a partition's topic is skipped, and loses this turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from ottla.client.groups.assignors.interface import Assignment, Assignor, GroupMember, in_order
from ottla.client.structs import TopicPartition


class RoundRobinAssignor(Assignor):
    """See the module."""

    name = "roundrobin"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Assign the partitions in turn."""
        assignment: Assignment = {member.member_id: [] for member in members}
        wanted = frozenset().union(*(member.topics for member in members))
        turns = cycle(in_order(members))
        for topic, count in sorted(partition_counts.items()):
            if topic not in wanted:
                continue
            for index in range(count):
                member = next(member for member in turns if topic in member.topics)
                assignment[member.member_id].append(TopicPartition(topic, index))
        return assignment
