"""Single records inside a batch v2, after decompression.

A record is, with every number a zigzag varint (as in Protocol Buffers; 5 bytes at most for int32, 10 for int64):

    length · attributes int8 · timestamp delta · offset delta · key length · key · value length · value ·
    header count · per header: key length · key · value length · value

`length` counts what follows it; a length of -1 is null (not allowed for a header's key). Attributes are unused.
Worked example, key `k`, value `hi`, first of its batch: `12 00 00 00 02 6b 04 68 69 00`: 9 bytes follow, attributes 0,
both deltas 0, one byte of key, two of value, no headers.

The loops below are the client's hot path: they read the common one- and two-byte varints in place and call a function
only for longer ones. Nothing is checked twice: positions only grow, and a record must end exactly where its length
says.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.records.errors import CorruptBatch

T = TypeVar("T", bound=tuple[object, ...])
Headers = Sequence[tuple[str, bytes | None]]

SMALLEST_RECORD_BYTES = 7
"""A record without key, value and headers: seven one-byte fields."""


class Record(NamedTuple):
    """One record: `timestamp` in milliseconds since 1970, -1 when the producer gave none.

    Header keys are UTF-8; bytes that are not decode to lone surrogates (`surrogateescape`) and encode back unchanged.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


# Varints ------------------------------------------------------------------------------------------------------------


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a signed number of up to 64 bits."""
    return _ENCODED[value] if 0 <= value < _TABLED else _encode_varint(value)


def _encode_varint(value: int) -> bytes:
    return encode_unsigned_varint(value << 1 if value >= 0 else (-value << 1) - 1, _TEN_BYTES)


_TEN_BYTES = (1 << 70) - 1
"""The largest number that a varint of ten bytes can hold, which is what 64 bits take."""
_TABLED = 8192
_ENCODED = [bytes((raw,)) for raw in range(0, 0x80, 2)]
_ENCODED += [bytes((raw & 0x7F | 0x80, raw >> 7)) for raw in range(0x80, 2 * _TABLED, 2)]
"""The varint of every number that is not negative and takes one or two bytes."""

_MEANING = array("h", bytes(4 * _TABLED))
_MEANING[0::2] = array("h", range(_TABLED))
_MEANING[1::2] = array("h", range(-1, -_TABLED - 1, -1))
"""What the 14 bits of a varint of one or two bytes mean: 0, -1, 1, -2, ..."""


def decode_varint(data: bytes | memoryview, position: int, *, max_bits: int = 32) -> tuple[int, int]:
    """Return (number, position behind it) of the zigzag varint at `position`.

    Raises CorruptBatch when it is cut short, longer than `max_bits` (32 or 64) needs, or outside that range.
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
    """Return one record's bytes, with its length in front. The deltas are against the batch's base values."""
    table = _ENCODED
    half = _TABLED
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


# Decoding -----------------------------------------------------------------------------------------------------------


def decode_records(  # noqa: PLR0915  # one loop in one place: a call per field would cost more than the field
    record_type: type[T],
    front: tuple[object, ...],
    data: bytes,
    count: int,
    *,
    base_offset: int,
    base_timestamp: int,
    last_offset_delta: int,
    log_append_time_ms: int | None = None,
) -> list[T]:
    """Return the `count` records that fill `data` exactly, as named tuples of `front` and the fields of `Record`.

    `log_append_time_ms`, when not None, is the timestamp of them all. Raises CorruptBatch for anything else than sound
    records whose offset deltas grow and end at `last_offset_delta` at most.
    """
    if count * SMALLEST_RECORD_BYTES > len(data):
        raise CorruptBatch(f"{count} records cannot fit in {len(data)} bytes")
    records: list[T] = []
    append = records.append
    new = tuple.__new__
    meaning = _MEANING
    position = 0
    last_delta = -1
    try:
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                position += 1
                length = meaning[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                length = meaning[byte & 0x7F | second << 7]
            else:
                length, position = decode_varint(data, position)
            end = position + length

            position += 1  # the attributes
            byte = data[position]
            if byte < 0x80:
                position += 1
                timestamp = base_timestamp + meaning[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                timestamp = base_timestamp + meaning[byte & 0x7F | second << 7]
            else:
                time_delta, position = decode_varint(data, position, max_bits=64)
                timestamp = base_timestamp + time_delta

            byte = data[position]
            if byte < 0x80:
                position += 1
                delta = meaning[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                delta = meaning[byte & 0x7F | second << 7]
            else:
                delta, position = decode_varint(data, position)
            if delta <= last_delta:
                raise CorruptBatch(f"an offset delta of {delta} follows {last_delta}")
            last_delta = delta

            byte = data[position]
            if byte < 0x80:
                position += 1
                length = meaning[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                length = meaning[byte & 0x7F | second << 7]
            else:
                length, position = decode_varint(data, position)
            if length >= 0:
                key = data[position : position + length]
                position += length
            elif length == -1:
                key = None
            else:
                raise CorruptBatch(f"a key of {length} bytes")

            byte = data[position]
            if byte < 0x80:
                position += 1
                length = meaning[byte]
            elif (second := data[position + 1]) < 0x80:
                position += 2
                length = meaning[byte & 0x7F | second << 7]
            else:
                length, position = decode_varint(data, position)
            if length >= 0:
                value = data[position : position + length]
                position += length
            elif length == -1:
                value = None
            else:
                raise CorruptBatch(f"a value of {length} bytes")

            if data[position] == 0:
                position += 1
                headers: tuple[tuple[str, bytes | None], ...] = ()
            else:
                headers, position = _decode_headers(data, position)
            if position != end:
                raise CorruptBatch(f"a record ends at byte {position} and its length says {end}")
            if log_append_time_ms is not None:
                timestamp = log_append_time_ms
            append(new(record_type, front + (base_offset + delta, timestamp, key, value, headers)))  # noqa: RUF005  # half the time of unpacking
    except IndexError:
        raise CorruptBatch(f"record {len(records)} of {count} is cut short") from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last of {count} records")
    if last_delta > last_offset_delta:
        raise CorruptBatch(f"an offset delta of {last_delta} in a batch whose last is {last_offset_delta}")
    return records


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
