"""The input and output of `Log.append`: entries, results, rules, and the errors of a batch.

A batch stays opaque: its header and checksum are checked, but its records are not (a difference to Kafka, which always
reads them), unless the topic requires it: for compaction (keys), recompression, or `ottla.validate.records` (see
`rewrite.py`). Refusals have the codes of Kafka's LogValidator, UnifiedLog and ProduceRequest. Nothing here accesses a
file. Called by the log only; the broker makes entries and reads results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, overload

from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    CorruptBatch,
    header_fields,
)
from ottla.protocol.records.compression import Compression

NO_TIMESTAMP: Final = -1
FIRST_PRODUCE_VERSION_WITH_ZSTD: Final = 7
TAKES_ZSTD: Final = 1
TAKES_TRANSACTIONS: Final = 2
BEGINS_AT_ZERO: Final = 4
"""A producer that the log does not know has to begin with sequence 0 (KIP-890, `transaction.version` 2). There each
transaction has an epoch of its own, and the partition knows the producer until its end. So a later sequence is that of
a batch that has overtaken an earlier one, which was refused and is sent again.
"""
"""Flags for what the requests of a call may contain: by their version, and because they are part of a transaction."""
_MAGIC_POSITION: Final = 16
_MIN_INT64: Final = -(1 << 63)
_MAX_INT64: Final = (1 << 63) - 1
LAST_PLAIN_CODEC: Final = int(Compression.LZ4)
"""Only zstd follows, which old requests must not contain."""
BOUNDS_HOLD_MS: Final = 1_000
"""The time for which the bounds of `set_bounds` are valid: they are narrower than the allowed range by this much, and a
timestamp outside them is checked exactly."""
_LOG_APPEND_TIME_BIT: Final = 0x08


class AppendEntry(NamedTuple):
    """One partition's record data of one Produce request.

    Attributes:
        records: exactly the bytes that the client sent for the partition; writable, because base offset and leader
            epoch are patched in place, and valid until `Log.append` returns.
        api_version: the version of the Produce request: zstd is refused below 7.
        is_transactional: the batch may be of a transaction, which is open in its coordinator and has the partition.
        begins_at_zero: an unknown producer has to begin with sequence 0 (`BEGINS_AT_ZERO`).
    """

    records: memoryview
    api_version: int
    is_transactional: bool = False
    begins_at_zero: bool = False

    @property
    def takes(self) -> int:
        """`TAKES_ZSTD`, `TAKES_TRANSACTIONS`, `BEGINS_AT_ZERO`."""
        takes = TAKES_ZSTD if self.api_version >= FIRST_PRODUCE_VERSION_WITH_ZSTD else 0
        if self.is_transactional:
            takes |= TAKES_TRANSACTIONS
        return takes | BEGINS_AT_ZERO if self.begins_at_zero else takes


class RecordError(NamedTuple):
    """One record of a refused batch, as ProduceResponse names it (KIP-467)."""

    batch_index: int
    message: str | None


class AppendResult(NamedTuple):
    """The result for one entry.

    Attributes:
        error_code: NONE, or the reason why nothing of the entry was stored.
        base_offset, last_offset: those of the stored batch, for a duplicate of the original; -1 when refused.
        log_append_time_ms: the broker's timestamp under `message.timestamp.type=LogAppendTime`, otherwise -1.
        log_start_offset: the partition's at the time of the call.
        is_duplicate: the batch was stored before; respond when the promise covers `last_offset`.
        error_message: one line of text, or None.
        record_errors: the records that caused the refusal, where Kafka names them.
    """

    error_code: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    is_duplicate: bool = False
    error_message: str | None = None
    record_errors: tuple[RecordError, ...] = ()


class Appended(Sequence[AppendResult]):
    """The results of one call: one for each batch, in their order.

    Nearly always all batches are stored. Then a result is created only when a caller reads one, and the hot path reads
    the attributes. A log has one such object, which is valid until its next call: creating an object in each call would
    add a twentieth to the cache lines that a small request needs.

    Attributes:
        base_offsets, last_offsets: those of the batches that were stored, in order.
        log_append_time_ms: the timestamp that they got, -1 for none.
        log_start_offset: the partition's at the time of the call.
        refused: the results of all batches if one of them was refused or a duplicate; None if all were stored.
    """

    __slots__ = ("base_offsets", "last_offsets", "log_append_time_ms", "log_start_offset", "refused")

    def __init__(
        self,
        base_offsets: list[int],
        last_offsets: list[int],
        log_append_time_ms: int,
        log_start_offset: int,
        refused: list[AppendResult] | None = None,
    ) -> None:
        self.base_offsets = base_offsets
        self.last_offsets = last_offsets
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.refused = refused

    @classmethod
    def not_stored(cls, results: list[AppendResult]) -> Appended:
        """The results of a call that stored nothing."""
        return cls([], [], NO_TIMESTAMP, -1, results)

    def offsets_of_all(self) -> list[int]:
        """The last offset of each batch of the call, -1 for one that was refused."""
        return self.last_offsets if self.refused is None else [result.last_offset for result in self.refused]

    def __len__(self) -> int:
        return len(self.base_offsets if self.refused is None else self.refused)

    def __iter__(self) -> Iterator[AppendResult]:
        if self.refused is not None:
            return iter(self.refused)
        return map(self._result, self.base_offsets, self.last_offsets)

    @overload
    def __getitem__(self, index: int) -> AppendResult: ...

    @overload
    def __getitem__(self, index: slice) -> Appended: ...

    def __getitem__(self, index: int | slice) -> AppendResult | Appended:
        if isinstance(index, slice):
            refused = None if self.refused is None else self.refused[index]
            stored = index if refused is None else slice(0)
            base_offsets, last_offsets = self.base_offsets[stored], self.last_offsets[stored]
            return Appended(base_offsets, last_offsets, self.log_append_time_ms, self.log_start_offset, refused)
        if self.refused is not None:
            return self.refused[index]
        return self._result(self.base_offsets[index], self.last_offsets[index])

    def _result(self, base_offset: int, last_offset: int) -> AppendResult:
        return AppendResult(ErrorCode.NONE, base_offset, last_offset, self.log_append_time_ms, self.log_start_offset)


class Refused(Exception):
    """A batch that is not stored; becomes an AppendResult."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors


class BatchRules:
    """The rules of a topic's configuration for a batch, as plain attributes for the hot path."""

    __slots__ = (
        "after_max_ms",
        "as_they_are",
        "before_max_ms",
        "bounds_from_ms",
        "bounds_until_ms",
        "earliest_ms",
        "is_compacted",
        "is_log_append_time",
        "is_plain",
        "latest_ms",
        "level",
        "max_batch_bytes",
        "max_decompressed_bytes",
        "max_message_bytes",
        "segment_bytes",
        "target",
        "validates_records",
    )

    def __init__(self, config: TopicConfig, *, is_of_clients: bool = True) -> None:
        """`is_of_clients`: clients write to the topic. The broker's own records in an internal topic all have keys, so
        no time is spent on decoding them again; the code that writes them also checks `max.message.bytes`.
        """
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.max_batch_bytes = min(self.max_message_bytes, self.segment_bytes) if is_of_clients else self.segment_bytes
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.is_log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.is_compacted = is_of_clients and "compact" in config.cleanup_policy
        self.validates_records = config.ottla_validate_records
        self.max_decompressed_bytes = config.ottla_batch_max_decompressed_bytes
        self.target, self.level = _target_compression(config)
        self.is_plain = not (
            self.is_log_append_time or self.is_compacted or self.validates_records or self.target is not None
        )
        needs_more = self.is_log_append_time or self.is_compacted or self.validates_records
        self.as_they_are = -1 if needs_more or self.target is None else int(self.target)
        """If the rules are not plain, the attributes with which batches are stored unchanged; -1 for none."""
        self.set_bounds(0)

    def set_bounds(self, now_ms: int) -> None:
        """Compute a range of timestamps that is certainly allowed for a while from `now_ms` on."""
        self.bounds_from_ms, self.bounds_until_ms = now_ms, now_ms + BOUNDS_HOLD_MS
        if self.is_log_append_time:  # producers' timestamps are replaced
            self.earliest_ms, self.latest_ms = _MIN_INT64, _MAX_INT64
        else:
            self.earliest_ms = max(self.bounds_until_ms - self.before_max_ms, _MIN_INT64)
            self.latest_ms = min(now_ms + self.after_max_ms, _MAX_INT64)


def _target_compression(config: TopicConfig) -> tuple[Compression | None, int | None]:
    """Codec and level that stored batches must have; None leaves the producer's."""
    match config.compression_type:
        case "uncompressed":
            return Compression.NONE, None
        case "gzip":
            level = config.compression_gzip_level
            return Compression.GZIP, None if level < 0 else level
        case "snappy":
            return Compression.SNAPPY, None
        case "lz4":
            return Compression.LZ4, config.compression_lz4_level
        case "zstd":
            return Compression.ZSTD, config.compression_zstd_level
    return None, None


def check_timestamps(base_ms: int, max_ms: int, rules: BatchRules, now_ms: int) -> None:
    """Refuse a timestamp out of range; a missing one is always allowed. (`validate_and_assign` has a fast check
    first.)
    """
    if rules.is_log_append_time:
        return  # the timestamps are replaced
    earliest_ms, latest_ms = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    if (
        max_ms > latest_ms
        or base_ms > latest_ms
        or (base_ms < earliest_ms and base_ms != NO_TIMESTAMP)
        or (max_ms < earliest_ms and max_ms != NO_TIMESTAMP)
    ):
        raise timestamp_out_of_range(base_ms, max_ms, rules, now_ms)


def wrong_shape(records: memoryview, rules: BatchRules) -> Refused:
    """The refusal of a batch with an invalid header, or one that the request or the topic does not allow."""
    try:
        fields = header_fields(records)
    except CorruptBatch as error:
        return _unreadable(records, error)
    size, delta, count = fields[1] + LENGTH_PREFIX_BYTES, fields[6], fields[12]
    if size != len(records):
        return _wrong_length(size, len(records))
    if fields[0]:
        return Refused(ErrorCode.INVALID_RECORD, f"the batch's base offset should be 0, but it is {fields[0]}")
    if count < 1 or delta != count - 1:
        return Refused(ErrorCode.INVALID_RECORD, f"the batch has {count} records and a last offset delta of {delta}")
    if size > rules.max_message_bytes:
        return too_large(size, rules.max_message_bytes)
    return Refused(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"the batch has {size} bytes, more than the {rules.segment_bytes} of segment.bytes",
    )


def too_large(size: int, max_message_bytes: int) -> Refused:
    """The refusal of a batch over `max.message.bytes`."""
    return Refused(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {size} bytes, more than the {max_message_bytes} of max.message.bytes",
    )


def timestamp_out_of_range(base_ms: int, max_ms: int, rules: BatchRules, now_ms: int) -> Refused:
    """The refusal of a batch with a timestamp too far from the broker's clock."""
    return Refused(
        ErrorCode.INVALID_TIMESTAMP,
        f"the batch's timestamps {base_ms} to {max_ms} are out of range: they should be within"
        f" [{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]",
    )


def check_attributes(attributes: int, takes: int, producer_id: int) -> None:
    """Refuse a codec that does not exist, or not in that version of Produce, and attributes that clients must not
    set.
    """
    codec = attributes & 0x07
    if codec > Compression.ZSTD:
        raise Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression {codec}")
    if codec == Compression.ZSTD and not takes & TAKES_ZSTD:
        raise Refused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {FIRST_PRODUCE_VERSION_WITH_ZSTD} or later"
        )
    if attributes & CONTROL_BIT:
        raise Refused(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & TRANSACTIONAL_BIT:
        if not takes & TAKES_TRANSACTIONS:
            text = "the batch is of a transaction, and the request names no transactional id"
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)  # as Kafka
        if producer_id < 0:
            raise Refused(ErrorCode.INVALID_RECORD, "the batch is of a transaction, and names no producer")
    if attributes & _LOG_APPEND_TIME_BIT:
        raise Refused(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")


def _unreadable(records: memoryview, error: CorruptBatch) -> Refused:
    if not len(records):
        return Refused(ErrorCode.INVALID_RECORD, "the request holds no record batch for the partition")
    if len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] in {0, 1}:
        return Refused(
            ErrorCode.INVALID_RECORD, f"Produce 3 and later takes magic 2 only, not {records[_MAGIC_POSITION]}"
        )
    # With a valid magic and length it is the count that is impossible: Kafka calls the record invalid, not corrupt.
    sound_length = (
        len(records) >= HEADER_BYTES and int.from_bytes(records[8:12], "big", signed=True) >= HEADER_BYTES - 12
    )
    sound_magic = len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] == 2
    code = ErrorCode.INVALID_RECORD if sound_length and sound_magic else ErrorCode.CORRUPT_MESSAGE
    return Refused(code, str(error))


def _wrong_length(size: int, given: int) -> Refused:
    if size < given:
        return Refused(
            ErrorCode.INVALID_RECORD,
            f"exactly one batch is allowed per partition: {given - size} bytes follow the first",
        )
    return Refused(ErrorCode.CORRUPT_MESSAGE, f"the batch has a length of {size} bytes, but {given} were sent")
