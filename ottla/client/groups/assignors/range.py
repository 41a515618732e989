"""Range: each member gets a contiguous range of each topic's partitions (Kafka's RangeAssignor, its default).

With P partitions and C members each gets P // C, and the first P % C members one more: 4 partitions for 3 members are
2, 1, 1. Another common formula, ceil(P / C) for each while there are any, gives 2, 2, 0 and leaves a member idle;
neither Kafka nor this client uses it. If C divides P the two are the same.

Topics with the same number of partitions and the same members are assigned alike, so that equal keys of both topics are
read by the same member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.groups.assignors.interface import Assignment, Assignor, GroupMember, in_order
from ottla.client.structs import TopicPartition


class RangeAssignor(Assignor):
    """See the module."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Assign topic by topic."""
        assignment: Assignment = {member.member_id: [] for member in members}
        for topic, count in sorted(partition_counts.items()):
            subscribed = in_order(member for member in members if topic in member.topics)
            if not subscribed:
                continue
            least, extra = divmod(count, len(subscribed))
            first = 0
            for place, member in enumerate(subscribed):
                end = first + least + (place < extra)
                assignment[member.member_id] += [TopicPartition(topic, index) for index in range(first, end)]
                first = end
        return assignment
