"""The cleaning of one batch: the decision for each record (Kafka's Cleaner.cleanInto and MemoryRecords.filterTo).

A record is removed when the map has a newer one of its key, when it has no key (only possible if the topic was not
always compacted), and when it is a tombstone after its *delete horizon* (KIP-534). The horizon belongs to the batch:
when a cleaning first finds a tombstone, it rewrites the batch with the horizon, now + `delete.retention.ms`, in the
place of the base timestamp and attribute bit 6 set; a cleaning after the horizon removes the tombstone.

A batch always keeps base offset, last offset, producer, base sequence, leader epoch, codec and timestamp type. Base
timestamp and largest timestamp become those of the records that stay. A batch without records is removed, except for
its header in two cases. It stays if the batch is the last one of a producer, whose sequence would be lost. And it stays
if the batch is the last one of its segment. So missing offsets are always between two batches of a file, and never at
its end, where a power cut has the same effect (`storage/recovery/missing_offsets.py`).

All records of an aborted transaction are removed. Markers that are not needed any more get a horizon, and are removed
after it, as tombstones are (`decided_transactions.py`). The header of a marker stays if its producer has no batch in
the log, because of its epoch.

Messages of Kafka before 0.11 (formats v0 and v1) have no such horizon: their tombstones are removed from segments that
were written `delete.retention.ms` before the last clean one or earlier, and no empty batch can replace them. The rest
of a compressed message is a compressed message of the same format.

Pure: bytes in, bytes out, in any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Compression,
    CorruptBatch,
    seal_batch,
)
from ottla.protocol.records.compression import decompress
from ottla.protocol.records.formats import any_crc_matches
from ottla.protocol.records.legacy import decode_message, encode_message_set
from ottla.storage.cleaner.decided_transactions import DecidedTransactions
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.raw_records import RawRecord, raw_records, with_timestamp_delta

RECORDS_PER_PAUSE: Final = 256
"""After this many records the caller may let other work run."""
MAX_TIMESTAMP: Final = (1 << 63) - 1
_NO_TIMESTAMP: Final = -1

Pause = Callable[[], None]
LastOffsetOf = Callable[[int], int | None]
"""The last offset that a producer is remembered to have written, None for an unknown producer."""


def require_sound(batch: bytes, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the checksum is right: repacking would give damaged bytes a right one."""
    if not any_crc_matches(batch, header):
        raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")


def payload_of(batch: bytes, header: BatchHeader, max_decompressed_bytes: int) -> bytes:
    """The records' bytes. Raises CorruptBatch."""
    codec = header.compression
    payload = memoryview(batch)[HEADER_BYTES:]
    return bytes(payload) if codec is Compression.NONE else decompress(codec, payload, max_decompressed_bytes)


def put_keys(
    offsets: OffsetMap,
    batch: bytes,
    header: BatchHeader,
    start_offset: int,
    max_decompressed_bytes: int,
    pause: Pause,
    is_aborted: bool = False,
) -> bool:
    """Put the keys of a batch's records from `start_offset` on into the map; False if it became full before the end.

    `is_aborted`: the batch is of an aborted transaction. Raises CorruptBatch.
    """
    require_sound(batch, header)
    if header.magic < MAGIC:
        for old in decode_message(batch, max_decompressed_bytes=max_decompressed_bytes, check_crc=False):
            if old.key is not None and old.offset >= start_offset and not offsets.put(old.key, old.offset):
                return False
    elif header.record_count and not header.is_control and not is_aborted:
        base_offset, put = header.base_offset, offsets.put
        data = payload_of(batch, header, max_decompressed_bytes)
        for number, record in enumerate(raw_records(data, header.record_count)):
            offset = base_offset + record.offset_delta
            if record.key is not None and offset >= start_offset and not put(record.key, offset):
                return False
            if not number % RECORDS_PER_PAUSE:
                pause()
    if header.last_offset >= start_offset:
        offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
    return True


class BatchCleaning:
    """The decision for every batch of one cleaning; see the module.

    Attributes:
        records_read, records_kept: so far.
    """

    def __init__(
        self,
        offsets: OffsetMap,
        *,
        now_ms: int,
        delete_retention_ms: int,
        end_offset: int,
        last_offset_of: LastOffsetOf,
        max_decompressed_bytes: int,
        pause: Pause,
        deletion_ms: int | None = None,
        transactions: DecidedTransactions | None = None,
        epoch_of: Callable[[int], int | None] = lambda _: None,
    ) -> None:
        """Args:
        now_ms: wall time from which a horizon is counted; `deletion_ms`: the time with which horizons are compared, if
            another.
        end_offset: the base offset of the next segment; a batch that ends there is never dropped.
        epoch_of: returns the epoch of a producer that has a marker but no batch; None for all others.
        """
        self.keeps_old_tombstones = True
        """Whether tombstones of formats v0 and v1 stay: set by the caller for each segment."""
        self.records_read = 0
        self.records_kept = 0
        self._offsets = offsets
        self._deletion_ms = now_ms if deletion_ms is None else deletion_ms
        self._horizon_ms = min(now_ms + delete_retention_ms, MAX_TIMESTAMP)
        self._end_offset = end_offset
        self._last_offset_of = last_offset_of
        self._max_decompressed_bytes = max_decompressed_bytes
        self._pause = pause
        self._transactions = transactions or DecidedTransactions()
        self._epoch_of = epoch_of

    def apply(self, batch: bytes, header: BatchHeader) -> bytes | bytearray | None:
        """Clean a batch: returns the batch itself, another one in its place, or None. Raises CorruptBatch."""
        require_sound(batch, header)
        if header.magic < MAGIC:
            return self._apply_to_message(batch, header)
        self.records_read += header.record_count
        if header.is_control:
            return self._apply_to_marker(batch, header)
        self._transactions.note_batch(header)
        data = payload_of(batch, header, self._max_decompressed_bytes) if header.record_count else b""
        kept = [] if self._transactions.is_aborted(header) else self._kept(data, header)
        self.records_kept += len(kept)
        if not kept:
            return _empty(batch, header) if self._outlives_its_records(header) else None
        sets_horizon = not header.has_delete_horizon and not all(record.has_value for record in kept)
        horizon_ms = self._horizon_of(kept, header) if sets_horizon else None
        if len(kept) == header.record_count and horizon_ms is None:
            return batch
        return _repacked(data, kept, header, horizon_ms)

    def _kept(self, data: bytes, header: BatchHeader) -> list[RawRecord]:
        offsets, base_offset = self._offsets, header.base_offset
        latest_offset, newest_of = offsets.latest_offset, offsets.get
        keeps_tombstones = not header.has_delete_horizon or self._deletion_ms < header.base_timestamp
        kept: list[RawRecord] = []
        for number, record in enumerate(raw_records(data, header.record_count)):
            offset = base_offset + record.offset_delta
            if offset > latest_offset or (
                record.key is not None and (record.has_value or keeps_tombstones) and offset >= newest_of(record.key)
            ):
                kept.append(record)
            if not number % RECORDS_PER_PAUSE:
                self._pause()
        return kept

    def _apply_to_marker(self, batch: bytes, header: BatchHeader) -> bytes | bytearray | None:
        is_over = header.has_delete_horizon and header.base_timestamp <= self._deletion_ms
        is_needed = self._transactions.needs_marker(batch, header)
        if not header.record_count or (is_over and not is_needed):
            return _empty(batch, header) if self._marker_outlives(header) else None
        self.records_kept += header.record_count
        if is_needed or header.has_delete_horizon:
            return batch
        data = payload_of(batch, header, self._max_decompressed_bytes)
        kept = list(raw_records(data, header.record_count))
        horizon_ms = self._horizon_of(kept, header)
        return batch if horizon_ms is None else _repacked(data, kept, header, horizon_ms)

    def _horizon_of(self, kept: list[RawRecord], header: BatchHeader) -> int | None:
        """The delete horizon for a batch; None if the deltas of its timestamps to that would have more than 64 bits.
        Then its tombstones stay.
        """
        deltas = [record.timestamp_delta for record in kept]
        is_possible = header.is_log_append_time or _fits(deltas, header.base_timestamp - self._horizon_ms)
        return self._horizon_ms if is_possible else None

    def _marker_outlives(self, header: BatchHeader) -> bool:
        return header.next_offset == self._end_offset or self._epoch_of(header.producer_id) == header.producer_epoch

    def _apply_to_message(self, message: bytes, header: BatchHeader) -> bytes | bytearray | None:
        offsets = self._offsets
        records = decode_message(message, max_decompressed_bytes=self._max_decompressed_bytes, check_crc=False)
        kept = [
            record
            for record in records
            if record.offset > offsets.latest_offset
            or (
                record.key is not None
                and (record.value is not None or self.keeps_old_tombstones)
                and record.offset >= offsets.get(record.key)
            )
        ]
        self._pause()
        self.records_read += len(records)
        self.records_kept += len(kept)
        if len(kept) == len(records):
            return message
        if not kept:
            return None
        stamp_ms = header.max_timestamp if header.is_log_append_time else None
        return encode_message_set(kept, header.magic, compression=header.compression, log_append_time_ms=stamp_ms)

    def _outlives_its_records(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        return header.producer_id >= 0 and header.last_offset == self._last_offset_of(header.producer_id)


def _repacked(data: bytes, kept: list[RawRecord], header: BatchHeader, horizon_ms: int | None) -> bytearray:
    """The batch with the records that stay; `horizon_ms`: its new delete horizon, None for none."""
    stamp_ms = header.max_timestamp if header.is_log_append_time else None
    attributes = header.attributes
    deltas = [record.timestamp_delta for record in kept]
    if horizon_ms is not None:
        base_timestamp = horizon_ms
        attributes |= DELETE_HORIZON_BIT
    elif header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    elif stamp_ms is not None:
        base_timestamp = stamp_ms
    elif _fits([0, header.base_timestamp], deltas[0]) and _fits(deltas, -deltas[0]):
        base_timestamp = header.base_timestamp + deltas[0]
    else:
        base_timestamp = header.base_timestamp
    if base_timestamp == header.base_timestamp and stamp_ms is None:
        body = b"".join(data[record.start : record.end] for record in kept)
    else:
        shift = header.base_timestamp - base_timestamp
        body = b"".join(
            with_timestamp_delta(
                data, record, record.timestamp_delta + shift if stamp_ms is None else stamp_ms - base_timestamp
            )
            for record in kept
        )
    newest_ms = min(header.base_timestamp + max(deltas), MAX_TIMESTAMP)
    return seal_batch(
        body,
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=newest_ms if stamp_ms is None else stamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(kept),
    )


def _fits(times: list[int], shift_ms: int) -> bool:
    """Whether timestamps, or deltas, with `shift_ms` added have at most 64 bits: clients may store any time in the
    past.
    """
    return min(times) + shift_ms >= -MAX_TIMESTAMP and max(times) + shift_ms <= MAX_TIMESTAMP


def _empty(batch: bytes, header: BatchHeader) -> bytes | bytearray:
    """The header of a batch as an empty batch; the same object if the batch is empty already."""
    attributes = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    is_empty = not header.record_count and not header.attributes & (COMPRESSION_MASK | DELETE_HORIZON_BIT)
    if is_empty and header.base_timestamp == _NO_TIMESTAMP and len(batch) == HEADER_BYTES:
        return batch
    return seal_batch(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=_NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )
