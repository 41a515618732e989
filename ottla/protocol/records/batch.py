"""A record batch v2 (magic 2, KIP-98) as a view over bytes: parse, check, patch, walk, decode, encode.

Byte layout, big-endian, 61 bytes of header and then the records:

     0  base_offset int64             of the first record; the broker writes it
     8  batch_length int32            bytes that follow this field: size of the batch - 12
    12  partition_leader_epoch int32  the broker writes it
    16  magic int8                    2
    17  crc uint32                    CRC-32C of everything from byte 21 to the end
    21  attributes int16              bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta int32       last offset - base offset, kept by compaction
    27  base_timestamp int64          of the first record (bit 6 set: the delete horizon)
    35  max_timestamp int64           bit 3 set: the time of the append, for every record
    43  producer_id int64             -1: not idempotent
    51  producer_epoch int16
    53  base_sequence int32           of the first record; wraps to 0 after 2^31-1
    57  record_count int32
    61  records                       see record.py; compressed as one piece when attributes name a codec

The checksum does not cover the base offset and the leader epoch, so that a broker can patch them in place. The
functions here read the header with one `unpack_from` and copy nothing, except `decode_batch` and `encode_batch`. They
support magic 2 only. Source: Kafka's DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.compression import Compression, compress, decompress
from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge
from ottla.protocol.records.record import Record, decode_records, encode_record, value_of_plain_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.protocol.types import Buffer

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "Compression",
    "CorruptBatch",
    "DecompressedTooLarge",
    "HeaderFields",
    "Record",
    "compute_crc",
    "crc_matches",
    "decode_batch",
    "decode_rows",
    "decompress_records",
    "encode_batch",
    "has_transactional_header",
    "header_fields",
    "increment_sequence",
    "iter_batches",
    "parse_header",
    "parse_only",
    "place_batch",
    "seal_batch",
    "seal_payload",
    "set_log_append_time",
    "set_offset_and_epoch",
]


HEADER_BYTES = 61
LENGTH_PREFIX_BYTES = 12
"""Base offset and batch length: the bytes that `batch_length` does not count."""
MIN_BATCH_LENGTH = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAGIC = 2
MAX_SEQUENCE = 2**31 - 1
DEFAULT_MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""The default limit to which `decode_batch` lets one batch expand."""

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

FRONT_FORMAT = "qiibI"
"""The header's fields before `CHECKED_FORMAT`, for `struct`."""
CHECKED_FORMAT = "hiqqqhii"
"""The header's fields that the checksum covers, for `struct`."""
_HEADER = struct.Struct(f">{FRONT_FORMAT}{CHECKED_FORMAT}")
_FRONT = struct.Struct(f">{FRONT_FORMAT}")
_CHECKED = struct.Struct(f">{CHECKED_FORMAT}")
_PLACE = struct.Struct(">qii")
_LEADER_EPOCH = struct.Struct(">i")
_BASE_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_LEADER_EPOCH_POSITION = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35

HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a `BatchHeader` without their names: a third of the cost, for callers that unpack it immediately."""


class BatchHeader(NamedTuple):
    """The 61 bytes of a batch's header, field by field as the module's docstring lists them. Times are in ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        """The offset of the last record (of the last one before compaction)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """The number of the codec, which may be one that does not exist."""
        return self.attributes & COMPRESSION_MASK

    @property
    def compression(self) -> Compression:
        """The codec; raises CorruptBatch for a number that no codec has."""
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise CorruptBatch(f"the batch names codec {self.attributes & COMPRESSION_MASK}") from None

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the time of the broker's append, and the timestamp of every record."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, which consumers skip."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is the time from which the cleaner may remove the batch's tombstones."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 without one; wraps to 0 after 2^31-1."""
        if self.base_sequence < 0:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """Return the sequence `increment` (0 or more) records further; sequences wrap from 2^31-1 to 0."""
    return (sequence + increment) & MAX_SEQUENCE


def has_transactional_header(records: memoryview) -> bool:
    """Whether bytes look like a batch of a transaction; nothing else is checked."""
    low_byte = _ATTRIBUTES_POSITION + 1
    return len(records) > low_byte and records[16] == MAGIC and bool(records[low_byte] & TRANSACTIONAL_BIT)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of the batch that begins at `position`; the rest of the batch may be missing.

    Raises CorruptBatch when the header is truncated, magic is not 2, or a length or count is impossible.
    """
    return tuple.__new__(BatchHeader, header_fields(buffer, position))


unpack_header = _HEADER.unpack_from
"""Unpack the fields of a header without any check; struct.error when there are too few bytes."""


def header_fields(buffer: Buffer, position: int = 0) -> HeaderFields:
    """As `parse_header`, but return a plain tuple."""
    try:
        fields: HeaderFields = _HEADER.unpack_from(buffer, position)
    except struct.error:
        raise CorruptBatch(f"fewer than {HEADER_BYTES} bytes for a batch's header") from None
    if fields[3] != MAGIC:
        raise CorruptBatch(f"the batch has magic {fields[3]}, not {MAGIC}")
    if fields[1] < MIN_BATCH_LENGTH:
        raise CorruptBatch(f"the batch has a length of {fields[1]}, less than its header takes")
    if fields[6] < 0 or not 0 <= fields[12] <= fields[6] + 1:
        raise CorruptBatch(f"the batch has {fields[12]} records and a last offset delta of {fields[6]}")
    return fields


def parse_only(buffer: Buffer) -> BatchHeader | None:
    """Return the header if the bytes are exactly one batch; None for any others, and for a header with an error."""
    size_bytes = len(buffer)
    if size_bytes < HEADER_BYTES:
        return None
    fields: HeaderFields = _HEADER.unpack_from(buffer)
    if fields[3] != MAGIC or fields[1] != size_bytes - LENGTH_PREFIX_BYTES:
        return None
    if not 0 <= fields[12] <= fields[6] + 1 or fields[6] < 0:
        return None
    return tuple.__new__(BatchHeader, fields)


def compute_crc(batch: Buffer) -> int:
    """Compute the checksum of a batch. `batch` is the whole batch and nothing more."""
    return crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:])


def set_crc(batch: Buffer) -> None:
    """Write the checksum of a writable batch. `batch` is the whole batch and nothing more."""
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[_ATTRIBUTES_POSITION:]))


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Return whether the checksum matches the bytes. The view may continue after the batch."""
    return crc32c(memoryview(batch)[_ATTRIBUTES_POSITION : header[1] + LENGTH_PREFIX_BYTES]) == header[4]


def set_offset_and_epoch(batch: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write the values that the broker assigns, base offset and leader epoch, into a writable batch. The checksum stays
    valid.
    """
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_POSITION, leader_epoch)


place_batch = _PLACE.pack_into
"""As `set_offset_and_epoch`, in one write: (batch, 0, base offset, batch length, which is between the two, epoch)."""


def set_log_append_time(batch: Buffer, now_ms: int) -> None:
    """Stamp a writable batch with the time of its append, and compute its checksum again.

    `batch` is the whole batch and nothing more. Every record's timestamp reads as `now_ms` from now on.
    """
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    set_crc(batch)


def iter_batches(buffer: Buffer, *, allow_partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch in a buffer that begins with one.

    Raises CorruptBatch at an impossible header, and at a batch that is truncated by the end of the buffer. With
    `allow_partial_tail` the iteration ends there instead (a Fetch response may be truncated so).
    """
    view = memoryview(buffer)
    size = len(view)
    position = 0
    while position < size:
        if allow_partial_tail and size - position < HEADER_BYTES:
            return
        header = parse_header(view, position)
        end = position + header[1] + LENGTH_PREFIX_BYTES
        if end > size:
            if allow_partial_tail:
                return
            raise CorruptBatch(
                f"the batch at byte {position} has {header.size_bytes} bytes and {size - position} remain"
            )
        yield position, header
        position = end


def decode_batch(
    batch: Buffer, *, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES, check_crc: bool = True
) -> list[Record]:
    """Return the records of a batch, control records included. The view may continue after the batch.

    Raises CorruptBatch when a part is invalid: the header, the checksum (unless `check_crc` is False), the compressed
    data, the length of a record, a varint or the count. Raises DecompressedTooLarge, a CorruptBatch, when the records
    take more than `max_decompressed_bytes`.
    """
    rows = decode_rows(batch, max_decompressed_bytes=max_decompressed_bytes, check_crc=check_crc)
    return list(map(tuple.__new__, repeat(Record), rows))


def decode_rows(
    batch: Buffer,
    partition: tuple[str, int] | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    check_crc: bool = True,
    header: BatchHeader | None = None,
) -> list[tuple[Any, ...]]:
    """As `decode_batch`, but return plain tuples with the fields of `Record`, preceded by those of `partition`.

    `header` is that of `batch` if it was parsed before.

    For the consumer, which converts each to a named tuple only when the program takes it. Until then they cost the
    garbage collector nothing: it does not track plain tuples of bytes and numbers.
    """
    view = memoryview(batch)
    if header is None:
        header = parse_header(view)
    size_bytes = header[1] + LENGTH_PREFIX_BYTES
    if size_bytes > len(view):
        raise CorruptBatch(f"the batch has {size_bytes} bytes and {len(view)} are there")
    if check_crc and not crc_matches(view, header):
        raise CorruptBatch("the batch's checksum does not match its bytes")
    records = decompress_records(view, header, max_decompressed_bytes)
    log_append_time_ms = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    if header.record_count == 1 and (value := value_of_plain_record(records)) is not None:
        timestamp = header.base_timestamp if log_append_time_ms is None else log_append_time_ms
        return [(*(partition or ()), header.base_offset, timestamp, None, value, ())]
    return decode_records(
        records,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        last_offset_delta=header.last_offset_delta,
        log_append_time_ms=log_append_time_ms,
        partition=partition,
    )


def decompress_records(batch: memoryview, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """Return the decompressed bytes of a batch's records. Raises the same errors as `decode_batch`."""
    payload = batch[HEADER_BYTES : header[1] + LENGTH_PREFIX_BYTES]
    if header[5] & COMPRESSION_MASK:
        return decompress(header.compression, payload, max_decompressed_bytes)
    return bytes(payload)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    is_control: bool = False,
    is_transactional: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """Return a batch of `records`, with offsets that ascend from `base_offset` (None: the first record's own).

    `level` is the codec's (see `compress`). `log_append_time_ms` is the timestamp of all records. Raises ValueError for
    no records, and for offsets that do not ascend or span more than 2^31-1.
    """
    if not records:
        raise ValueError("a batch holds at least one record")
    first = records[0].offset if base_offset is None else base_offset
    base_timestamp = records[0].timestamp
    body = bytearray()
    previous = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - first
        if delta <= previous or delta > MAX_SEQUENCE:
            raise ValueError(f"offset {offset} does not follow {first + previous} in a batch from {first}")
        previous = delta
        body += encode_record(timestamp - base_timestamp, delta, key, value, headers)
    attributes = int(compression)
    attributes |= TRANSACTIONAL_BIT if is_transactional else 0
    attributes |= CONTROL_BIT if is_control else 0
    attributes |= LOG_APPEND_TIME_BIT if log_append_time_ms is not None else 0
    newest = max(record.timestamp for record in records)
    return seal_batch(
        body,
        base_offset=first,
        leader_epoch=leader_epoch,
        attributes=attributes,
        last_offset_delta=previous,
        base_timestamp=base_timestamp,
        max_timestamp=newest if log_append_time_ms is None else log_append_time_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
        level=level,
    )


def seal_batch(
    body: Buffer,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
    level: int | None = None,
) -> bytearray:
    """Return the batch of encoded records: its header, and `body` compressed with the codec in `attributes`."""
    codec = attributes & COMPRESSION_MASK
    return seal_payload(
        compress(Compression(codec), body, level) if codec else body,
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )


def seal_payload(
    payload: Buffer,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Return the batch of encoded records that are already compressed with the codec in `attributes`."""
    checked = _CHECKED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    crc = crc32c(payload, crc32c(checked))
    front = _FRONT.pack(base_offset, MIN_BATCH_LENGTH + len(payload), leader_epoch, MAGIC, crc)
    return bytearray().join((front, checked, payload))
