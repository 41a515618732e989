"""Reading a log: floor in the segment list, floor in the sparse index, a scan by headers, and then a view of the bytes.

A consumer that continues needs none of these steps: it finds its place by a hint (the offset after the last slice, its
position, and the end of the verified range of the segment). The reader never waits for bytes that may not be in memory,
or that were not verified since the start (`soundness.py`): the slice then reads in a thread
(docs/decisions/maps-are-for-the-kernel.md).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.segment.scan import NotResident, Reader, nowait, walk
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList
from ottla.storage.segment.segment_search import find, quick_cut, whole_batches
from ottla.storage.segment.slice import EMPTY_SLICE, LogSlice
from ottla.storage.segment.sound_reading import read_sound

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

MAX_HINTS: Final = 128
"""The number of consumers of one partition that can read at different places and still skip the index. This many hints
are kept, and as many older ones: dropping all old ones at times is cheaper than dropping the oldest at each read."""
MOST_KEPT_BYTES: Final = 1024
"""The largest append that is kept in memory for readers that wait for it: many thousand partitions may have one."""
SMALLEST_MAP_BYTES: Final = 64 * 1024
"""The size from which sending from the map is cheaper than a copy."""
ANY_BYTES: Final = sys.maxsize


class End(NamedTuple):
    """The end of a read: `offset`, which is byte `position` of the segment at `base_offset`."""

    offset: int
    base_offset: int
    position: int


class _Stretch(NamedTuple):
    """Found bytes: `[position, end)` of a segment; `next_offset` follows them, -1 when that is not known; the next
    segment's base offset is `next_base`, None without one.
    """

    segment: Segment
    position: int
    end: int
    next_offset: int
    next_base: int | None


class LogReader:
    """Reads one log; owns nothing but its hints, and the newest bytes.

    Attributes:
        is_awaited: whether a reader waits for the next append, and will probably read it immediately.
        newest: the last append, if it is small and was awaited: the segment, the position in it, the bytes, the offset
            of the first record and the one after the last. The bytes are as they were written, and save their reader a
            system call.

    The log updates `newest`, and `high_watermark`: the end of what is visible, as the fields of an `End`. (A plain
    tuple, since each append creates one, and few are used.)
    """

    __slots__ = (
        "_hints",
        "_next_offset",
        "_next_position",
        "_next_segment",
        "_next_sound_end",
        "_older_hints",
        "_segments",
        "high_watermark",
        "is_awaited",
        "newest",
    )

    def __init__(self, segments: SegmentList, high_watermark: End) -> None:
        self._segments = segments
        self.high_watermark: tuple[int, int, int] = high_watermark
        self._hints: dict[int, tuple[Segment, int, int]] = {}
        self._older_hints: dict[int, tuple[Segment, int, int]] = {}
        # The newest hint is separate: a single reader uses it next, and a dict costs more to look up and to change.
        self._next_offset = -1
        self._next_segment: Segment | None = None
        self._next_position = 0
        self._next_sound_end = 0
        self.is_awaited = False
        self.newest: tuple[Segment, int, bytes, int, int] | None = None

    def forget_hints(self) -> None:
        """Drop all hints: segments were truncated or deleted, or the log start has moved."""
        self._next_offset, self._next_segment = -1, None
        self.newest = None
        self._hints.clear()
        self._older_hints.clear()

    def read(
        self,
        offset: int,
        max_bytes: int,
        end: End | int,
        at_least_one: bool,
        allow_map: bool,
        is_checked: bool,
        most_copied_bytes: int = ANY_BYTES,
    ) -> LogSlice:
        """Whole batches from the one that contains `offset`, which is below `end` (an offset if its position is
        unknown). `is_checked`: batches that are read from the disk or were not verified yet are checked, and returned
        up to the first damaged one; otherwise the caller must check them. A range that is longer than
        `most_copied_bytes`, and not mapped, is only located: a thread reads it.

        Raises:
            KafkaError: CORRUPT_MESSAGE, no batch is where one should be.
            OSError: the disk failed.
        """
        slot, position = self._place(offset)
        try:
            stretch = _find(self._segments, slot, position, offset, max_bytes, end, at_least_one, blocking=False)
        except NotResident:
            # Sealed segments never change and the active one only grows, so a thread may do the whole look-up.
            segments = self._segments.to_list()

            def load() -> bytes:
                found = _find(segments, slot, position, offset, max_bytes, end, at_least_one, blocking=True)
                return b"" if found is None else _load(found, is_checked)

            return LogSlice(None, max_bytes, load=load)
        if stretch is None:
            return EMPTY_SLICE
        ranges = stretch.segment.sound
        first, sound_end = ranges.ranges[0]
        if not first <= stretch.position <= sound_end:
            sound_end = ranges.end_from(stretch.position)
        if stretch.next_offset >= 0:
            self._keep_next()
            self._next_offset, self._next_segment = stretch.next_offset, stretch.segment
            self._next_position, self._next_sound_end = stretch.end, sound_end
        if sound_end < stretch.end and is_checked:
            return LogSlice(None, stretch.end - stretch.position, load=lambda: _load(stretch, is_checked))
        return _slice(stretch, allow_map, is_checked, most_copied_bytes)

    def read_on(
        self, offset: int, max_bytes: int, end_offset: int, allow_map: bool, at_least_one: bool = True
    ) -> memoryview | None:
        """`read` for a reader that continues where an earlier read ended, when the bytes are in memory and `end_offset`
        is the high watermark; None if `read` has to do it.

        On request the first batch is returned even if it is larger than `max_bytes` (KIP-74). Of small batches up to
        a quarter less than `max_bytes` may be returned, because only one header is read.

        Raises OSError: the disk failed.
        """
        segment: Segment | None
        if is_next := offset == self._next_offset:
            segment, position, sound_end = self._next_segment, self._next_position, self._next_sound_end
        else:
            segment, position, sound_end = self._hint(offset)
        if segment is None:
            return None
        visible_offset, last_base_offset, limit = self.high_watermark
        if end_offset != visible_offset or offset >= end_offset:
            return None
        is_last = segment.base_offset == last_base_offset
        if not is_last:
            limit = segment.size_bytes
        stop = position + max_bytes
        if stop < limit:
            cut = quick_cut(segment, position, stop, limit)
            if cut is None:
                return None
            end, next_offset = cut
            if end > stop and not at_least_one:
                return None
            stop = end
        elif is_last and position < limit:
            stop, next_offset = limit, end_offset
        else:
            return None
        if stop > sound_end:
            return None
        length = stop - position
        if allow_map and length >= SMALLEST_MAP_BYTES:
            view = segment.file.resident_view(position, length)
        elif (
            (newest := self.newest) is not None
            and newest[1] == position
            and newest[0] is segment
            and len(newest[2]) == length
        ):
            view = memoryview(newest[2])
        else:
            data = segment.file.pread_nowait(length, position)
            view = None if data is None else memoryview(data)
        if view is not None:
            if not is_next:
                self._keep_next()
                self._next_sound_end = sound_end
            self._next_offset, self._next_segment, self._next_position = next_offset, segment, stop
        return view

    def read_newest(
        self, offset: int, max_bytes: int, end_offset: int, allow_map: bool, at_least_one: bool = True
    ) -> Buffer | None:
        """`read_on` for a reader that has waited for the last append: if `read_on` would return just that, and it was
        kept in memory, this takes a third of the steps.
        """
        newest = self.newest
        if newest is not None:
            segment, position, records, base_offset, next_offset = newest
            length = len(records)
            # The position needs no check: it belongs to the hint's offset.
            if (
                offset == base_offset
                and offset == self._next_offset
                and end_offset == next_offset
                and length <= max_bytes
                and segment is self._next_segment
            ):
                self._next_offset, self._next_position = next_offset, position + length
                return records
        return self.read_on(offset, max_bytes, end_offset, allow_map, at_least_one)

    def has_reached(self, end_offset: int) -> bool:
        """Whether the newest read that returned anything ended at this offset."""
        return self._next_offset >= end_offset

    def visible_bytes(self, offset: int, end: End | int) -> int:
        """The number of bytes from the batch that contains `offset` to `end`, within its segment; ANY_BYTES if more
        follow in the next segment, or if that is unknown without waiting for the disk.
        """
        segments = self._segments
        slot, position = self._place(offset)
        segment = segments[slot]
        next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
        read = nowait(segment.file)
        try:
            limit, end_offset = _limit(segment, next_base, end, read)
            if end_offset < _end_offset(end):
                return ANY_BYTES
            if position < 0 and limit:
                segment.require_loaded()
                found = find(segment, offset, limit, read)
                position = limit if found is None else found[0]
        except (NotResident, CorruptBatch):
            return ANY_BYTES
        return max(limit - position, 0)

    def _hint(self, offset: int) -> tuple[Segment | None, int, int]:
        """Segment and position at which an earlier read ended with `offset`, if there is a hint, and the end of the
        verified range.
        """
        if offset == self._next_offset:
            return self._next_segment, self._next_position, self._next_sound_end
        return self._hints.get(offset) or self._older_hints.get(offset) or (None, 0, 0)

    def _keep_next(self) -> None:
        """Move the newest hint to the other ones, because another reader reads."""
        if self._next_segment is not None:
            if len(self._hints) >= MAX_HINTS:
                self._older_hints, self._hints = self._hints, {}
            self._hints[self._next_offset] = self._next_segment, self._next_position, self._next_sound_end

    def _place(self, offset: int) -> tuple[int, int]:
        """(slot in the segment list, position or -1 without a hint)."""
        slot = self._segments.slot_for(offset)
        segment, position, _ = self._hint(offset)
        if segment is not None:
            if self._segments[slot] is segment:
                return slot, position
            # The hint points at the end of a segment that was rolled since: the next one begins here.
            if position == segment.size_bytes and self._segments[slot].base_offset == offset:
                return slot, 0
        return slot, -1


def _find(
    segments: Sequence[Segment] | SegmentList,
    slot: int,
    position: int,
    offset: int,
    max_bytes: int,
    end: End | int,
    at_least_one: bool,
    *,
    blocking: bool,
) -> _Stretch | None:
    """The place of the bytes, which is in the next segment if this one ends; None if there are none before `end`."""
    try:
        while slot < len(segments):
            segment = segments[slot]
            read = segment.file.pread if blocking else nowait(segment.file)
            next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
            limit, end_offset = _limit(segment, next_base, end, read)
            if position < 0 and limit:
                if not blocking:
                    segment.require_loaded()
                found = find(segment, offset, limit, read)
                position = limit if found is None else found[0]
            if 0 <= position < limit:
                return _cut(segment, position, limit, end_offset, next_base, max_bytes, at_least_one, read)
            if end_offset >= _end_offset(end):
                return None
            slot, position = slot + 1, 0
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: {error}") from None
    return None


def _limit(segment: Segment, next_base: int | None, end: End | int, read: Reader) -> tuple[int, int]:
    """(byte at which to stop in this segment, offset at that byte)."""
    end_offset = _end_offset(end)
    if next_base is not None and next_base <= end_offset:
        return segment.size_bytes, next_base
    if isinstance(end, End) and end.base_offset == segment.base_offset:
        return end.position, end.offset
    found = find(segment, end_offset, segment.size_bytes, read)
    return (segment.size_bytes if found is None else found[0]), end_offset


def _end_offset(end: End | int) -> int:
    return end.offset if isinstance(end, End) else end


def _cut(
    segment: Segment,
    position: int,
    limit: int,
    end_offset: int,
    next_base: int | None,
    max_bytes: int,
    at_least_one: bool,
    read: Reader,
) -> _Stretch | None:
    """At most `max_bytes` in whole batches; on request the first one even if it is larger (KIP-74)."""
    if limit - position <= max_bytes:
        return _Stretch(segment, position, limit, end_offset, next_base)
    stop, next_offset = whole_batches(segment, position, position + max_bytes, limit, read)
    if stop > position:
        return _Stretch(segment, position, stop, next_offset, next_base)
    if not at_least_one:
        return None
    _, first = next(walk(read, position, limit))
    return _Stretch(segment, position, position + first.size_bytes, first.next_offset, next_base)


def _slice(stretch: _Stretch, allow_map: bool, is_checked: bool, most_copied_bytes: int) -> LogSlice:
    segment, position = stretch.segment, stretch.position
    length = stretch.end - position
    if allow_map and length >= SMALLEST_MAP_BYTES:
        view = segment.file.resident_view(position, length)
        if view is not None:
            return LogSlice(view, length)
    elif length <= most_copied_bytes:
        data = segment.file.pread_nowait(length, position)
        if data is not None:
            return LogSlice(memoryview(data), length)
    return LogSlice(None, length, load=lambda: _load(stretch, is_checked))


def _load(stretch: _Stretch, is_checked: bool) -> bytes:
    """Read the bytes, in a worker; with `is_checked`, up to the first damaged batch."""
    segment, position, end, _, next_base = stretch
    if is_checked:
        return read_sound(segment, position, end, next_base, segment.size_bytes)
    try:
        data = segment.file.pread(end - position, position)
    except ValueError:
        raise OSError(f"{segment.path}: deleted while it was being read") from None
    if len(data) != end - position:
        raise OSError(f"{segment.path}: {len(data)} of {end - position} bytes at position {position}")
    return data
