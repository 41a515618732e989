"""The assigned partitions of a consumer, and the order in which they are read (Kafka's SubscriptionState)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.assigned import AssignedPartition
from ottla.client.structs import TopicPartition


class Assignment:
    """See the module. `partitions` stays the same dict; its order is the order of reading."""

    def __init__(self, reset_to: int | None) -> None:
        """`reset_to` is where a new partition begins, EARLIEST or LATEST; None: the program chooses."""
        self.partitions: dict[TopicPartition, AssignedPartition] = {}
        self._reset_to = reset_to

    def replace(self, wanted: Iterable[TopicPartition], *, awaits_committed: bool) -> None:
        """Assign these partitions and no others; those that were assigned before keep their position and their pause.

        With `awaits_committed` new ones begin at the group's committed offset, which the caller has to look up.
        """
        kept = {partition: self.partitions.get(partition) for partition in wanted}
        self.partitions.clear()
        for partition, known in kept.items():
            reset_to = None if awaits_committed else self._reset_to
            assigned = known or AssignedPartition(partition, reset_to, awaits_committed=awaits_committed)
            self.partitions[partition] = assigned
            if known is None and reset_to is None and not awaits_committed:
                assigned.miss_position()

    def find(self, partition: tuple[str, int]) -> AssignedPartition:
        """Return an assigned partition; raises ValueError for one that is not, or no longer, assigned."""
        found = self.partitions.get(TopicPartition(*partition))
        if found is None:
            raise ValueError(f"{partition[0]}-{partition[1]} is not assigned")
        return found

    def in_turn(self) -> list[AssignedPartition]:
        """Return the partitions that may be read; the next call begins with another one."""
        readable = [assigned for assigned in self.partitions.values() if assigned.has_data and not assigned.is_paused]
        if len(readable) > 1:
            first = readable[0]
            del self.partitions[first.partition]
            self.partitions[first.partition] = first
        return readable

    def reset(self, assigned: AssignedPartition) -> None:
        """Let a partition without a committed offset begin where a new one does."""
        if self._reset_to is None:
            assigned.miss_position()
        else:
            assigned.move(-1, reset_to=self._reset_to)
