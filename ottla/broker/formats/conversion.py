"""Conversion between message formats: what old clients produce becomes batches v2, what they fetch messages v1 or v0.

Only format v2 is stored. So a Produce below version 3 is converted before it is gathered (`produce_conversion.py`), and
a Fetch below version 4 after it is read (`fetch_conversion.py`). Pure functions over bytes, limited by
`max.message.bytes`, by `ottla.batch.max.decompressed.bytes` for compressed data, and by the limits below.

They do what Kafka 3.9 and before did (LogValidator, RecordsUtil.downConvert). Up: the messages of one set become one
batch with their common codec, v0's without timestamps; a compressed message must be the only one. Down: headers and
control batches are left out and codecs are kept; v2's zstd cannot be expressed in the old formats.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import MAGIC, CorruptBatch, DecompressedTooLarge, decode_batch, seal_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.formats import iter_any
from ottla.protocol.records.legacy import (
    LEGACY_MAGICS,
    MAGIC_AT,
    WrongChecksum,
    decode_message,
    encode_message_set,
    iter_messages,
    key_and_value,
    message_crc_matches,
)
from ottla.protocol.records.record import encode_record
from ottla.storage.log.append import NO_TIMESTAMP, BatchRules, Refused, too_large

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.config.topic import TopicConfig
    from ottla.protocol.records.batch import BatchHeader
    from ottla.protocol.records.record import Record
    from ottla.protocol.types import Buffer

FIRST_FETCH_VERSION_WITH_BATCHES: Final = 4
FIRST_FETCH_VERSION_WITH_V1: Final = 2
MAX_FETCH_BYTES: Final = 4 * 1024 * 1024
"""Stored bytes that one Fetch of an old client may read, whatever it asks for: all of them are converted."""
MAX_CONVERTED_RECORDS: Final = 500_000
"""The limit of one batch or message set. Each is an object while it is converted; a small message may hold many."""


# Produce ------------------------------------------------------------------------------------------------------------


def is_batch(records: Buffer) -> bool:
    """Whether the records of a Produce 0-2 are batches v2 all the same, which Kafka accepts unchanged."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] == MAGIC


def to_batch(records: Buffer, config: TopicConfig) -> memoryview:
    """One batch v2 of the messages that a Produce 0-2 has for a partition, with the codec of the topic.

    Raises:
        Refused: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE or
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    view = memoryview(records)
    messages = _outer_messages(view, config)
    rules = BatchRules(config)
    source = Compression(messages[-1][1].codec)
    codec = source if rules.target is None else rules.target
    if source is Compression.NONE:
        limit = config.max_message_bytes if codec is Compression.NONE else config.ottla_batch_max_decompressed_bytes
        decoded = _plain(view, messages, limit)
    else:
        decoded = _inside(view, config.ottla_batch_max_decompressed_bytes)
    return memoryview(_packed(decoded, codec, rules.level if codec is rules.target else None))


def _packed(
    decoded: Sequence[tuple[int, bytes | None, bytes | None]], codec: Compression, level: int | None
) -> bytearray:
    """`encode_batch`, but for records that have no offsets yet and no headers."""
    base_timestamp = decoded[0][0]
    body = bytearray()
    for number, (timestamp, key, value) in enumerate(decoded):
        body += encode_record(timestamp - base_timestamp, number, key, value)
    return seal_batch(
        body,
        base_offset=0,
        leader_epoch=-1,
        attributes=int(codec),
        last_offset_delta=len(decoded) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(timestamp for timestamp, _, _ in decoded),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=len(decoded),
        level=level,
    )


def _outer_messages(records: memoryview, config: TopicConfig) -> list[tuple[int, BatchHeader]]:
    """Position and header of each message, with the checks that Kafka makes before it reads into messages."""
    try:
        messages = list(islice(iter_messages(records), MAX_CONVERTED_RECORDS + 1))
    except CorruptBatch as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if len(messages) > MAX_CONVERTED_RECORDS:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, f"more than {MAX_CONVERTED_RECORDS} messages in one request")
    magic = messages[0][1].magic
    stamps_itself = config.message_timestamp_type == "LogAppendTime"
    for position, header in messages:
        if header.size_bytes > config.max_message_bytes:
            raise too_large(header.size_bytes, config.max_message_bytes)
        if not message_crc_matches(records[position:], header):
            raise Refused(ErrorCode.CORRUPT_MESSAGE, "a message's checksum does not match its bytes")
        if header.codec > Compression.ZSTD:
            raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression {header.codec}")
        if header.codec and len(messages) > 1:
            raise Refused(ErrorCode.INVALID_RECORD, "a compressed message must be the only one for its partition")
        if header.magic != magic:
            raise Refused(
                ErrorCode.INVALID_RECORD, f"a message of magic {header.magic} after one of magic {magic} in one request"
            )
        # In a CreateTime topic a message with a timestamp keeps it, as in Kafka's LogValidator.
        if header.is_log_append_time and (stamps_itself or header.max_timestamp == NO_TIMESTAMP):
            raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    return messages


def _plain(
    records: memoryview, messages: Sequence[tuple[int, BatchHeader]], limit: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """(timestamp, key, value) of messages of which none is compressed; Refused if they hold more than `limit` bytes."""
    decoded = []
    room = limit
    try:
        for position, header in messages:
            timestamp = header.max_timestamp
            if timestamp < NO_TIMESTAMP:
                raise _no_time(timestamp)
            key, value = key_and_value(records[position : position + header.size_bytes], header.magic)
            room -= len(key or b"") + len(value or b"")
            if room < 0:
                raise too_large(len(records), limit)
            decoded.append((timestamp, key, value))
    except CorruptBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    return decoded


def _inside(message: memoryview, max_decompressed_bytes: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(timestamp, key, value) of the messages in a compressed one."""
    try:
        records = decode_message(
            message,
            max_decompressed_bytes=max_decompressed_bytes,
            max_messages=MAX_CONVERTED_RECORDS,
            check_crc=False,
            is_from_producer=True,
        )
    except DecompressedTooLarge as error:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except WrongChecksum as error:
        raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except CorruptBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    oldest_ms = min(record.timestamp for record in records)
    if oldest_ms < NO_TIMESTAMP:
        raise _no_time(oldest_ms)
    return [(record.timestamp, record.key, record.value) for record in records]


def _no_time(timestamp_ms: int) -> Refused:
    return Refused(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms} is neither a time nor -1")


# Fetch --------------------------------------------------------------------------------------------------------------


class Converted(NamedTuple):
    """Stored batches in the format of an old client.

    Attributes:
        messages: whole messages; none where the batches have nothing that such a client may see.
        next_offset: the offset after the last batch that was checked, from which to read on if there are no messages.
    """

    messages: bytearray
    next_offset: int


def magic_for_fetch(api_version: int) -> int:
    """The message format of a Fetch below `FIRST_FETCH_VERSION_WITH_BATCHES`."""
    return LEGACY_MAGICS[1] if api_version >= FIRST_FETCH_VERSION_WITH_V1 else LEGACY_MAGICS[0]


def to_messages(
    stored: bytes, magic: int, fetch_offset: int, *, max_bytes: int, max_decompressed_bytes: int
) -> Converted:
    """Convert whole batches to format `magic`; messages in an old enough format are unchanged.

    Messages may be larger than batches: what is after `max_bytes` is left for the next fetch, but the first message is
    returned whatever its size. Of an uncompressed batch only records from `fetch_offset` on are returned, because
    clients rely on it (librdkafka, for example, according to Kafka's RecordsUtil); of a compressed one all, as in
    earlier Kafka. No more compressed batches are opened after `max_decompressed_bytes`, which also limits each of them.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE for zstd, MESSAGE_TOO_LARGE for a batch that holds too much to be
            converted, CORRUPT_MESSAGE; before there is any message to give.
    """
    messages = bytearray()
    next_offset = fetch_offset
    room = max_decompressed_bytes
    view = memoryview(stored)
    try:
        for position, header in iter_any(view, allow_partial_tail=True):
            piece: bytes | bytearray = b""
            if header.last_offset >= fetch_offset and not header.is_control:
                batch = view[position : position + header.size_bytes]
                if header.magic <= magic:
                    piece = bytes(batch)
                else:
                    records = _records_for(batch, header, fetch_offset, max_decompressed_bytes)
                    piece = _as_messages(records, header, magic)
                    room -= sum(len(record.value or b"") for record in records)
            if messages and (len(messages) + len(piece) > max_bytes or room < 0):
                break
            messages += piece
            next_offset = header.next_offset
    except KafkaError:
        if not messages:
            raise
    except CorruptBatch as error:
        if not messages:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return Converted(messages, next_offset)


def _records_for(
    batch: memoryview, header: BatchHeader, fetch_offset: int, max_decompressed_bytes: int
) -> list[Record]:
    if header.codec == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "records compressed by zstd cannot be given in old message formats"
        )
    if header.record_count > MAX_CONVERTED_RECORDS:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.record_count} records is not converted")
    try:
        if header.magic == MAGIC:
            records = decode_batch(batch, max_decompressed_bytes=max_decompressed_bytes)
        else:
            records = decode_message(
                batch, max_decompressed_bytes=max_decompressed_bytes, max_messages=MAX_CONVERTED_RECORDS
            )
    except DecompressedTooLarge as error:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    if header.codec == Compression.NONE:
        records = [record for record in records if record.offset >= fetch_offset]
    if records and records[-1].offset < fetch_offset:  # compaction has removed what the client asks for
        return []
    return records


def _as_messages(records: list[Record], header: BatchHeader, magic: int) -> bytes | bytearray:
    if not records:
        return b""
    stamp = header.max_timestamp if header.is_log_append_time else None
    return encode_message_set(records, magic, compression=header.compression, log_append_time_ms=stamp)
