"""Fetched messages of formats v0 and v1 (Kafka before 0.11), rewritten as batches for the decoder.

A broker returns the bytes of its log, and a topic that is old enough, or that had `message.format.version` 0.10,
still has such messages. They are rare and slow to read: `ottla.protocol.records.legacy` reads them one by one, and
checks their CRC-32. Each becomes a separate batch with the same offsets, times, keys and values. A message of v0 has no
time; it gets the timestamp -1, as in Java's consumer.

Batches of format v2 around them are copied unchanged; a tail that was cut off is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ottla.protocol.records.batch import LENGTH_PREFIX_BYTES, encode_batch
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.legacy import (
    LEGACY_MAGICS,
    MAGIC_AT,
    decode_message,
    is_cut_short,
    parse_message_header,
)

if TYPE_CHECKING:
    import numpy.typing as npt


def is_old(data: memoryview, position: int) -> bool:
    """Whether the message or batch at `position`, whose magic is in `data`, is of format v0 or v1."""
    return data[position + MAGIC_AT] in LEGACY_MAGICS


def as_batches(data: memoryview, *, most_bytes: int, padding_bytes: int) -> tuple[npt.NDArray[np.uint8], int]:
    """Return the content of `data` with batches in place of old messages, and its size without the padding.

    `most_bytes` bounds the size of the whole result. Raises CorruptBatch, DecompressedTooLarge.
    """
    written = bytearray()
    position = 0
    while position + MAGIC_AT < len(data) and not is_cut_short(data, position):
        size = LENGTH_PREFIX_BYTES + int.from_bytes(
            data[position + 8 : position + LENGTH_PREFIX_BYTES], "big", signed=True
        )
        if is_old(data, position):
            header = parse_message_header(data, position)
            records = decode_message(data[position : position + size], max_decompressed_bytes=most_bytes)
            stamp = header.max_timestamp if header.is_log_append_time else None
            try:
                written += encode_batch(records, log_append_time_ms=stamp)
            except ValueError as wrong:
                raise CorruptBatch(f"messages inside a compressed one: {wrong}") from None
        elif size > MAGIC_AT:
            written += data[position : position + size]
        else:
            raise CorruptBatch(f"a batch with the impossible length {size - LENGTH_PREFIX_BYTES}")
        if len(written) > most_bytes:
            raise CorruptBatch(f"messages of an old format that expand to more than {most_bytes} bytes")
        position += size
    return np.frombuffer(written + bytes(padding_bytes), np.uint8), len(written)
