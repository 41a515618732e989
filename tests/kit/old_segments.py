"""Segments as Kafka before 0.11 left them: messages of formats v0 and v1, packed by kafka-python's own code.

A broker of that time patched offsets into what producers sent: in v0 of every message inside a compressed one, in v1 of
the outer one alone.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafka.record.legacy_records import LegacyRecordBatchBuilder

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

STAMP_MS = 1_600_000_000_000
MIXED_COUNT = 60


class OldSegment(NamedTuple):
    """Bytes of a `.log`, and the records in it."""

    data: bytes
    records: list[Record]


def old_messages(
    first_offset: int, count: int, magic: int, codec: Compression = Compression.NONE, *, stamp_ms: int = STAMP_MS
) -> OldSegment:
    """`count` records from `first_offset` on; one compressed message where a codec is given."""
    is_relative = magic == 1 and codec is not Compression.NONE
    builder = LegacyRecordBatchBuilder(magic, int(codec), 1 << 24)
    records = []
    for number in range(count):
        offset = first_offset + number
        record = Record(offset, stamp_ms + offset if magic else -1, b"key %d" % (offset % 7), b"value %d" % offset * 3)
        builder.append(number if is_relative else offset, stamp_ms + offset, record.key, record.value)
        records.append(record)
    data = bytearray(builder.build())
    if codec is not Compression.NONE:
        struct.pack_into(">q", data, 0, first_offset + count - 1)
        if magic == 1:
            _stamp(data, stamp_ms + first_offset + count - 1)
    return OldSegment(bytes(data), records)


def _stamp(message: bytearray, timestamp_ms: int) -> None:
    """The broker's hand: the outer timestamp is the newest inside. kafka-python leaves 0 there."""
    from kafka.record.util import calc_crc32

    struct.pack_into(">q", message, 18, timestamp_ms)
    struct.pack_into(">I", message, 12, calc_crc32(memoryview(message)[16:]))


def new_batch(first_offset: int, count: int, *, stamp_ms: int = STAMP_MS) -> OldSegment:
    """The same in a batch of format v2, as a broker of today appends it."""
    records = [
        Record(first_offset + number, stamp_ms + first_offset + number, b"key", b"value %d" % (first_offset + number))
        for number in range(count)
    ]
    return OldSegment(bytes(encode_batch(records, base_offset=first_offset)), records)


def mixed_segment(first_offset: int = 0) -> OldSegment:
    """`MIXED_COUNT` records of all formats and codecs, the way a log looks that has lived through all of them."""
    pieces = []
    offset = first_offset
    for magic in (0, 1):
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            pieces.append(old_messages(offset, 6, magic, codec))
            offset += 6
    for _ in range(2):
        pieces.append(new_batch(offset, 6))
        offset += 6
    return OldSegment(b"".join(piece.data for piece in pieces), [one for piece in pieces for one in piece.records])
