"""Batches that lie on the disk, looked at before the first reader gets them: header, place and checksum.

What this process writes is checked when it comes. What it found at its start is looked at when it is read for the first
time, by the worker that reads it: what is sound is remembered (`SoundRanges` of each segment), and later reads cost a
comparison. Nothing here runs on the broker's thread but that look. docs/decisions/reads-check-what-the-disk-gives.md.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MIN_BATCH_LENGTH,
    CorruptBatch,
    unpack_header,
)
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.formats import any_crc_matches, parse_any_header

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment

ENDLESS: Final = 1 << 62
"""End of a range that grows with the file: what this process appends needs no look."""
MAX_RANGES: Final = 64
"""Ranges that are remembered of a segment. Readers that jump about could leave any number of them."""
AHEAD: Final = 4
LEAST_AHEAD_BYTES: Final = 256 << 10
MOST_AHEAD_BYTES: Final = 8 << 20
AHEAD_BATCHES: Final = 2_000
"""How far a look goes beyond what is to be sent, where the bytes are in memory, so that the next reads need no worker:
so many times its length, within these bounds. A request may be for hundreds of partitions, and its answer waits."""
_PIECE_BYTES: Final = 2 << 20
_CRC_FROM: Final = 21
_ADDING: Final = threading.Lock()
"""One for all segments, of which there are many: ranges are added once for each read of a worker."""


class SoundRanges:
    """The bytes of one segment that need no look: sound when somebody looked, or written by this process.

    `ranges` is a tuple of (position, end), in order and apart from each other; never empty, the last one is ENDLESS.
    It is replaced as a whole, so that any thread may read it.
    """

    __slots__ = ("ranges",)

    def __init__(self, own_from: int) -> None:
        """All from byte `own_from` on is, or will be, written by this process."""
        self.ranges: tuple[tuple[int, int], ...] = ((own_from, ENDLESS),)

    def end_from(self, position: int) -> int:
        """The end of the range that holds byte `position`; `position` where none does."""
        ranges = self.ranges
        slot = bisect_right(ranges, (position, ENDLESS)) - 1
        return max(ranges[slot][1], position) if slot >= 0 else position

    def add(self, position: int, end: int) -> None:
        """Remember that `[position, end)` is sound. Any thread."""
        if end <= position:
            return
        with _ADDING:
            apart = []
            for first, last in self.ranges:
                if last < position or first > end:
                    apart.append((first, last))
                else:
                    position, end = min(position, first), max(end, last)
            ranges = sorted([*apart, (position, end)])
            if len(ranges) > MAX_RANGES:
                ranges.remove(min(ranges, key=_length))
            self.ranges = tuple(ranges)


def _length(one: tuple[int, int]) -> int:
    return one[1] - one[0]


def read_sound(segment: Segment, position: int, end: int, before_offset: int | None, limit: int) -> bytes:
    """The batches between bytes `position`, where one begins, and `end`, up to the first that is not sound. Waits for
    the disk: for a worker.

    Looks at some of what follows, too, up to byte `limit`, as far as it is in memory.

    Args:
        before_offset: the next segment's base offset, which no batch may reach; None where none follows.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the first batch is not sound, or the file is too short for it.
        OSError: the disk failed, or the segment was deleted.
    """
    try:
        data = segment.file.pread(end - position, position)
    except ValueError:
        raise OSError(f"{segment.path}: deleted while it was being read") from None
    sound_bytes, count, next_offset, problem = sound_batches(data, segment.base_offset, before_offset)
    if problem is None and len(data) < end - position:
        problem = "the file ends here"
    segment.sound.add(position, position + sound_bytes)
    if problem is None:
        ahead_bytes = min(max(AHEAD * (end - position), LEAST_AHEAD_BYTES), MOST_AHEAD_BYTES)
        _look_ahead(segment, end, min(limit, end + ahead_bytes), next_offset, before_offset, AHEAD_BATCHES - count)
        return data
    if sound_bytes:
        return data[:sound_bytes]
    if len(data) < end - position:
        problem = f"{problem}; the file has {position + len(data)} bytes, {limit} were stored"
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: at position {position}: {problem}")


def _look_ahead(
    segment: Segment, position: int, stop: int, next_offset: int, before_offset: int | None, batches: int
) -> None:
    """Look at batches between bytes `position` and `stop` that are in memory; readers will come to them next."""
    while position < stop and batches > 0 and segment.sound.end_from(position) == position:
        data = segment.file.pread_nowait(min(stop - position, _PIECE_BYTES), position)
        if data is None:
            return
        sound_bytes, count, next_offset, _ = sound_batches(data, next_offset, before_offset, batches)
        segment.sound.add(position, position + sound_bytes)
        if not sound_bytes:  # damage, which the next reader is to meet, or a batch larger than the piece
            return
        position += sound_bytes
        batches -= count


def sound_batches(
    data: bytes | bytearray, least_offset: int, before_offset: int | None, most: int = ENDLESS
) -> tuple[int, int, int, str | None]:
    """(bytes of the sound batches that `data` begins with, at most `most` of them; their number; the offset behind
    them; what is wrong with the next one, None at the end of `data` or of `most`).

    No batch may begin before `least_offset`, or where an earlier one ends, or reach `before_offset`.
    """
    view = memoryview(data)
    size, end_offset = len(view), ENDLESS if before_offset is None else before_offset
    position = count = 0
    while position < size and count < most:
        try:
            # Field by field, and no object for it: of small batches there are thousands in a read.
            base_offset, length, _, magic, crc, _, delta, _, _, _, _, _, records = unpack_header(view, position)
        except struct.error:
            base_offset = length = magic = crc = delta = records = -1
        end = position + length + LENGTH_PREFIX_BYTES
        if (
            magic == MAGIC
            and length >= MIN_BATCH_LENGTH
            and end <= size
            and 0 <= records <= delta + 1
            and delta >= 0
            and least_offset <= base_offset
            and base_offset + delta < end_offset
            and crc32c(view[position + _CRC_FROM : end]) == crc
        ):
            least_offset = base_offset + delta + 1
        else:
            problem, end, least_offset = _look_closer(view, position, least_offset, end_offset)
            if problem is not None:
                return position, count, least_offset, problem
        position = end
        count += 1
    return position, count, least_offset, None


def _look_closer(view: memoryview, position: int, least_offset: int, end_offset: int) -> tuple[str | None, int, int]:
    """(What is wrong with the batch or message at `position`, None if nothing is; where it ends; the offset behind)."""
    front = view[position : position + HEADER_BYTES]
    if not any(front):
        return "zeros where a batch was expected", position, least_offset
    try:
        header = parse_any_header(view, position)
    except CorruptBatch as error:
        return str(error), position, least_offset
    end, remain = position + header.size_bytes, len(view) - position
    if end > len(view):
        problem: str | None = f"a batch of {header.size_bytes} bytes, {remain} remain"
    elif header.base_offset < least_offset:
        problem = f"a batch at offset {header.base_offset} where {least_offset} or more was expected"
    elif header.last_offset >= end_offset:
        problem = f"a batch ends at offset {header.last_offset}, in the next segment's {end_offset}"
    elif not any_crc_matches(view[position:end], header):
        problem = f"the checksum of the batch at offset {header.base_offset} does not match"
    else:
        return None, end, header.next_offset
    return problem, position, least_offset
