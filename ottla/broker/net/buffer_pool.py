"""A pool of buffers for the next frames, because fresh pages fault in one by one.

Small buffers are kept by size, so that a buffer is found as quickly among thousands (of as many connections that wait
for their turn) as among few. Long ones are few: the pool's bytes are limited. Called by `ReceiveBuffers` only.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ottla.broker.net.held_bytes import FIRST_BYTES, GRAIN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.broker.net.held_bytes import HeldBytes


class BufferPool:
    """See the module. `size_bytes` is the size of the kept buffers, at most `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.size_bytes = 0
        self._small: list[list[HeldBytes]] = [[] for _ in range(FIRST_BYTES // GRAIN_BYTES + 1)]
        """The small buffers by their length in grains."""
        self._long: list[HeldBytes] = []

    def __iter__(self) -> Iterator[HeldBytes]:
        return chain(self._long, *self._small)

    def fitting(self, capacity: int) -> HeldBytes | None:
        """A buffer of at least that capacity and at most twice that; it stays in the pool. Of the long ones the newest
        if it fits, else the smallest that fits.
        """
        if capacity <= FIRST_BYTES:
            grains = -(-capacity // GRAIN_BYTES)
            for kept in self._small[grains : 2 * grains + 1]:
                if kept:
                    return kept[-1]
        kept = self._long
        if kept and capacity <= kept[-1].capacity <= 2 * capacity:
            return kept[-1]
        fitting = [held for held in kept if capacity <= held.capacity <= 2 * capacity]
        return min(fitting, key=_capacity) if fitting else None

    def keep(self, held: HeldBytes) -> None:
        """Add `held`, if there is room."""
        capacity = held.capacity
        if self.size_bytes + capacity <= self._max_bytes:
            self.size_bytes += capacity
            (self._long if capacity > FIRST_BYTES else self._small[capacity // GRAIN_BYTES]).append(held)

    def remove(self, held: HeldBytes) -> None:
        """Remove `held`: it has an owner now."""
        capacity = held.capacity
        kept = self._long if capacity > FIRST_BYTES else self._small[capacity // GRAIN_BYTES]
        if kept[-1] is held:
            kept.pop()
        else:
            kept.remove(held)
        self.size_bytes -= capacity

    def make_room(self, capacity: int) -> None:
        """Drop the oldest of the size that takes most bytes, until there is room for so many (at most `max_bytes`)."""
        while self.size_bytes + capacity > self._max_bytes:
            kept = max((self._long, *self._small), key=_bytes_of)
            self.size_bytes -= kept.pop(0).capacity


def _capacity(held: HeldBytes) -> int:
    return held.capacity


def _bytes_of(kept: list[HeldBytes]) -> int:
    return sum(map(_capacity, kept))
