"""One partition's log: segments in the order of their base offsets, with appends at the end and reads anywhere.

Invariants:

- log_start_offset <= high_watermark <= log_end_offset, synced_offset <= log_end_offset; the high watermark never goes
  back.
- Nothing is staged: an append is planned in memory (append_plan.py), written, and only then published. A failed write
  leaves segment list, lengths, indexes and producers as they were.
- A failed sync, EIO, or a failed restore ends writing permanently; reading continues.

One thread, the owner, calls everything; only `SyncTicket.run` and `LogSlice.read_blocking` may run in other threads.
Time is passed in. Created by `recovery.open_log`. Follows Kafka's UnifiedLog and LocalLog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Final

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import parse_header, set_log_append_time
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.control import end_transaction_marker
from ottla.storage.log.append import AppendResult
from ottla.storage.log.append_plan import PlannedBatch, SegmentRun, plan_runs
from ottla.storage.log.log_append import LogAppend
from ottla.storage.log.log_reader import ANY_BYTES, End
from ottla.storage.log.log_retention import LogRetention
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.producer_state import after_marker, check_marker
from ottla.storage.producers.transaction_index import AbortedTransaction
from ottla.storage.segment import timestamp_lookup
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.slice import EMPTY_SLICE, LogSlice

logger = logging.getLogger(__name__)

SEGMENTS_PER_STEP: Final = 100
"""Segments that one step of `abandon_in_steps` closes: 25 us each."""


class LogClosed(RuntimeError):
    """The error of a log that was closed."""


class Log(LogAppend):
    """See the module; the attributes are those of LogState."""

    # -- appending (the broker's own batches; clients' are `log_append.py`'s)

    def append_internal(self, batch: bytes | bytearray, now_ms: int) -> AppendResult:
        """Store one batch of the broker itself unchanged: it may be a control batch, and has its leader epoch and
        offsets.

        Raises:
            ValueError: the bytes are not one valid batch, or it does not begin at the log end. CorruptBatch is one.
        """
        header = parse_header(batch)
        if header.size_bytes != len(batch) or crc32c(memoryview(batch)[21:]) != header.crc:
            raise ValueError(f"{self.name}: not one sound batch of {len(batch)} bytes")
        if header.base_offset != self.log_end_offset:
            raise ValueError(f"{self.name}: a batch at {header.base_offset} does not follow {self.log_end_offset}")
        self.leader_epoch = max(self.leader_epoch, header.partition_leader_epoch)
        planned = (batch, len(batch), header.base_offset, header.last_offset, header.max_timestamp)
        return self._store(planned, (), now_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        bumps_epoch: bool = False,
    ) -> AppendResult:
        """Store the control batch that ends a producer's transaction, even if none is open, as in Kafka.

        Refusals are INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED (`check_marker`). A refusal, or a failed
        write (KAFKA_STORAGE_ERROR), changes nothing.
        """
        known = self.producers.get(producer_id)
        refusal = check_marker(known, producer_id, producer_epoch, coordinator_epoch, bumps_epoch=bumps_epoch)
        if refusal is not None:
            return AppendResult(
                refusal.error_code, log_start_offset=self.log_start_offset, error_message=refusal.message
            )
        offset = self.log_end_offset
        batch = end_transaction_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=self.leader_epoch,
        )
        if self._rules.is_log_append_time:
            set_log_append_time(batch, now_ms)
        entry = after_marker(known, producer_id, producer_epoch, coordinator_epoch, now_ms, now_ms)
        result = self._store((batch, len(batch), offset, offset, now_ms), (entry,), now_ms)
        if result.error_code is ErrorCode.NONE:
            aborted = self.transactions.end(producer_id, result.base_offset, is_aborted=not is_commit)
            if aborted is not None:
                self._note_aborted(aborted)
        return result

    def _store(self, batch: PlannedBatch, producers: Sequence[ProducerEntry], now_ms: int) -> AppendResult:
        """Write one batch of the broker itself; `producers` has the changed states of producers after it."""
        problem = self._begin_write()
        if problem is not None:
            return self._storage_refusal(problem)
        run = self._run_of_active(now_ms)
        _, size_bytes, base_offset, last_offset, newest_ms = batch
        if run.add_all((batch,), size_bytes, newest_ms, now_ms):
            run.producers = producers
            error = self._write_to_active(run, last_offset + 1, now_ms)
        else:
            runs = plan_runs(run, (batch,), now_ms)
            runs[-1].producers = producers
            error = self._write(runs, last_offset + 1, now_ms)
        if error is not None:
            return self._storage_refusal(error)
        return AppendResult(ErrorCode.NONE, base_offset, last_offset, -1, self.log_start_offset)

    def _note_aborted(self, aborted: AbortedTransaction) -> None:
        """Add an entry to the index of aborted transactions, which is written later (transaction_index.py)."""
        base_offset = self.segment_list.active.base_offset
        if self.unsynced.transaction_indexes.add(base_offset, aborted):
            self._write_transaction_indexes(base_offset)

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end; nothing happens when the active one is empty.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        active = self.segment_list.active
        if not active.size_bytes:
            return
        problem = self._begin_write()
        if problem is None:
            runs = [self._run_of_active(now_ms), SegmentRun(self._limits, self.log_end_offset, None, now_ms)]
            problem = self._write(runs, self.log_end_offset, now_ms)
        if problem is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(problem))

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        at_least_one: bool = True,
        allow_map: bool = True,
        is_checked: bool = True,
        most_copied_bytes: int = ANY_BYTES,
    ) -> LogSlice:
        """Whole batches from the one that contains `offset`, at most `max_bytes`, of one segment, below `end_offset`.

        Args:
            at_least_one: the first batch is returned even if it is larger than `max_bytes` (KIP-74).
            allow_map: False if Ottla's own code will read the bytes (TLS, decoding).
            is_checked: False if the caller checks each batch itself, and continues after a damaged one.
            most_copied_bytes: a longer read without a map is left to a thread, even if the bytes are in memory.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE outside log start and log end; CORRUPT_MESSAGE for damage.
            OSError: the disk failed.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is not within [{self.log_start_offset}, {self.log_end_offset}]",
            )
        if offset >= end_offset or offset == self.log_end_offset:
            return EMPTY_SLICE
        return self.reader.read(
            offset, max_bytes, self._end(end_offset), at_least_one, allow_map, is_checked, most_copied_bytes
        )

    def visible_bytes(self, offset: int, end_offset: int) -> int:
        """`LogReader.visible_bytes` before `end_offset`. Raises OSError: the disk failed."""
        if offset >= end_offset:
            return 0
        return self.reader.visible_bytes(offset, self._end(end_offset))

    def _end(self, end_offset: int) -> End | int:
        if end_offset >= self.log_end_offset:
            active = self.segment_list.active
            return End(self.log_end_offset, active.base_offset, active.size_bytes)
        visible = End(*self.reader.high_watermark)
        return visible if end_offset == visible.offset else end_offset

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with `timestamp_ms` or later, below `end_offset`.

        Raises:
            KafkaError: CORRUPT_MESSAGE.
            OSError: the disk failed.
        """
        return self._with_epoch(
            timestamp_lookup.first_at_or_after(
                self._segments_from(self.log_start_offset),
                timestamp_ms,
                start_offset=self.log_start_offset,
                end_offset=min(end_offset, self.log_end_offset),
                max_decompressed_bytes=self._rules.max_decompressed_bytes,
            )
        )

    def offset_of_max_timestamp(self, *, end_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest timestamp (KIP-734)."""
        return self._with_epoch(
            timestamp_lookup.newest(
                self._segments_from(self.log_start_offset),
                start_offset=self.log_start_offset,
                end_offset=min(end_offset, self.log_end_offset),
                max_decompressed_bytes=self._rules.max_decompressed_bytes,
            )
        )

    def _segments_from(self, offset: int) -> list[Segment]:
        return self.segment_list.to_list()[self.segment_list.slot_for(offset) :]

    def _with_epoch(self, found: timestamp_lookup.FoundRecord | None) -> tuple[int, int, int] | None:
        if found is None:
            return None
        return found.offset, found.timestamp_ms, self.epochs.epoch_for(found.offset)

    # -- the log start

    def delete_records(self, before_offset: int) -> int:
        """Move the log start to `before_offset` (-1: the high watermark); returns the new log start offset. Retention
        removes the bytes.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE after the high watermark; KAFKA_STORAGE_ERROR.
        """
        target = self.high_watermark if before_offset == -1 else before_offset
        if target < 0 or target > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: records before {before_offset} cannot be deleted,"
                f" the high watermark is {self.high_watermark}",
            )
        self.move_start(target)
        return self.log_start_offset

    @cached_property
    def retention(self) -> LogRetention:
        """The retention of this log."""
        return LogRetention(self, self.roll)

    # -- the end

    def close(self) -> None:
        """Sync everything, write the producer snapshot, close the files. The next start then needs no recovery.

        Raises:
            RuntimeError: a sync is running, or a producer snapshot is being written.
            OSError: something is not on disk: no clean-shutdown marker must be written. The files are closed.
        """
        with self._closing() as active:
            ticket = self.begin_sync()
            if ticket is not None:
                ticket.run()
                self.end_sync(ticket)
            if self.unsynced.was_on_disk:
                active.sync_changes()
            else:
                active.sync()
            indexes = self.unsynced.transaction_indexes.begin_sync(self.log_end_offset)
            if indexes is not None:
                indexes.run()
                self.unsynced.transaction_indexes.end_sync(indexes)
            self.unsynced.sync_last_names()
            self._require_all_synced()
            snapshot = self._begin_last_snapshot()
            if snapshot is not None:
                snapshot.run()
                self._end_last_snapshot(snapshot)

    def close_by_volume(self) -> Generator[None, None, None]:
        """`close` of one log among many: at each of two `yield`s the caller syncs the volume, once for all logs, and
        throws an OSError of that into each. If the generator is closed early, files stay as they are. Raises as
        `close`.
        """
        with self._closing() as active:
            ticket = self.begin_sync()
            active.flush_indexes()
            snapshot = self._begin_last_snapshot()
            if snapshot is not None:
                snapshot.fill(is_synced=False)
            yield
            if ticket is not None:
                ticket.finish(is_covered=True)
                self.end_sync(ticket)
            self.unsynced.sync_names(is_covered=True)
            self._require_all_synced()
            if snapshot is not None:
                snapshot.give_name()
            yield
            if snapshot is not None:
                self._end_last_snapshot(snapshot)

    @contextmanager
    def _closing(self) -> Iterator[Segment]:
        """The begin and the end of both ways of closing; provides the active segment."""
        if self.unsynced.ticket is not None:
            raise RuntimeError(f"{self.name}: a sync is running")
        if self.producer_snapshots.writing is not None and not self.producer_snapshots.writing.is_over:
            raise RuntimeError(f"{self.name}: a producer snapshot is being written")
        try:
            if self.error is not None:
                raise OSError(f"{self.name} had failed: {self.error}")
            active = self.segment_list.active
            active.complete_time_index()
            self.unsynced.transaction_indexes.write()
            yield active
        except OSError as error:
            self.fail(error)
            raise
        finally:
            self.abandon()

    def _require_all_synced(self) -> None:
        if self.recovery_point != self.log_end_offset:
            raise OSError(f"{self.name}: indexes could not be completed")

    def call_when_quiet(self, callback: Callable[[], None]) -> None:
        """Call back when no thread works for this log, except for syncs; immediately if none does. Until then files may
        be created under the path of a closed log.
        """
        self.retention.call_after(partial(self.producer_snapshots.call_after, callback))

    def abandon(self) -> None:
        """Close the files without further writes: for an offline directory, and for deletion."""
        for _ in self.abandon_in_steps():
            pass

    def abandon_in_steps(self) -> Iterator[None]:
        """As `abandon`, in steps: nothing is written from now on, and each step closes the files of `SEGMENTS_PER_STEP`
        segments. A further call returns the steps that are left.
        """
        return self._steps_of_abandonment

    @cached_property
    def _steps_of_abandonment(self) -> Iterator[None]:
        if self.error is None:
            self.error = LogClosed(f"{self.name} is closed")
        self.unsynced.abandon()
        self.producer_snapshots.abandon()
        deleted = [item.segment for item in self.retention.due_unlinks if item.segment is not None]
        return _abandon_some([*self.segment_list, *deleted])


def _abandon_some(segments: Sequence[Segment]) -> Iterator[None]:
    for number, segment in enumerate(segments):
        if number and number % SEGMENTS_PER_STEP == 0:
            yield
        segment.abandon()
