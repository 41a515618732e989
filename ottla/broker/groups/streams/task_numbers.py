"""Tasks as numbers from 0, by subtopology and then by partition: the assignor works on many thousands of them.

subtopologies "0" with 2 tasks and "1" with 3: "1"_0 is number 2
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
from ottla.broker.groups.streams.tasks import Tasks


class TaskNumbers:
    """The tasks of a topology."""

    def __init__(self, subtopologies: Mapping[str, ConfiguredSubtopology]) -> None:
        self._ids = sorted(subtopologies)
        self._sizes = [subtopologies[subtopology_id].task_count for subtopology_id in self._ids]
        self._are_stateful = [subtopologies[subtopology_id].is_stateful for subtopology_id in self._ids]
        self._ranges: dict[str, range] = {}
        self.count = 0
        """The number of tasks."""
        for subtopology_id, size in zip(self._ids, self._sizes, strict=True):
            self._ranges[subtopology_id] = range(self.count, self.count + size)
            self.count += size
        self.stateful_count = sum(
            size for size, is_stateful in zip(self._sizes, self._are_stateful, strict=True) if is_stateful
        )
        """The number of tasks with state."""

    def by_partition(self, *, with_state: bool = False) -> list[int]:
        """All tasks, or those with state, by partition and then by subtopology."""
        ranges = [
            numbers
            for numbers, is_stateful in zip(self._ranges.values(), self._are_stateful, strict=True)
            if is_stateful or not with_state
        ]
        return [number for numbers in zip_longest(*ranges) for number in numbers if number is not None]

    def range_of(self, subtopology_id: str) -> range:
        """The tasks of a subtopology, by partition; none if it is not in the topology."""
        return self._ranges.get(subtopology_id, range(0))

    def of(self, tasks: Tasks) -> Iterator[int]:
        """The numbers of tasks, without those that are not in the topology."""
        for subtopology_id, partitions in tasks.items():
            numbers = self.range_of(subtopology_id)
            yield from (numbers[partition] for partition in partitions if 0 <= partition < len(numbers))

    def tasks(self, numbers: Iterable[int]) -> Tasks:
        """The tasks of numbers."""
        left = sorted(numbers)
        found: dict[str, frozenset[int]] = {}
        begin = 0
        for subtopology_id, within in self._ranges.items():
            end = bisect_left(left, within.stop, begin)
            if end > begin:
                found[subtopology_id] = frozenset(map(within.index, left[begin:end]))
                begin = end
        return found
