"""Single records inside a batch v2, after decompression.

The layout of a record. Every number is a zigzag varint (as in Protocol Buffers; 5 bytes at most for int32, 10 for
int64):

    length · attributes int8 · timestamp delta · offset delta · key length · key · value length · value ·
    header count · per header: key length · key · value length · value

`length` counts what follows it; a length of -1 is null (not allowed for a header's key). Attributes are unused.
Worked example, key `k`, value `hi`, first of its batch: `12 00 00 00 02 6b 04 68 69 00`: 9 bytes follow, attributes 0,
both deltas 0, one byte of key, two of value, no headers.

The loops below are the client's hot path: they read the common one- and two-byte varints inline and call a function
only for longer ones. Nothing is checked twice: positions only grow, and a record must end exactly at its length.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.records.errors import CorruptBatch

Headers = Sequence[tuple[str, bytes | None]]

SMALLEST_RECORD_BYTES = 7
"""A record without key, value and headers: seven one-byte fields."""


class Record(NamedTuple):
    """One record: `timestamp` in milliseconds since 1970, -1 when the producer set none.

    Header keys are UTF-8; invalid bytes decode to lone surrogates (`surrogateescape`) and encode back unchanged.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# Varints ------------------------------------------------------------------------------------------------------------


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a signed number of up to 64 bits."""
    return _ENCODED[value] if 0 <= value < len(_ENCODED) else _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    if 0 <= value < _TABLED and next(_not_in_table) == _PATIENCE:
        _ENCODED[:] = _varints(_TABLED)
    return encode_unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1, _TEN_BYTES)


def _varints(count: int) -> list[bytes]:
    encoded = [bytes((raw,)) for raw in range(0, min(0x80, 2 * count), 2)]
    return encoded + [bytes((raw & 0x7F | 0x80, raw >> 7)) for raw in range(0x80, 2 * count, 2)]


_TEN_BYTES = (1 << 70) - 1
"""The largest number that fits a varint of ten bytes, which 64 bits need."""
_TABLED = 8192
"""Numbers below this take one or two bytes."""
_ENCODED = _varints(64)
"""The varints of the smallest non-negative numbers: those of one byte at first, and all of two bytes once enough have
been encoded to justify the whole table (1 ms, 0.4 MB). A broker encodes few records.
"""
_PATIENCE = 1_000
_not_in_table = itertools.count(1)

_NEGATIVE = -(1 << 40)
HALF = [number for half in range(64) for number in (half, ~half)]
HALF += [number for half in range(64) for number in (half, _NEGATIVE)]
"""For each first byte of a varint, the number if it is the only byte. For two bytes, the entry plus 64 times the second
byte is the number if that is not negative, and otherwise a number below half of `_NEGATIVE`."""


def decode_varint(data: bytes | memoryview, position: int, *, max_bits: int = 32) -> tuple[int, int]:
    """Return (number, position after it) of the zigzag varint at `position`.

    Raises CorruptBatch when it is truncated, longer than `max_bits` (32 or 64) needs, or outside that range.
    """
    raw = 0
    shift = 0
    while True:
        if position >= len(data):
            raise CorruptBatch("a varint is cut short")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= max_bits:
            raise CorruptBatch(f"a varint of more than {max_bits} bits")
    if raw >> max_bits:
        raise CorruptBatch(f"a varint of more than {max_bits} bits")
    return (raw >> 1) ^ -(raw & 1), position


# Encoding -----------------------------------------------------------------------------------------------------------


def encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers = ()
) -> bytes:
    """Return the bytes of one record, preceded by its length. The deltas are relative to the batch's base values."""
    table = _ENCODED
    half = len(table)
    time = table[timestamp_delta] if 0 <= timestamp_delta < half else _encode_varint(timestamp_delta)
    place = table[offset_delta] if offset_delta < half else _encode_varint(offset_delta)
    if key is None:
        key_length, key = b"\x01", b""
    else:
        size = len(key)
        key_length = table[size] if size < half else _encode_varint(size)
    if value is None:
        value_length, value = b"\x01", b""
    else:
        size = len(value)
        value_length = table[size] if size < half else _encode_varint(size)
    body = b"".join(
        (b"\x00", time, place, key_length, key, value_length, value, encode_headers(headers) if headers else b"\x00")
    )
    size = len(body)
    return (table[size] if size < half else _encode_varint(size)) + body


def encode_headers(headers: Headers) -> bytes:
    """Return the header count and the headers of a record."""
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (encode_varint(len(encoded)), encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            parts += (encode_varint(len(value)), value)
    return b"".join(parts)


# Plain records ------------------------------------------------------------------------------------------------------

_PLAIN = b"\0\0\0\1"
"""The attributes, both deltas and the length of the key, of a plain record."""


def encode_plain_record(value: bytes) -> bytes:
    """Return a plain record: the first of its batch, with a value and without key and headers; its deltas are 0."""
    rest = b"%b%b%b\0" % (_PLAIN, _length(len(value)), value)
    return _length(len(rest)) + rest


def value_of_plain_record(data: bytes) -> bytes | None:
    """Return the value if `data` is exactly what `encode_plain_record` returns for it, else None."""
    front = _front_of_plain_record(len(data))
    return data[len(front) : -1] if front and data.startswith(front) and not data[-1] else None


@lru_cache(1024)
def _front_of_plain_record(size_bytes: int) -> bytes:
    """Return what precedes the value in a plain record of this size; empty if none has it."""
    for length_bytes in range(1, 6):
        length = encode_varint(size_bytes - length_bytes)
        for value_length_bytes in range(1, 6):
            value_bytes = size_bytes - length_bytes - len(_PLAIN) - value_length_bytes - 1
            value_length = encode_varint(value_bytes)
            if value_bytes >= 0 and (len(length), len(value_length)) == (length_bytes, value_length_bytes):
                return length + _PLAIN + value_length
    return b""


_length = lru_cache(1024)(encode_varint)

# Decoding -----------------------------------------------------------------------------------------------------------


def decode_records(  # noqa: PLR0915  # one loop in one place: a call per field would cost more than the field
    data: bytes,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    last_offset_delta: int,
    log_append_time_ms: int | None = None,
    partition: tuple[str, int] | None = None,
) -> list[tuple[Any, ...]]:
    """Return the `count` records that fill `data` exactly, each as a plain tuple of the fields of `Record`.

    With `partition`, its topic and number are the first two fields of each. `log_append_time_ms`, if not None, is the
    timestamp of all. Raises CorruptBatch unless the records are valid, and their offset deltas increase and do not
    exceed `last_offset_delta`.
    """
    if count * SMALLEST_RECORD_BYTES > len(data):
        raise CorruptBatch(f"{count} records cannot fit in {len(data)} bytes")
    topic, number = partition or (None, None)
    records: list[tuple[Any, ...]] = []
    append = records.append
    half = HALF
    none: tuple[tuple[str, bytes | None], ...] = ()
    position = 0
    last_offset = base_offset - 1
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 2  # the attributes, too
                end = position - 1 + half[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 3
                end = position - 1 + half[byte] + (second << 6)
            else:
                length, position = decode_varint(data, position)
                end = position + length
                position += 1

            byte = data[position]
            if byte < 0x80:
                position += 1
                timestamp = base_timestamp + half[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                raw = byte & 0x7F | second << 7
                timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1))
            else:
                time_delta, position = decode_varint(data, position, max_bits=64)
                timestamp = base_timestamp + time_delta

            byte = data[position]
            if byte < 0x80:
                position += 1
                offset = base_offset + half[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                offset = base_offset + half[byte] + (second << 6)
            else:
                delta, position = decode_varint(data, position)
                offset = base_offset + delta
            if offset <= last_offset:
                raise CorruptBatch(f"an offset delta that does not grow, in record {len(records)}")
            last_offset = offset

            byte = data[position]
            if byte == _NULL:
                position += 1
                key = None
            else:
                if byte < 0x80:
                    position += 1
                    length = half[byte]
                elif (second := data[position + 1]) < 0x80:
                    position += 2
                    length = half[byte] + (second << 6)
                else:
                    length, position = decode_varint(data, position)
                if length >= 0:
                    key = data[position : position + length]
                    position += length
                else:
                    _check_null(length, data, position)
                    key = None

            byte = data[position]
            if byte < 0x80:
                position += 1
                length = half[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                length = half[byte] + (second << 6)
            else:
                length, position = decode_varint(data, position)
            if length >= 0:
                value = data[position : position + length]
                position += length
            else:
                _check_null(length, data, position)
                value = None

            if data[position] == 0:
                position += 1
                headers = none
            else:
                headers, position = _decode_headers(data, position)
            if position != end:
                raise CorruptBatch(f"record {len(records)} does not end where its length says")
            if log_append_time_ms is not None:
                timestamp = log_append_time_ms
            if topic is not None:
                append((topic, number, offset, timestamp, key, value, headers))
            else:
                append((offset, timestamp, key, value, headers))
    except IndexError:
        raise CorruptBatch(f"record {len(records)} of {count} is cut short") from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last of {count} records")
    if last_offset > base_offset + last_offset_delta:
        raise CorruptBatch(
            f"an offset delta of {last_offset - base_offset} in a batch whose last is {last_offset_delta}"
        )
    return records


_NULL = 1
"""The varint of -1, the length of a null."""


def _check_null(length: int, data: bytes, position: int) -> None:
    """Raise CorruptBatch for a length below 0 other than -1. `position` is the one after it."""
    if length < _NEGATIVE // 2:
        length, _ = decode_varint(data, position - 2)
    if length != -1:
        raise CorruptBatch(f"a key or a value of {length} bytes")


def _decode_headers(data: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(data, position)
    if count < 0 or count * 2 > len(data) - position:
        raise CorruptBatch(f"{count} headers where {len(data) - position} bytes remain")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = decode_varint(data, position)
        if length < 0:
            raise CorruptBatch(f"a header's key of {length} bytes")
        name = data[position : position + length].decode("utf-8", "surrogateescape")
        position += length
        length, position = decode_varint(data, position)
        if length < -1:
            raise CorruptBatch(f"a header's value of {length} bytes")
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[position : position + length]))
            position += length
    return tuple(headers), position
