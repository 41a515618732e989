"""Checks of batches from the disk before the first reader gets them: header, place and checksum.

Batches that this process writes are checked when they arrive. Those that it found at its start are checked when they
are read for the first time, by the worker that reads them. Valid ranges are remembered (`SoundRanges` of each segment),
and later reads cost a comparison. Only that comparison runs on the broker's thread. See
docs/decisions/reads-check-what-the-disk-gives.md.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from typing import Final

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

ENDLESS: Final = 1 << 62
"""The end of a range that grows with the file: appends of this process need no check."""
MAX_RANGES: Final = 64
"""The number of ranges that are remembered of a segment. Random reads could leave any number of them."""
_CRC_FROM: Final = 21
_ADDING: Final = threading.Lock()
"""One lock for all segments, of which there are many: ranges are added once for each read of a worker."""


class SoundRanges:
    """The bytes of one segment that need no check: verified before, or written by this process.

    `ranges` is a tuple of (position, end), in order and disjoint; never empty, the last one ends at ENDLESS. It is
    replaced as a whole, so that any thread may read it.
    """

    __slots__ = ("ranges",)

    def __init__(self, own_from: int) -> None:
        """`own_from`: everything from this byte on is, or will be, written by this process."""
        self.ranges: tuple[tuple[int, int], ...] = ((own_from, ENDLESS),)

    def end_from(self, position: int) -> int:
        """The end of the range that contains byte `position`; `position` if none does."""
        ranges = self.ranges
        slot = bisect_right(ranges, (position, ENDLESS)) - 1
        return max(ranges[slot][1], position) if slot >= 0 else position

    def add(self, position: int, end: int) -> None:
        """Remember that `[position, end)` is valid. Any thread."""
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


def sound_batches(
    data: bytes | bytearray, least_offset: int, before_offset: int | None, most: int = ENDLESS
) -> tuple[int, int, int, str | None]:
    """(bytes of the valid batches with which `data` begins, at most `most`; their number; the offset after them; the
    problem of the next one, None at the end of `data` or of `most`).

    No batch may begin before `least_offset`, or where an earlier one ends, or reach `before_offset`.
    """
    view = memoryview(data)
    size, end_offset = len(view), ENDLESS if before_offset is None else before_offset
    position = count = 0
    while position < size and count < most:
        try:
            # Field by field, without an object: a read may have thousands of small batches.
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
    """(The problem of the batch or message at `position`, None if it is valid; its end; the offset after it)."""
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
