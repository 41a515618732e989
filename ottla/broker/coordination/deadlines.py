"""Deadlines by key: set, moved, cancelled, and taken in the order of time. Monotonic milliseconds, passed in.

They are in a heap whose entries may be early or stale. If a key is postponed (each heartbeat does so), its entry stays
where it is, and is moved only when it comes to the top. So ten thousand heartbeats cost ten thousand dictionary writes,
not a heap of ten thousand entries. Stale entries are removed when they come to the top, or once most of the heap is
stale: a member may ask for 24 days (`max.poll.interval.ms` of 2^31-1), and members that join and leave must not leave
an entry each until then.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_COMPACT_FROM = 64


class Deadlines(Generic[K]):
    """At most one deadline for each key."""

    __slots__ = ("_due_ms", "_heap", "_next_order", "_queued_ms")

    def __init__(self) -> None:
        self._due_ms: dict[K, float] = {}
        self._queued_ms: dict[K, float] = {}
        """The time of a key's only valid entry in the heap, at or before the time at which it is due."""
        self._heap: list[tuple[float, int, K]] = []
        self._next_order = 0

    def __contains__(self, key: K) -> bool:
        return key in self._due_ms

    def __len__(self) -> int:
        return len(self._due_ms)

    @property
    def entry_count(self) -> int:
        """The number of entries in memory, including stale ones."""
        return len(self._heap)

    def at(self, key: K) -> float | None:
        """The time at which `key` is due; None when it has no deadline."""
        return self._due_ms.get(key)

    def set(self, key: K, due_ms: float) -> None:
        """Let `key` be due at `due_ms`, and at no other time."""
        self._due_ms[key] = due_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or due_ms < queued_ms:
            self._push(key, due_ms)

    def bring_forward(self, key: K, due_ms: float) -> None:
        """Let `key` be due at `due_ms`, unless it is due before."""
        known_ms = self._due_ms.get(key)
        if known_ms is None or due_ms < known_ms:
            self.set(key, due_ms)

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`, if it has one."""
        if self._due_ms.pop(key, None) is not None:
            del self._queued_ms[key]

    def clear(self) -> None:
        """Remove all deadlines."""
        self._due_ms.clear()
        self._queued_ms.clear()
        self._heap.clear()

    @property
    def next_ms(self) -> float | None:
        """The earliest deadline; None when there is none."""
        heap = self._heap
        while heap:
            queued_ms, _, key = heap[0]
            if self._queued_ms.get(key) != queued_ms:
                heappop(heap)
            elif self._due_ms[key] != queued_ms:
                heappop(heap)
                self._push(key, self._due_ms[key])
            else:
                return queued_ms
        return None

    def take(self, now_ms: float) -> K | None:
        """Remove and return the key that has been due longest at `now_ms`; None when nothing is due."""
        next_ms = self.next_ms
        if next_ms is None or next_ms > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._due_ms[key], self._queued_ms[key]
        return key

    def take_due(self, now_ms: float) -> list[K]:
        """Remove and return all keys that are due at `now_ms`, the one that has been due longest first."""
        due: list[K] = []
        while (key := self.take(now_ms)) is not None:
            due.append(key)
        return due

    def _push(self, key: K, due_ms: float) -> None:
        self._next_order += 1
        self._queued_ms[key] = due_ms
        heappush(self._heap, (due_ms, self._next_order, key))
        if len(self._heap) > _COMPACT_FROM and len(self._heap) > 2 * len(self._queued_ms):
            self._compact()

    def _compact(self) -> None:
        """Keep the valid entry of each key, fewer than half of all: as many pushes have paid for this."""
        valid: dict[K, tuple[float, int, K]] = {}
        for entry in sorted(self._heap):
            if self._queued_ms.get(entry[2]) == entry[0]:
                valid.setdefault(entry[2], entry)
        self._heap[:] = valid.values()  # in order, hence a heap
