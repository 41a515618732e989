"""Finding batches in a segment: by the floor of its sparse index, then by the headers from there on.

An index entry is a hint, and the `.log` decides: if the entry points at no batch, or at one after the wanted one, the
search begins earlier. `read` decides whether to wait for the disk (`scan.py`). Any thread may call.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, CorruptBatch
from ottla.storage.index.sparse_index import CorruptIndex
from ottla.storage.segment.scan import Reader, walk

if TYPE_CHECKING:
    from ottla.storage.segment.segment import Segment

_LOOK: Final = struct.Struct(">qi4xb6xi")
"""The front of a batch's header: base offset, batch length, magic, last offset delta."""
_LOOK_BYTES: Final = _LOOK.size
_SMALLEST_LENGTH: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES


def find(segment: Segment, offset: int, limit: int, read: Reader) -> tuple[int, BatchHeader] | None:
    """Position and header of the first batch that ends at `offset` or later; None when there is none before `limit`.

    Raises:
        NotResident: by a reader that does not wait.
        CorruptBatch: the search met bytes that are no batch.
    """
    position = segment.floor(offset)
    try:
        return _find_from(segment, position, offset, limit, read)
    except CorruptBatch:
        if position == 0:
            raise
    # Damage, or an entry with a flipped bit: a search from the entry before it distinguishes the two.
    return _find_from(segment, segment.floor_by_position(position - 1), offset, limit, read)


def _find_from(segment: Segment, start: int, offset: int, limit: int, read: Reader) -> tuple[int, BatchHeader] | None:
    least_offset = -1 if start else segment.base_offset
    for position, header in walk(read, start, limit):
        if header.base_offset < least_offset:  # if it were skipped, its records would be lost without an error
            raise CorruptBatch(
                f"at position {position}: a batch at offset {header.base_offset}"
                f" where {least_offset} or more was expected"
            )
        least_offset = header.next_offset
        if header.last_offset >= offset:
            if header.base_offset > offset and position == start > 0:
                raise CorruptBatch(f"at position {position}: offset {header.base_offset}, {offset} lies before it")
            return position, header
    return None


def whole_batches(segment: Segment, position: int, stop: int, limit: int, read: Reader) -> tuple[int, int]:
    """The end of the last batch between `position` and `stop`, and the offset after it; (position, -1) for none. Ends
    before damage, so that the valid batches are read first.

    Raises:
        NotResident: by a reader that does not wait.
        CorruptBatch: no batch is at `position`.
    """
    start = max(position, segment.floor_by_position(stop))
    try:
        return _whole_batches(position, start, stop, limit, read)
    except CorruptBatch:
        if start == position:
            raise
    return _whole_batches(position, position, stop, limit, read)  # the index may be wrong, `position` is not


def _whole_batches(position: int, start: int, stop: int, limit: int, read: Reader) -> tuple[int, int]:
    end, next_offset = start, -1
    try:
        for at, header in walk(read, start, limit):
            if next_offset < 0:
                next_offset = header.base_offset
            if at + header.size_bytes > stop:
                break
            end, next_offset = at + header.size_bytes, header.next_offset
    except CorruptBatch:
        if start > position or end == position:
            raise
    return (end, next_offset) if end > position else (position, -1)


def quick_cut(segment: Segment, position: int, stop: int, limit: int) -> tuple[int, int] | None:
    """`whole_batches` with at most one header read, and without waiting: the end, and the offset after it.

    The end is the last indexed batch before `stop`, if that is not far from it, or the end of the first batch, if that
    is large. None in all other cases, such as damage and bytes that are not in memory: then `whole_batches` is called.
    """
    try:
        entries = segment.offset_index.entries_if_loaded()
    except CorruptIndex:  # the cache has just dropped it
        return None
    if entries is None:
        return None
    positions = entries.values
    slot = bisect_right(positions, stop) - 1
    at = positions[slot] if slot >= 0 else 0
    if at <= position:
        at = position
    elif (at - position) * 4 < (stop - position) * 3:
        return None
    else:
        firsts, known = entries.firsts, slot - entries.firsts_from
        if 0 <= known < len(firsts):
            return at, segment.base_offset + firsts[known]
    header = segment.file.pread_nowait(_LOOK_BYTES, at)
    if header is None:
        return None
    base_offset, length, magic, last_offset_delta = _LOOK.unpack(header)
    end = at + length + LENGTH_PREFIX_BYTES
    if magic != MAGIC or length < _SMALLEST_LENGTH or end > limit or last_offset_delta < 0:
        return None
    if at > position:
        return at, base_offset
    if end < stop and (end - position) * 4 < (stop - position) * 3:
        return None
    return end, base_offset + last_offset_delta + 1
