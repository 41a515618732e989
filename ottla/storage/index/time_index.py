"""`.timeindex`: from a timestamp to an offset before which every record is older. Kafka's TimeIndex.

An entry is written with each entry of the offset index, and once more when the segment is rolled. It means that
`timestamp` is the largest in the segment so far, and that `offset` is the last one of the batch that contains it. An
entry with a timestamp that is not larger than the last one's is omitted, so timestamps and offsets both increase.

    bytes 0-7   largest timestamp so far, milliseconds since 1970, int64
    bytes 8-11  offset of the last record of the batch that contains it, relative to the segment's base offset, int32

Worked example, segment 00000000000000368769: the largest timestamp so far, 1700000000000, is in the batch that ends
with 368776:

    00 00 01 8b cf e5 68 00  00 00 00 07
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.storage.index.sparse_index import CorruptIndex, Entries, SparseIndex

NO_TIMESTAMP: Final = -1
"""Kafka's RecordBatch.NO_TIMESTAMP."""


class TimestampOffset(NamedTuple):
    """`timestamp` (ms) is the largest up to and including `offset`'s batch."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The time index of a segment; see the module for its bytes."""

    ENTRY_BYTES = 12
    KEY_BYTES = 8

    @property
    def is_full(self) -> bool:
        """Whether the next entry would take the place that is reserved for the one at a roll."""
        return len(self.entries()) >= self.max_entries - 1

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The entry with the greatest timestamp at or below `timestamp`; (-1, base offset) when there is none."""
        entries = self.entries()
        slot = bisect_right(entries.keys, timestamp) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(entries.keys[slot], self.base_offset + entries.values[slot])

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> bool:
        """Add an entry in memory if its timestamp is larger; returns whether it was added.

        `at_roll` may take the place that is reserved for it in a full index. ValueError when the offset does not fit
        the segment; CorruptIndex, a ValueError, when it decreases while the timestamp increases: the existing entries
        are not of this log.
        """
        entries = self.entries() if self._entries is None else self._entries
        keys = entries.keys
        if timestamp <= (keys[-1] if keys else NO_TIMESTAMP):
            self._relative(offset)
            return False
        relative = self._relative(offset)
        if keys and relative < entries.values[-1]:
            raise CorruptIndex(f"{self.path}: entry ({timestamp}, {offset}) does not come after {self.last_entry}")
        if len(keys) >= self.max_entries - 1 and not at_roll:
            raise ValueError(f"{self.path}: the index is full ({self.max_entries - 1} entries)")
        self._append(timestamp, relative)
        return True

    @property
    def last_entry(self) -> TimestampOffset:
        """The newest entry; (-1, base offset) in an empty index."""
        entries = self.entries()
        if not len(entries):
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(entries.keys[-1], self.base_offset + entries.values[-1])

    def __iter__(self) -> Iterator[TimestampOffset]:
        entries = self.entries()
        for timestamp, relative in zip(entries.keys, entries.values, strict=True):
            yield TimestampOffset(timestamp, self.base_offset + relative)

    def _no_entries(self) -> Entries:
        return Entries(array("q"), array("i"))

    def _offsets(self, entries: Entries) -> array[int]:
        return entries.values

    def _check_entries(self, entries: Entries) -> None:
        if self._grow(entries.keys, 0, strictly=True) and self._grow(entries.values, 0, strictly=False):
            return
        last_timestamp, last_relative = NO_TIMESTAMP, -1
        for number, (timestamp, relative) in enumerate(zip(entries.keys, entries.values, strict=True)):
            if relative < 0:
                raise self._corrupt(number, f"negative offset: {relative}")
            if timestamp <= last_timestamp or relative < last_relative:
                raise self._corrupt(number, f"({timestamp}, {relative}) after ({last_timestamp}, {last_relative})")
            last_timestamp, last_relative = timestamp, relative
