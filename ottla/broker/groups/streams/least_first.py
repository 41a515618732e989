"""A queue that returns its smallest item first: a binary heap with the order of Java's `PriorityQueue` for equal items.

Which of two equal items comes first depends on how a heap is kept in order. `heapq` moves an item down to the bottom
and up again; Java's queue stops on the way down, as textbooks do. The assignor needs the same choice as Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class LeastFirst(Generic[T]):
    """Items with numbers. An item's number does not change while it is in the queue."""

    def __init__(self, items: Iterable[tuple[float, T]] = ()) -> None:
        self._heap: list[tuple[float, T]] = []
        for number, item in items:
            self.push(number, item)

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, number: float, item: T) -> None:
        """Add an item."""
        heap = self._heap
        index = len(heap)
        new = (number, item)
        heap.append(new)
        while index:
            parent = (index - 1) >> 1
            above = heap[parent]
            if number >= above[0]:
                break
            heap[index] = above
            index = parent
        heap[index] = new

    def pop(self) -> T:
        """Remove the smallest item and return it. Raises IndexError if there is none."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last[1]
        least = heap[0][1]
        number = last[0]
        index, child, end = 0, 1, len(heap) - 1
        while child <= end:
            below = heap[child]
            if child < end and below[0] > (right := heap[child + 1])[0]:
                child += 1
                below = right
            if number <= below[0]:
                break
            heap[index] = below
            index = child
            child = 2 * index + 1
        heap[index] = last
        return least
