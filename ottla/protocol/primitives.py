"""Small functions that the generated codecs call: varints, tag sections, ids, and the errors for bad lengths.

The compiler inlines the common steps; these functions are rare, or fast enough as a call. Readers take the position of
the next byte and the end of the frame. They raise MalformedMessage, or IndexError for a byte beyond the data, which
`message.decode_prefix` turns into MalformedMessage.
"""

from __future__ import annotations

from functools import lru_cache
from uuid import UUID

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.types import Buffer

MAX_VARINT_BYTES = 5
"""An unsigned varint is a 32-bit number in groups of seven bits, so at most five bytes."""

SMALL_VARINTS: tuple[bytes, ...] = tuple(bytes([number]) for number in range(128))
"""The varints of one byte, by their value."""


def encode_unsigned_varint(number: int, most: int = 0xFFFF_FFFF) -> bytes:
    """Seven bits a byte, the lowest first, the high bit set on all but the last byte (KIP-482).

    Raises UnencodableMessage for a number below 0 or above `most`.
    """
    if 0 <= number < len(SMALL_VARINTS) and number <= most:
        return SMALL_VARINTS[number]
    if number < 0 or number > most:
        raise UnencodableMessage(f"{number} is not an unsigned number of {most.bit_length()} bits")
    if number < 0x4000:
        return bytes((number & 127 | 128, number >> 7))  # as nearly all lengths of records, at a third of the steps
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def decode_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint; returns it and the position after it."""
    first = data[position]
    return (first, position + 1) if first < 128 else varint_tail(data, position + 1, first)


def varint_tail(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Continue after a first byte above 127; returns the number and the position after it."""
    number = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number > 0xFFFF_FFFF:
                raise MalformedMessage(f"a varint of {number} does not fit 32 bits")
            return number, position
    raise MalformedMessage(f"a varint is longer than {MAX_VARINT_BYTES} bytes")


def skip_tags(data: Buffer, position: int, end: int, first: int) -> int:
    """Skip a section of tagged fields that this version does not know; returns the position after it.

    `first` is the first byte of the number of tags, `position` that of the byte after it. Raises MalformedMessage if
    a tag reaches beyond `end`.
    """
    count, position = (first, position) if first < 128 else varint_tail(data, position, first)
    check_tag_count(count, end - position)
    for _ in range(count):
        _, position = decode_unsigned_varint(data, position)
        size, position = decode_unsigned_varint(data, position)
        position += size
        if position > end:
            raise MalformedMessage(f"a tagged field of {size} bytes reaches {position - end} bytes beyond the message")
    return position


def check_tag_count(count: int, remaining_bytes: int) -> None:
    """Refuse more tags than can follow: each takes two bytes at least."""
    if count * 2 > remaining_bytes:
        raise MalformedMessage(f"{count} tagged fields cannot fit in {remaining_bytes} bytes")


@lru_cache(maxsize=4096)
def uuid_from_bytes(data: bytes) -> UUID:
    """The id of sixteen bytes. Cached: creating a UUID takes longer than everything else in a small fetch."""
    return UUID(bytes=data)


def bad_length(field: str, length_bytes: int, remaining_bytes: int) -> MalformedMessage:
    """The error for a string, bytes or records that must not be null, are too long, or do not fit."""
    if length_bytes < 0:
        return MalformedMessage(f"{field} is null or has a negative length ({length_bytes})")
    return MalformedMessage(f"{field} of {length_bytes} bytes is too long, with {remaining_bytes} bytes left")


def bad_count(field: str, count: int, remaining_bytes: int) -> MalformedMessage:
    """The error for an array that must not be null, does not fit, or has too many elements."""
    if count < 0:
        return MalformedMessage(f"{field} is null or has a negative count ({count})")
    return MalformedMessage(f"{field} of {count} elements is too long, with {remaining_bytes} bytes left")


def bad_tag(tag: int, size_bytes: int) -> MalformedMessage:
    """The error for a tagged field with a wrong size, or that reaches beyond the message."""
    return MalformedMessage(f"tagged field {tag} is not {size_bytes} bytes long")


def too_long(field: str, length_bytes: int) -> UnencodableMessage:
    """The error for a string that is longer than the protocol allows."""
    return UnencodableMessage(f"{field} has {length_bytes} bytes in UTF-8, above the protocol's limit")


def not_in_version(field: str, version: int) -> UnencodableMessage:
    """The error for a field that is set, must not be dropped, and does not exist in the version to be written."""
    return UnencodableMessage(f"{field} is set, but version {version} has no such field")
