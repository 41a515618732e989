"""A summary of a batch's records, made without decoding them: their times, and whether all have keys.

For a broker, which has to check each record of a batch but needs none of them. `summarize_records` reads the same
fields as `decode_records` (`record.py` has the layout) but creates no objects, which takes half the time. It returns
what decoding would have found. It returns None for invalid records, and for valid ones that no producer writes (offset
deltas other than 0, 1, 2, ...): the caller then decodes them, and gets the error.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import HALF, SMALLEST_RECORD_BYTES, decode_varint

MOST_RECORDS: Final = 1 << 20
"""The first offset delta of four bytes. A batch with such deltas is decoded."""
_NULL: Final = 1
"""The varint of -1, the length of a null."""


class RecordsSummary(NamedTuple):
    """The facts about a batch's records that a broker needs. The deltas are relative to the base timestamp."""

    oldest_delta_ms: int
    newest_delta_ms: int
    has_all_keys: bool


def summarize_records(data: bytes, count: int) -> RecordsSummary | None:
    """The summary of the `count` records that fill `data` exactly; None if the caller has to decode them."""
    if not 0 < count <= MOST_RECORDS or count * SMALLEST_RECORD_BYTES > len(data):
        return None
    try:
        return _summarize(data, count)
    except (IndexError, CorruptBatch):
        return None


def _summarize(data: bytes, count: int) -> RecordsSummary | None:  # noqa: PLR0915  # one loop, as `decode_records`
    half = HALF
    position = 0
    oldest, newest = 1 << 63, -1 << 63
    has_all_keys = True
    for number in range(count):
        byte = data[position]  # the length
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

        byte = data[position]  # the timestamp delta
        if byte < 0x80:
            position += 1
            delta = half[byte]
        elif (second := data[position + 1]) < 0x80:
            position += 2
            byte = byte & 0x7F | second << 7
            delta = byte >> 1 ^ -(byte & 1)
        elif (third := data[position + 2]) < 0x80:
            position += 3
            byte = byte & 0x7F | (second & 0x7F) << 7 | third << 14
            delta = byte >> 1 ^ -(byte & 1)
        else:
            delta, position = decode_varint(data, position, max_bits=64)
        if delta > newest:  # noqa: PLR1730  (a call for each record is a tenth of the time)
            newest = delta
        if delta < oldest:  # noqa: PLR1730  (as above)
            oldest = delta

        byte = data[position]  # the offset delta
        if byte < 0x80:
            position += 1
        elif (second := data[position + 1]) < 0x80:
            position += 2
            byte = byte & 0x7F | second << 7
        else:  # a third byte that is not the last makes this larger than that of any record
            byte = byte & 0x7F | (second & 0x7F) << 7 | data[position + 2] << 14
            position += 3
        if byte != number << 1:
            return None

        byte = data[position]  # the length of the key
        if byte & 1:
            if byte != _NULL:
                return None
            has_all_keys = False
            position += 1
        elif byte < 0x80:
            position += 1 + half[byte]
        elif (second := data[position + 1]) < 0x80:
            position += 2 + half[byte] + (second << 6)
        else:
            length, position = decode_varint(data, position)
            position += length

        byte = data[position]  # the length of the value
        if byte & 1:
            if byte != _NULL:
                return None
            position += 1
        elif byte < 0x80:
            position += 1 + half[byte]
        elif (second := data[position + 1]) < 0x80:
            position += 2 + half[byte] + (second << 6)
        else:
            length, position = decode_varint(data, position)
            position += length

        if data[position] == 0:
            position += 1
        else:
            position = _skip_headers(data, position)
        if position != end:
            return None
    return RecordsSummary(oldest, newest, has_all_keys) if position == len(data) else None


def _skip_headers(data: bytes, position: int) -> int:
    """The position after the headers whose count is at `position`."""
    half = HALF
    count, position = decode_varint(data, position)
    if count < 0:
        raise CorruptBatch(f"{count} headers")
    for _ in range(count):
        byte = data[position]
        if byte & 1:
            raise CorruptBatch("a header's key of less than 0 bytes")
        if byte < 0x80:
            position += 1 + half[byte]
        else:
            length, position = decode_varint(data, position)
            position += length
        byte = data[position]
        if byte & 1:
            if byte != _NULL:
                raise CorruptBatch("a header's value of less than 0 bytes")
            position += 1
        elif byte < 0x80:
            position += 1 + half[byte]
        else:
            length, position = decode_varint(data, position)
            position += length
    return position
