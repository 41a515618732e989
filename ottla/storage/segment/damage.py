"""Checks of bytes that may be damaged: whether a segment is valid, where the damage begins, and whether valid batches
follow it.

The checks use checksums and read in pieces, so that a broken length cannot allocate memory. Used by recovery, and by
the tools that verify.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from typing import Final, Protocol

from ottla.plain import Plain
from ottla.protocol.records.batch import HEADER_BYTES, MAGIC, BatchHeader, CorruptBatch
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.legacy import LEGACY_MAGICS, SMALLEST_SIZE
from ottla.storage.files.files import File
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk, with_inner_offsets

MAX_OFFSET_SPAN: Final = 1 << 31
"""The maximum distance of the offset of a valid batch after damage from the expected next offset."""
_CRC_FROM: Final = 21
_MAGIC_AT: Final = 16
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_LEGACY_CRC_FROM: Final = 16
_LEGACY_LOOK_BYTES: Final = 18


class Soundness(Plain):
    """The result of a scan of a segment.

    Attributes:
        end: the position after the last valid batch.
        next_offset: the offset after it.
        problem: the reason why the scan ended before the limit, None when it did not.
        checked_from: the position of the first batch whose checksum was checked; `end` when there was none.
        start: the position where the scan began.
    """

    end: int
    next_offset: int
    problem: str | None
    checked_from: int
    start: int = 0


def examine(
    file: File,
    limit: int,
    *,
    next_offset: int,
    check_from_offset: int,
    before_offset: int | None,
    gaps_before: int,
    visit: Callable[[int, BatchHeader], None],
    progress: Callable[[int], None],
    start: int = 0,
) -> Soundness:
    """Check a segment's batches: the headers of all, the checksums of those that end at `check_from_offset` or later.

    Args:
        next_offset: the smallest offset that the first batch may have; it increases from batch to batch.
        before_offset: the next segment's base offset, which no batch may reach.
        gaps_before: offsets below it may be missing, also where checksums are checked (`missing_offsets.py`).
        visit: called for each valid batch.
        progress: called from time to time with the number of bytes that were checked since.
        start: the position of the batch to begin with; everything before it is valid.
    """
    end, checked_from, problem = start, -1, None
    window = _Window(file)
    reported = start
    try:
        for position, header in walk(window.pread, start, limit, SEQUENTIAL_CHUNK_BYTES):
            is_checked = header.last_offset >= check_from_offset
            placed = with_inner_offsets(file.pread, position, header) if is_checked else header
            allow_gap = placed.base_offset <= gaps_before or not is_checked
            problem = _order_problem(placed, next_offset, before_offset, allow_gap)
            if problem is None and is_checked and not checksum_matches(window, position, header):
                problem = "the checksum does not match"
            if problem is not None:
                problem = f"at position {position}: {problem}"
                break
            if is_checked and checked_from < 0:
                checked_from = position
            visit(position, header)
            end, next_offset = position + header.size_bytes, header.next_offset
            if end - reported >= SEQUENTIAL_CHUNK_BYTES:
                progress(end - reported)
                reported = end
    except CorruptBatch as error:
        problem = str(error)
    progress(end - reported)
    return Soundness(end, next_offset, problem, end if checked_from < 0 else checked_from, start)


class _Window:
    """Reads a file from its beginning to its end: a checksum reuses the bytes that the scan has read already."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._piece = memoryview(b"")
        self._position = 0

    def pread(self, length: int, position: int) -> memoryview:
        """As `File.pread`."""
        inside = position - self._position
        if inside >= 0 and inside + length <= len(self._piece):
            return self._piece[inside : inside + length]
        self._piece, self._position = memoryview(self._file.pread(length, position)), position
        return self._piece


class Readable(Protocol):
    """The part of a file that a checksum needs."""

    def pread(self, length: int, position: int) -> bytes | memoryview:
        """`length` bytes at `position`; fewer only at the end of the file."""


def _order_problem(header: BatchHeader, expected: int, before_offset: int | None, allow_gap: bool) -> str | None:
    if header.base_offset < expected:
        return f"a batch at offset {header.base_offset} where {expected} or more was expected"
    if header.base_offset > expected and not allow_gap:
        return f"a batch at offset {header.base_offset} where {expected} was expected"
    if before_offset is not None and header.last_offset >= before_offset:
        return f"a batch ends at offset {header.last_offset}, in the next segment's {before_offset}"
    return None


def checksum_matches(file: Readable, position: int, header: BatchHeader) -> bool:
    """Whether the checksum of the batch at `position` matches its bytes."""
    compute, crc_from = (crc32c, _CRC_FROM) if header.magic == MAGIC else (zlib.crc32, _LEGACY_CRC_FROM)
    at, end = position + crc_from, position + header.size_bytes
    crc = 0
    while at < end:
        piece = file.pread(min(SEQUENTIAL_CHUNK_BYTES, end - at), at)
        if not piece:
            return False
        crc = compute(piece, crc)
        at += len(piece)
    return crc == header.crc


def sound_batch_behind(file: File, position: int, limit: int, *, least_offset: int) -> int | None:
    """The position of the first valid batch that begins after `position`, at any byte; None when there is none before
    `limit`. Messages of old formats are searched for if the segment begins with one.
    """
    found = _sound_batch_behind(file, position, limit, least_offset)
    if is_legacy(file, 0, limit):
        return _sound_message_behind(file, position, limit if found is None else found, least_offset) or found
    return found


def _sound_batch_behind(file: File, position: int, limit: int, least_offset: int) -> int | None:
    at = position + 1
    while at + HEADER_BYTES <= limit:
        data = file.pread(min(SEQUENTIAL_CHUNK_BYTES, limit - at), at)
        magic = data.find(2, _MAGIC_AT)
        while 0 <= magic <= len(data) - (HEADER_BYTES - _MAGIC_AT):
            start = magic - _MAGIC_AT
            if _is_sound(file, data, start, at + start, limit, least_offset):
                return at + start
            magic = data.find(2, magic + 1)
        at += max(len(data) - HEADER_BYTES + 1, 1)
    return None


def _is_sound(file: File, data: bytes, start: int, position: int, limit: int, least_offset: int) -> bool:
    offset, length = _OFFSET_AND_LENGTH.unpack_from(data, start)
    if not least_offset <= offset < least_offset + MAX_OFFSET_SPAN or length < HEADER_BYTES - 12:
        return False
    if position + 12 + length > limit:
        return False
    try:
        _, header = next(walk(file.pread, position, limit, HEADER_BYTES))
    except CorruptBatch:
        return False
    return checksum_matches(file, position, header)


def _sound_message_behind(file: File, position: int, limit: int, least_offset: int) -> int | None:
    """As `sound_batch_behind`, for messages: candidates are found by a pattern of their first bytes, because the magic
    bytes 0 and 1 are everywhere.
    """
    patterns = {_message_pattern(least_offset >> 32), _message_pattern((least_offset >> 32) + 1)}
    at = position + 1
    while at + _LEGACY_LOOK_BYTES <= limit:
        data = file.pread(min(SEQUENTIAL_CHUNK_BYTES, limit - at), at)
        starts = sorted(match.start() for pattern in patterns for match in pattern.finditer(data))
        for start in starts:
            offset, _ = _OFFSET_AND_LENGTH.unpack_from(data, start)
            if least_offset <= offset < least_offset + MAX_OFFSET_SPAN and is_legacy(file, at + start, limit):
                return at + start
        at += max(len(data) - _LEGACY_LOOK_BYTES + 1, 1)
    return None


def _message_pattern(offset_high: int) -> re.Pattern[bytes]:
    """The pattern of a message with this upper half of its offset: size 14 or more, magic 0 or 1, attributes below 16.
    A lookahead, so that matches may overlap.
    """
    high = re.escape((offset_high & 0x7FFF_FFFF).to_bytes(4, "big"))
    return re.compile(b"(?s)(?=" + high + rb".{4}(?!\0\0\0[\0-\x0d])[\0-\x7f].{7}[\0\1][\0-\x0f])")


def is_legacy(file: File, position: int, limit: int) -> bool:
    """Whether a valid message of magic 0 or 1 is at `position`."""
    head = file.pread(min(_MAGIC_AT + 1, limit - position), position)
    if len(head) <= _MAGIC_AT or head[_MAGIC_AT] not in LEGACY_MAGICS:
        return False
    _, size = _OFFSET_AND_LENGTH.unpack_from(head)
    if size < SMALLEST_SIZE[head[_MAGIC_AT]] or position + 12 + size > limit:
        return False
    crc = int.from_bytes(file.pread(4, position + 12), "big")
    found = 0
    for at in range(position + _LEGACY_CRC_FROM, position + 12 + size, SEQUENTIAL_CHUNK_BYTES):
        found = zlib.crc32(file.pread(min(SEQUENTIAL_CHUNK_BYTES, position + 12 + size - at), at), found)
    return found == crc
