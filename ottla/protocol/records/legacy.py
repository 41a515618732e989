"""Messages of formats v0 and v1 (magic 0 and 1), which Kafka wrote before 0.11: parse, check, decode, encode.

Byte layout, big-endian; a message set is a sequence of messages, and nothing else:

     0  offset int64         of the message; of the last one inside for a compressed message
     8  size int32           bytes that follow this field
    12  crc uint32           CRC-32 (zlib's) of everything from byte 16 to the end
    16  magic int8           0 or 1
    17  attributes int8      bits 0-2 codec (0 none, 1 gzip, 2 snappy, 3 lz4), bit 3 log append time (v1)
    18  timestamp int64      v1 only; in ms, -1 for none
    18 or 26  key length int32 (-1: null) · key · value length int32 (-1: null) · value

Worked example, v1, offset 0, no key, value `hi`:
`00*8 00000018 <crc> 01 00 <timestamp 8> ffffffff 00000002 6869`: 24 bytes follow the size.

The value of a *compressed* message is a message set. In v0 the messages inside have absolute offsets. In v1 their
offsets count from 0, gaps included, and the last one corresponds to the outer offset. With log append time the outer
timestamp applies to all of them. A compressed message inside a compressed message is refused, as in Kafka. Storage
treats a message as a batch: `parse_message_header` returns a `BatchHeader`, with defaults for missing fields.

Sources: Kafka's LegacyRecord and AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import (
    COMPRESSION_MASK,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
)
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge
from ottla.protocol.records.legacy_compression import compress_messages, decompress_messages
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.types import Buffer

NO_TIMESTAMP: Final = -1
MAGIC_AT: Final = 16
LEGACY_MAGICS: Final = (0, 1)
MIN_HEADER_BYTES: Final = 18
"""The bytes that `parse_message_header` needs for v0; for v1 it needs `MAX_HEADER_BYTES`."""
MAX_HEADER_BYTES: Final = 26
SMALLEST_SIZE: Final = (14, 22)
"""The smallest `size`, by magic: of a message with neither key nor value."""

_CRC_FROM: Final = 16
_HEADER_V0: Final = struct.Struct(">qiIbB")
_HEADER_V1: Final = struct.Struct(">qiIbBq")
_FRONT: Final = struct.Struct(">qi")
_INT32: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES_MASK: Final = (COMPRESSION_MASK, COMPRESSION_MASK | LOG_APPEND_TIME_BIT)


class WrongChecksum(CorruptBatch):
    """The checksum of a message does not match its bytes."""


# Reading ------------------------------------------------------------------------------------------------------------


def parse_message_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the message at `position`, as that of a batch; the rest of the message may be missing.

    `base_offset` is the outer offset and the record count 1, for a compressed message too: only `decode_message` knows
    its content. Attributes are reduced to the bits that the format has.

    Raises CorruptBatch when the header is cut short, magic is neither 0 nor 1, or the size is impossible.
    """
    try:
        offset, size, crc, magic, attributes = _HEADER_V0.unpack_from(buffer, position)
        if magic not in LEGACY_MAGICS:
            raise CorruptBatch(f"the message has magic {magic}, not 0 or 1")
        timestamp = _HEADER_V1.unpack_from(buffer, position)[5] if magic else NO_TIMESTAMP
    except struct.error:
        raise CorruptBatch("fewer bytes than a message's header has") from None
    if size < SMALLEST_SIZE[magic]:
        raise CorruptBatch(f"the message has a size of {size}, less than the smallest of format v{magic}")
    attributes &= _ATTRIBUTES_MASK[magic]
    # As a plain tuple, in the order of the fields: with keyword arguments it takes three times as long.
    return tuple.__new__(
        BatchHeader, (offset, size, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1)
    )


def message_crc(message: Buffer) -> int:
    """Compute the checksum of a message. `message` is the whole message and nothing more."""
    return zlib.crc32(memoryview(message)[_CRC_FROM:])


def message_crc_matches(message: Buffer, header: BatchHeader) -> bool:
    """Whether the checksum matches the bytes. The view may continue after the message."""
    return zlib.crc32(memoryview(message)[_CRC_FROM : header.size_bytes]) == header.crc


def iter_messages(buffer: Buffer, *, allow_partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each outer message of a message set.

    Raises CorruptBatch at an impossible header, and at a message that is truncated by the end of the buffer. With
    `allow_partial_tail` the iteration ends there instead (a Fetch response may be truncated so).
    """
    view = memoryview(buffer)
    position = 0
    while position < len(view):
        remain = len(view) - position
        if allow_partial_tail and is_cut_short(view, position):
            return
        header = parse_message_header(view, position)
        if header.size_bytes > remain:
            raise CorruptBatch(f"the message at byte {position} has {header.size_bytes} bytes and {remain} remain")
        yield position, header
        position += header.size_bytes


def is_cut_short(view: memoryview, position: int) -> bool:
    """Whether the message or batch at `position` is incomplete, by its size field or because that is missing."""
    remain = len(view) - position - LENGTH_PREFIX_BYTES
    return remain < 0 or _INT32.unpack_from(view, position + 8)[0] > remain


def decode_message(
    message: Buffer,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    max_messages: int | None = None,
    check_crc: bool = True,
    is_from_producer: bool = False,
) -> list[Record]:
    """The records of one outer message: itself, or those inside if it is compressed. The view may continue after it.

    `is_from_producer` checks more, since the message is going to be stored: every inner message must have a correct
    checksum and the outer one's magic, and be complete. Messages on a disk were checked by the Kafka that stored them.

    Raises:
        WrongChecksum: of the outer message (unless `check_crc` is False) or of one inside.
        DecompressedTooLarge: more than `max_decompressed_bytes`, or more than `max_messages`, are inside.
        CorruptBatch: any other damage, a codec that the formats do not have, or nested compression.
    """
    view = memoryview(message)
    header = parse_message_header(view)
    if header.size_bytes > len(view):
        raise CorruptBatch(f"the message has {header.size_bytes} bytes and {len(view)} are there")
    if check_crc and not message_crc_matches(view, header):
        raise WrongChecksum("the message's checksum does not match its bytes")
    view = view[: header.size_bytes]
    if header.codec == Compression.NONE:
        return [Record(header.base_offset, header.max_timestamp, *key_and_value(view, header.magic))]
    _, wrapped = key_and_value(view, header.magic)
    if wrapped is None:
        raise CorruptBatch("a compressed message without a value")
    inside = decompress_messages(header.compression, wrapped, header.magic, max_decompressed_bytes)
    records = _decode_inside(inside, header, max_messages, is_from_producer=is_from_producer)
    if not records:
        raise CorruptBatch("a compressed message with none inside")
    if header.magic == 0:
        return records
    return _with_absolute_offsets(records, header.base_offset)


def look_inside(message: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> BatchHeader:
    """The header of a compressed message, with the first offset, count and first timestamp of the messages inside.

    Reads the inner headers only: for scans of whole segments. The view may continue after the message.

    Raises CorruptBatch.
    """
    _, wrapped = key_and_value(memoryview(message)[: header.size_bytes], header.magic)
    inside = memoryview(decompress_messages(header.compression, wrapped or b"", header.magic, max_decompressed_bytes))
    first = parse_message_header(inside)
    count = position = 0
    last_offset = first.base_offset
    while position < len(inside) and not is_cut_short(inside, position):
        last_offset, size = _FRONT.unpack_from(inside, position)
        if size < SMALLEST_SIZE[0]:
            raise CorruptBatch(f"a message inside a compressed one has a size of {size}")
        position += size + LENGTH_PREFIX_BYTES
        count += 1
    if not count:
        raise CorruptBatch("a compressed message with none inside")
    is_relative = header.magic and header.base_offset
    first_offset = first.base_offset + (header.base_offset - last_offset if is_relative else 0)
    timestamp = header.max_timestamp if header.is_log_append_time else first.max_timestamp
    return header._replace(
        base_offset=first_offset,
        last_offset_delta=header.base_offset - first_offset,
        base_timestamp=timestamp,
        record_count=count,
    )


def _decode_inside(
    inside: bytes, outer: BatchHeader, max_messages: int | None, *, is_from_producer: bool
) -> list[Record]:
    records: list[Record] = []
    stamp = outer.max_timestamp if outer.is_log_append_time else None
    for position, header in iter_messages(inside, allow_partial_tail=not is_from_producer):
        if header.codec != Compression.NONE:
            raise CorruptBatch("a compressed message inside a compressed message")
        message = memoryview(inside)[position : position + header.size_bytes]
        if is_from_producer:
            if header.magic != outer.magic:
                raise CorruptBatch(f"a message of magic {header.magic} inside one of magic {outer.magic}")
            if not message_crc_matches(message, header):
                raise WrongChecksum("the checksum of a message inside a compressed one does not match its bytes")
        key, value = key_and_value(message, header.magic)
        timestamp = header.max_timestamp if stamp is None or header.magic == 0 else stamp
        records.append(Record(header.base_offset, timestamp, key, value))
        if len(records) == max_messages:
            if position + header.size_bytes < len(inside):
                raise DecompressedTooLarge(f"more than {max_messages} messages are inside a compressed one")
            break
    return records


def _with_absolute_offsets(records: list[Record], outer_offset: int) -> list[Record]:
    """The records of a v1 message with absolute offsets: the last one has the outer offset. An outer 0 is ignored: some
    versions of librdkafka wrote it.
    """
    last = records[-1].offset
    if outer_offset and last > outer_offset:
        raise CorruptBatch(f"the last message inside has offset {last}, and the outer one {outer_offset}")
    first = outer_offset - last if outer_offset else 0
    return [record._replace(offset=first + record.offset) for record in records] if first else records


def key_and_value(view: memoryview, magic: int) -> tuple[bytes | None, bytes | None]:
    """Key and value of a message that fills `view`. Raises CorruptBatch when they do not fill it exactly."""
    at = MAX_HEADER_BYTES if magic else MIN_HEADER_BYTES
    key: bytes | None = None
    value: bytes | None = None
    try:
        (length,) = _INT32.unpack_from(view, at)
        at += 4
        if length >= 0:
            key = bytes(view[at : at + length])
            at += length
        elif length != -1:
            raise CorruptBatch(f"a key of {length} bytes")
        (length,) = _INT32.unpack_from(view, at)
        at += 4
        if length >= 0:
            value = bytes(view[at : at + length])
            at += length
        elif length != -1:
            raise CorruptBatch(f"a value of {length} bytes")
    except struct.error:
        raise CorruptBatch("a message ends inside its key") from None
    if at != len(view):
        raise CorruptBatch(f"key and value of a message end at byte {at} of {len(view)}")
    return key, value


# Writing ------------------------------------------------------------------------------------------------------------


def encode_message(
    magic: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytearray:
    """One message. `timestamp` is left out in format v0."""
    key_at = MAX_HEADER_BYTES if magic else MIN_HEADER_BYTES
    key_bytes, value_bytes = len(key or b""), len(value or b"")
    size_bytes = key_at + 8 + key_bytes + value_bytes
    message = bytearray(size_bytes)
    length = size_bytes - LENGTH_PREFIX_BYTES
    if magic:
        _HEADER_V1.pack_into(message, 0, offset, length, 0, magic, attributes, timestamp)
    else:
        _HEADER_V0.pack_into(message, 0, offset, length, 0, magic, attributes)
    _INT32.pack_into(message, key_at, -1 if key is None else key_bytes)
    if key:
        message[key_at + 4 : key_at + 4 + key_bytes] = key
    _INT32.pack_into(message, size_bytes - value_bytes - 4, -1 if value is None else value_bytes)
    if value:
        message[size_bytes - value_bytes :] = value
    _CRC.pack_into(message, LENGTH_PREFIX_BYTES, message_crc(message))
    return message


def encode_message_set(
    records: Sequence[Record],
    magic: int,
    *,
    compression: Compression = Compression.NONE,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """The records, with ascending offsets, as messages; with a codec, as one compressed message.

    These formats have no headers: they are left out. `log_append_time_ms` (v1) becomes the timestamp of the messages.
    Raises ValueError for zstd, and for no records.
    """
    if not records:
        raise ValueError("a message set holds at least one message")
    stamp = NO_TIMESTAMP if magic == 0 else log_append_time_ms
    attributes = LOG_APPEND_TIME_BIT if magic and log_append_time_ms is not None else 0
    is_wrapped = compression is not Compression.NONE
    first = records[0].offset if is_wrapped and magic else 0
    messages = bytearray()
    for offset, timestamp, key, value, _ in records:
        time = timestamp if stamp is None or (is_wrapped and magic) else stamp
        messages += encode_message(magic, offset - first, time, key, value, 0 if is_wrapped else attributes)
    if not is_wrapped:
        return messages
    wrapped = compress_messages(compression, messages, magic)
    newest = max(record.timestamp for record in records) if stamp is None else stamp
    return encode_message(magic, records[-1].offset, newest, None, wrapped, attributes | compression)
