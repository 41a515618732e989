"""Batches that cannot be stored unchanged, because the topic's configuration needs more than the header.

`message.timestamp.type=LogAppendTime` patches two header fields and the checksum in place. A compacted topic needs the
keys, `ottla.validate.records` all records: both decompress, but decode only batches that seem to be wrong. Another
`compression.type` decodes all records and compresses them again. `ottla.batch.max.decompressed.bytes` is the limit.
Pure; called by the log's append for topics whose rules are not plain.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    BatchHeader,
    CorruptBatch,
    DecompressedTooLarge,
    compute_crc,
    decompress_records,
    encode_batch,
    parse_header,
    set_log_append_time,
)
from ottla.protocol.records.record import Record, decode_records
from ottla.protocol.records.summary import summarize_records
from ottla.storage.log.append import NO_TIMESTAMP, BatchRules, RecordError, Refused, too_large

_CRC_POSITION: Final = 17
_MAX_TIMESTAMP_POSITION: Final = 35
MAX_TIMESTAMP_MS: Final = (1 << 63) - 1
MAX_RECORD_ERRORS: Final = 1000
"""The most record errors of one batch in a response; the message has the number of the others."""


def rewrite(records: memoryview, header: BatchHeader, rules: BatchRules, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The bytes to store and their header. `records` is patched in place if that is enough.

    Raises:
        Refused: records cannot be decoded, lack a key, or have a timestamp out of range; nothing was changed then.
    """
    repacks = rules.target is not None and rules.target != header.codec
    if rules.is_compacted or rules.validates_records or repacks:
        data = _decompress(records, header, rules)
        if repacks:
            decoded = _decode(data, header)
            _check_records(decoded, rules, now_ms)
            records = _repack(decoded, header, rules)
        else:
            newest_ms = _newest_of_sound(data, header, rules, now_ms)
            if newest_ms is None:
                newest_ms = _check_records(_decode(data, header), rules, now_ms)
            if not rules.is_log_append_time:
                _correct_max_timestamp(records, header, newest_ms)
        header = parse_header(records)
    if rules.is_log_append_time:
        set_log_append_time(records, now_ms)
        header = parse_header(records)
    return records, header


def _decompress(records: memoryview, header: BatchHeader, rules: BatchRules) -> bytes:
    try:
        return decompress_records(records, header, rules.max_decompressed_bytes)
    except DecompressedTooLarge as error:
        raise Refused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
    except CorruptBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None


def _newest_of_sound(data: bytes, header: BatchHeader, rules: BatchRules, now_ms: int) -> int | None:
    """The largest timestamp of records that may certainly be stored, without decoding them; None if `_check_records`
    has to decide.
    """
    summary = summarize_records(data, header.record_count)
    if summary is None or (rules.is_compacted and not summary.has_all_keys):
        return None
    oldest_ms = header.base_timestamp + summary.oldest_delta_ms
    newest_ms = header.base_timestamp + summary.newest_delta_ms
    is_allowed = _can_be_expressed(oldest_ms, newest_ms) and _are_in_range(oldest_ms, newest_ms, rules, now_ms)
    return newest_ms if is_allowed else None


def _decode(data: bytes, header: BatchHeader) -> list[Record]:
    try:
        rows = decode_records(
            data,
            header.record_count,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            last_offset_delta=header.last_offset_delta,
        )
    except CorruptBatch as error:
        raise Refused(ErrorCode.INVALID_RECORD, str(error)) from None
    return list(map(Record._make, rows))


def _check_records(decoded: Sequence[Record], rules: BatchRules, now_ms: int) -> int:
    """The largest timestamp of the records. Raises Refused for those that must not be stored.

    Checks column by column: records are checked one by one only if something is wrong.
    """
    offsets = [record.offset for record in decoded]
    if offsets != list(range(len(offsets))):
        number, offset = next((number, offset) for number, offset in enumerate(offsets) if offset != number)
        raise Refused(ErrorCode.INVALID_RECORD, f"record {number} of the batch has the offset delta {offset}")
    timestamps = [record.timestamp for record in decoded] or [0]
    oldest_ms, newest_ms = min(timestamps), max(timestamps)
    if not _can_be_expressed(oldest_ms, newest_ms):
        raise Refused(ErrorCode.INVALID_TIMESTAMP, f"the records' timestamps reach from {oldest_ms} to {newest_ms}")
    has_all_keys = not rules.is_compacted or None not in [record.key for record in decoded]
    if not (has_all_keys and _are_in_range(oldest_ms, newest_ms, rules, now_ms)):
        _check_each(decoded, rules, now_ms)
    return newest_ms


def _can_be_expressed(oldest_ms: int, newest_ms: int) -> bool:
    """Whether a new batch can represent both times: the 64-bit deltas of the old batch reach further."""
    return (
        oldest_ms >= -MAX_TIMESTAMP_MS - 1
        and newest_ms <= MAX_TIMESTAMP_MS
        and newest_ms - oldest_ms <= MAX_TIMESTAMP_MS
    )


def _are_in_range(oldest_ms: int, newest_ms: int, rules: BatchRules, now_ms: int) -> bool:
    """Whether the topic certainly allows these times and all in between: a missing time is allowed, too."""
    return rules.is_log_append_time or (
        now_ms - oldest_ms <= rules.before_max_ms and newest_ms - now_ms <= rules.after_max_ms
    )


def _check_each(decoded: Sequence[Record], rules: BatchRules, now_ms: int) -> None:
    """Raise Refused with the records that lack a key or have a timestamp out of range, if there are any."""
    errors: list[RecordError] = []
    stamps = 0
    for number, record in enumerate(decoded):
        if rules.is_compacted and record.key is None:
            errors.append(RecordError(number, "a compacted topic takes no record without a key"))
        elif not rules.is_log_append_time and _is_out_of_range(record.timestamp, rules, now_ms):
            stamps += 1
            errors.append(RecordError(number, f"timestamp {record.timestamp} is out of range"))
    if errors:
        code = ErrorCode.INVALID_TIMESTAMP if stamps else ErrorCode.INVALID_RECORD
        message = errors[0].message or ""
        if len(decoded) > 1:
            message = f"{len(errors)} of {len(decoded)} records were refused, the first: {message}"
        raise Refused(code, message, tuple(errors[:MAX_RECORD_ERRORS]))


def _correct_max_timestamp(records: memoryview, header: BatchHeader, newest_ms: int) -> None:
    """Correct the largest timestamp of a careless client, as Kafka does: look-ups by time depend on it."""
    if newest_ms != header.max_timestamp:
        struct.pack_into(">q", records, _MAX_TIMESTAMP_POSITION, newest_ms)
        struct.pack_into(">I", records, _CRC_POSITION, compute_crc(records))


def _is_out_of_range(timestamp: int, rules: BatchRules, now_ms: int) -> bool:
    if timestamp == NO_TIMESTAMP:
        return False
    return now_ms - timestamp > rules.before_max_ms or timestamp - now_ms > rules.after_max_ms


def _repack(decoded: Sequence[Record], header: BatchHeader, rules: BatchRules) -> memoryview:
    assert rules.target is not None
    batch = encode_batch(
        decoded,
        base_offset=0,
        compression=rules.target,
        level=rules.level,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    if len(batch) > rules.max_message_bytes:
        raise too_large(len(batch), rules.max_message_bytes)
    if len(batch) > rules.segment_bytes:
        raise Refused(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"compressed again the batch has {len(batch)} bytes: more than segment.bytes",
        )
    return memoryview(batch)
