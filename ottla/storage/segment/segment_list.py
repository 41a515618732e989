"""The segments of one log in the order of their base offsets; the segment of an offset is found by bisection.

Kafka has a ConcurrentSkipListMap; here two lists are enough: there is one writer, and changes are rare.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ottla.storage.segment.segment import Segment


class SegmentList:
    """The segments of an open log: at least one; the last one is active."""

    __slots__ = ("_bases", "in_order")

    def __init__(self, segments: list[Segment]) -> None:
        self.in_order = sorted(segments, key=lambda segment: segment.base_offset)
        """Oldest first; only the methods change it. Public, since each sync of each log reads it, and a call would cost
        a tenth of that.
        """
        self._bases = [segment.base_offset for segment in self.in_order]

    def __len__(self) -> int:
        return len(self.in_order)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.in_order)

    def __reversed__(self) -> Iterator[Segment]:
        return reversed(self.in_order)

    def __getitem__(self, slot: int) -> Segment:
        return self.in_order[slot]

    def to_list(self) -> list[Segment]:
        """A copy, oldest first."""
        return list(self.in_order)

    @property
    def active(self) -> Segment:
        """The segment that gets new records."""
        return self.in_order[-1]

    def slot_for(self, offset: int) -> int:
        """The index of the last segment that begins at or below `offset`; 0 when all begin above it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def append(self, segment: Segment) -> None:
        """Add the new active segment."""
        if self._bases and segment.base_offset <= self._bases[-1]:
            raise ValueError(f"segment {segment.base_offset} does not come after {self._bases[-1]}")
        self.in_order.append(segment)
        self._bases.append(segment.base_offset)

    def remove(self, segment: Segment) -> None:
        """Remove a segment."""
        slot = self.in_order.index(segment)
        del self.in_order[slot]
        del self._bases[slot]

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace neighbours by `new`, which has the base offset of the first. ValueError otherwise."""
        slot = self.in_order.index(old[0])
        if self.in_order[slot : slot + len(old)] != list(old) or old[0].base_offset != new.base_offset:
            raise ValueError(f"segment {new.base_offset} cannot take the place of {len(old)} segments")
        self.in_order[slot : slot + len(old)] = [new]
        self._bases[slot : slot + len(old)] = [new.base_offset]
