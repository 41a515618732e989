"""Range: each topic's partitions in a row, each member a stretch of them (Kafka's RangeAssignor, its default).

Of P partitions and C members each gets P // C, and the first P % C members one more. 4 partitions among 3 members make
2, 1, 1. A formula that is often seen, ceil(P / C) for each as long as there are any, makes 2, 2, 0 of them and leaves a
member idle; Kafka does not do so, and neither do we. Where C divides P the two are the same.

Topics with as many partitions and the same members are shared out alike, so that equal keys of both meet at one member.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.groups.assignors.interface import Assignment, Assignor, GroupMember, in_order
from ottla.client.structs import TopicPartition


class RangeAssignor(Assignor):
    """See the module."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Share out topic by topic."""
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
