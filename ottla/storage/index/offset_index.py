"""`.index`: from an offset to the byte position in the segment where a search for it may begin. Kafka's OffsetIndex.

An entry is written after about `index.interval.bytes` of batches. It means that the batch that starts at `position`
ends with `offset`. The first batch of a segment is never indexed, because a look-up that finds nothing begins at
position 0 anyway.

    bytes 0-3   offset of the batch's last record, relative to the segment's base offset, int32
    bytes 4-7   position of the batch's first byte in the `.log`, int32

Worked example, segment 00000000000000368769: the batch with the offsets 368774 to 368776 starts at byte 1407. Its
entry is

    00 00 00 07  00 00 05 7f        368769 + 7 = 368776, 0x57f = 1407

and `lookup(368780)`, if no later entry follows, returns (368776, 1407): scan from there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from ottla.storage.index.sparse_index import Entries, SparseIndex


class OffsetPosition(NamedTuple):
    """`offset` ends the batch that starts at byte `position`."""

    offset: int
    position: int


class OffsetIndex(SparseIndex):
    """The offset index of a segment; see the module for its bytes."""

    ENTRY_BYTES = 8
    KEY_BYTES = 4

    def lookup(self, offset: int) -> OffsetPosition:
        """The entry with the greatest offset at or below `offset`; (base offset, 0) when there is none."""
        entries = self.entries()
        slot = bisect_right(entries.keys, offset - self.base_offset) - 1
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + entries.keys[slot], entries.values[slot])

    def append(self, offset: int, position: int) -> None:
        """Add an entry in memory. ValueError unless both increase and the offset is within 2^31-1 of the base."""
        relative = self._relative(offset)
        entries = self.entries() if self._entries is None else self._entries
        keys = entries.keys
        if keys and (relative <= keys[-1] or position <= entries.values[-1]):
            raise ValueError(f"{self.path}: entry ({offset}, {position}) does not come after {self.last_entry}")
        self._append(relative, position)

    def append_run(self, offsets: list[int], positions: list[int], firsts: list[int]) -> int:
        """As `append` for each batch of one write, which has increasing offsets and positions.

        Columns of equal length: relative last offsets, positions, relative first offsets. ValueError, and nothing
        added, unless they follow the existing entries and fit. Returns how many entries the file does not have yet.
        """
        entries = self._entries
        if entries is None or self._sealed or len(entries.keys) + len(offsets) > self.max_entries:
            entries = self._open_to_append(len(offsets))  # raises the exact error
        keys = entries.keys
        if keys and (offsets[0] <= keys[-1] or positions[0] <= entries.values[-1]):
            first = OffsetPosition(self.base_offset + offsets[0], positions[0])
            raise ValueError(f"{self.path}: entry {first} does not come after {self.last_entry}")
        if offsets[0] < 0:
            raise ValueError(f"{self.path}: offset {self.base_offset + offsets[0]} cannot be in this segment")
        if entries.firsts_from + len(entries.firsts) != len(keys):
            # Some entries were loaded, or added without their first offsets: the known ones begin here.
            entries.firsts, entries.firsts_from = array("i"), len(keys)
        keys.fromlist(offsets)
        entries.values.fromlist(positions)
        entries.firsts.fromlist(firsts)
        return len(keys) - self._flushed

    @property
    def last_entry(self) -> OffsetPosition:
        """The newest entry; (base offset, 0) in an empty index."""
        entries = self.entries()
        if not len(entries):
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + entries.keys[-1], entries.values[-1])

    def __iter__(self) -> Iterator[OffsetPosition]:
        entries = self.entries()
        for relative, position in zip(entries.keys, entries.values, strict=True):
            yield OffsetPosition(self.base_offset + relative, position)

    def _no_entries(self) -> Entries:
        return Entries(array("i"), array("i"))

    def _offsets(self, entries: Entries) -> array[int]:
        return entries.keys

    def _check_entries(self, entries: Entries) -> None:
        if self._grow(entries.keys, 0, strictly=True) and self._grow(entries.values, 0, strictly=True):
            return
        last_relative = last_position = -1
        for number, (relative, position) in enumerate(zip(entries.keys, entries.values, strict=True)):
            if relative < 0 or position < 0:
                raise self._corrupt(number, f"negative: ({relative}, {position})")
            if relative <= last_relative or position <= last_position:
                raise self._corrupt(number, f"({relative}, {position}) after ({last_relative}, {last_position})")
            last_relative, last_position = relative, position
