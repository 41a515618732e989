"""One interface to batches of every message format: a log may have v0, v1 (messages) or v2 (batches).

A message appears as a batch of one record (`legacy.parse_message_header`). A compressed message has only its last
offset, until `header_of_whole` reads its content. Callers that accept one format only use `batch` or `legacy` directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    crc_matches,
    decode_batch,
    parse_header,
)
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.legacy import (
    MAGIC_AT,
    MAX_HEADER_BYTES,
    MIN_HEADER_BYTES,
    decode_message,
    is_cut_short,
    look_inside,
    message_crc_matches,
    parse_message_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.protocol.records.record import Record
    from ottla.protocol.types import Buffer

HEADER_BYTES_BY_MAGIC: Final = (MIN_HEADER_BYTES, MAX_HEADER_BYTES, HEADER_BYTES)
"""The size of a header, by magic."""


def parse_any_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch or message that begins at `position`. Raises CorruptBatch."""
    if position + MAGIC_AT < len(buffer) and buffer[position + MAGIC_AT] < MAGIC:
        return parse_message_header(buffer, position)
    return parse_header(buffer, position)


def any_crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Whether the checksum matches the bytes. The view may continue after the batch."""
    return crc_matches(batch, header) if header.magic == MAGIC else message_crc_matches(batch, header)


def decode_any(
    batch: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, check_crc: bool = True
) -> list[Record]:
    """The records of a batch or message. Raises CorruptBatch when a part of it is invalid."""
    if len(batch) > MAGIC_AT and batch[MAGIC_AT] < MAGIC:
        return decode_message(batch, max_decompressed_bytes=max_decompressed_bytes, check_crc=check_crc)
    return decode_batch(batch, max_decompressed_bytes=max_decompressed_bytes, check_crc=check_crc)


def hides_offsets(header: BatchHeader) -> bool:
    """Whether this is a compressed message: only its last offset and its largest timestamp are known."""
    return header.magic < MAGIC and header.codec != Compression.NONE


def header_of_whole(
    batch: Buffer, header: BatchHeader, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> BatchHeader:
    """The header, for a compressed message with the offsets, count and first timestamp of its content. Raises
    CorruptBatch.
    """
    if not hides_offsets(header):
        return header
    return look_inside(batch, header, max_decompressed_bytes)


def iter_any(buffer: Buffer, *, allow_partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch or message of a buffer that begins with one.

    Raises CorruptBatch at an impossible header, and at a truncated batch unless `allow_partial_tail`.
    """
    view = memoryview(buffer)
    size_bytes = len(view)
    position = 0
    while position < size_bytes:
        if allow_partial_tail and is_cut_short(view, position):
            return
        header = parse_any_header(view, position)
        end = position + header[1] + LENGTH_PREFIX_BYTES
        if end > size_bytes:
            remain = size_bytes - position
            raise CorruptBatch(f"the batch at byte {position} has {header.size_bytes} bytes and {remain} remain")
        yield position, header
        position = end
