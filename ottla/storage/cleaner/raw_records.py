"""Records of a batch as ranges of its bytes, for the cleaner: it keeps or drops them without decoding them.

A kept record is copied unchanged, unless the batch's base timestamp changes: then the record's timestamp delta is
rewritten. The layout of a record is in `ottla.protocol.records.record`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import decode_varint, encode_varint


class RawRecord(NamedTuple):
    """`data[start:end]` is the record, its timestamp delta ends before `after_timestamp`."""

    start: int
    end: int
    after_timestamp: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def raw_records(data: bytes, count: int) -> Iterator[RawRecord]:
    """The `count` records that `data` must contain, one after the other. After a CorruptBatch none of them is valid."""
    new = tuple.__new__
    position = 0
    try:
        for number in range(count):
            start = position
            byte = data[position]
            if byte < 0x80 and not byte & 1:
                length, position = byte >> 1, position + 1
            else:
                length, position = decode_varint(data, position)
            end = position + length
            position += 1  # attributes
            byte = data[position]
            if byte < 0x80:
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = decode_varint(data, position, max_bits=64)
            after_timestamp = position
            byte = data[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = decode_varint(data, position)
            byte = data[position]
            if byte < 0x80:
                size, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                size, position = decode_varint(data, position)
            if size >= 0:
                key: bytes | None = data[position : position + size]
                position += size
            else:
                key = None
            byte = data[position]
            size = (byte >> 1) ^ -(byte & 1) if byte < 0x80 else decode_varint(data, position)[0]
            if length < 0 or position >= end or end > len(data):
                raise CorruptBatch(f"record {number} of {count} does not end where its length says")
            yield new(RawRecord, (start, end, after_timestamp, delta, offset_delta, key, size >= 0))
            position = end
    except IndexError:
        raise CorruptBatch(f"the records end inside of record {number} of {count}") from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last of {count} records")


def with_timestamp_delta(data: bytes, record: RawRecord, delta: int) -> bytes:
    """The record's bytes with another timestamp delta."""
    # The byte of attributes is between the length and the timestamp delta, which may both change their width.
    _, attributes_at = decode_varint(data, record.start)
    body = data[attributes_at : attributes_at + 1] + encode_varint(delta) + data[record.after_timestamp : record.end]
    return encode_varint(len(body)) + body
