"""The state of a log between calls: offsets, segments, epochs, producers, and their changes by syncs and failures.

`Log` adds the operations. The state is separate because all decisions to end writing, and to advance offsets after a
sync, are made here and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.storage.files.disk_errors import is_full, is_passing, level_of
from ottla.storage.files.files import Buffer, Files
from ottla.storage.files.health import DirectoryHealth
from ottla.storage.formats import layout
from ottla.storage.index.index_cache import IndexCache
from ottla.storage.log.append import NO_TIMESTAMP, Appended, BatchRules
from ottla.storage.log.append_plan import RollLimits, SegmentRun
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.log.log_reader import End, LogReader
from ottla.storage.log.recovery_report import RecoveryReport
from ottla.storage.log.sync import Place, SyncTicket, UnsyncedState
from ottla.storage.producers.producer_snapshots import Pause, ProducerSnapshots, SnapshotWrite, no_pause
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.transaction_index import AbortedTransaction
from ottla.storage.producers.transactions import LogTransactions
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_list import SegmentList

logger = logging.getLogger(__name__)

AnyLog = TypeVar("AnyLog", bound="LogState")
RedoPart = tuple[AnyLog, Segment, int, Place, int, Buffer]
"""The part of a log that the redo log has to take: the log, its active segment, the position of the first byte in its
file, the end of the log after the part, how often the file was truncated before, and the bytes. (A plain tuple, since
each log of a round has one.)"""


class LogState:
    """See the module.

    Attributes:
        directory: `<log.dirs entry>/<topic>-<partition>`.
        config: the topic's configuration; replaced by `configure`.
        log_start_offset: the first offset that may be read.
        log_end_offset: the offset of the next record.
        synced_offset: everything below it is on disk.
        recovery_point: the offset from which a start without the clean marker has to check.
        high_watermark: the end of the records that consumers see: the synced offset with `ottla.acks.all=sync`,
            otherwise the log end (docs/decisions/acknowledged-means-synced.md).
        leader_epoch: written into each batch; set by `start_leader_epoch`.
        size_bytes: the size of all `.log` files.
        recovery: the findings of the opening.
        producer_snapshots: those that wait or are being written.
        transactions: the open and aborted ones, as far as that is visible.
        on_roll: called in the middle of an append that begins a new segment; the listener may sync the old one.
        error: the reason why the log no longer writes, or None.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        *,
        topic: str,
        partition: int,
        topic_id: UUID,
        config: TopicConfig,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        health: DirectoryHealth,
        index_cache: IndexCache | None,
        report: RecoveryReport,
        snapshot_offset: int = -1,
        transactions: LogTransactions | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        self.files = files
        self.epochs = epochs
        self.producers = producers
        self.recovery = report
        self.transactions = transactions or LogTransactions()
        self.error: BaseException | None = None
        self.on_roll: Callable[[], None] | None = None
        self.segment_list = SegmentList(segments)
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.synced_offset = log_end_offset
        # If the epochs that recovery found in batches could not be written, the next start searches for them again.
        unwritten = epochs.first_unwritten_offset
        self.recovery_point = log_end_offset if unwritten is None else min(log_end_offset, unwritten)
        self.high_watermark = log_end_offset
        self.leader_epoch = max(epochs.latest, 0)
        self.size_bytes = sum(segment.size_bytes for segment in segments)
        active = self.segment_list.active
        self.reader = LogReader(self.segment_list, End(log_end_offset, active.base_offset, active.size_bytes))
        self._health = health
        self._is_of_clients = topic not in layout.INTERNAL_TOPICS
        self.index_cache = index_cache
        self.unsynced = UnsyncedState(
            files, directory, epochs, has_unsynced_names=report.has_unsynced_names, was_on_disk=report.was_on_disk
        )
        for base_offset, aborted in report.unwritten_indexes.items():
            self.unsynced.transaction_indexes.rewrite(base_offset, aborted)
        self.producer_snapshots = ProducerSnapshots(
            files,
            directory,
            self.unsynced.sync_names,
            synced_offset=snapshot_offset,
            transaction_indexes=self.unsynced.transaction_indexes,
        )
        self._active_run: SegmentRun | None = None
        self._appended = Appended([], [], NO_TIMESTAMP, -1)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Give the log a new configuration; it takes effect with the next call."""
        self.config = config
        self._rules = BatchRules(config, is_of_clients=self._is_of_clients)
        self._limits = RollLimits(config)
        self._active_run = None
        self._is_synced_before_shown = config.ottla_acks_all == "sync"
        self.unsynced.is_staged = False
        if not self._is_synced_before_shown and self.error is None:
            active = self.segment_list.active
            self._raise_high_watermark(End(self.log_end_offset, active.base_offset, active.size_bytes))

    @property
    def segments(self) -> list[Segment]:
        """Oldest first; the last one is active."""
        return self.segment_list.to_list()

    @property
    def name(self) -> str:
        """`<topic>-<partition>`, for log lines."""
        return f"{self.topic}-{self.partition}"

    @property
    def takes_writes(self) -> bool:
        """Whether it may be written: neither this nor another log of the directory has failed."""
        return self.error is None and not self._health.is_offline

    @property
    def is_shown_synced(self) -> bool:
        """Whether all that the log promises to keep through a power cut is on disk."""
        return self.synced_offset == self.log_end_offset or not self._is_synced_before_shown

    # -- writing

    def flush_indexes(self) -> None:
        """Write the pending entries of the active segment's indexes, which are written with delay. For a background
        task.
        """
        if self.takes_writes:
            try:
                self.segment_list.active.flush_indexes()
            except OSError as error:
                self._derived_file_failed(error)

    def _begin_write(self) -> BaseException | None:
        """The reason why nothing can be written, or None."""
        if self.error is not None:
            return self.error
        if self._health.is_offline:
            return OSError(f"{self.directory.parent} is offline")
        if self.leader_epoch > self.epochs.latest:
            self._note_epoch()
        return None

    def _begin_append(self) -> BaseException | None:
        """As `_begin_write`, for records, which make the log larger: a volume with little room refuses them."""
        if self._health.room_bytes <= 0:
            refusal = self._health.refusal(of_clients=self._is_of_clients)
            if refusal is not None:
                return self.error or refusal
        return self._begin_write()

    def create_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Create an empty segment that is not part of the log yet. Raises OSError."""
        self.unsynced.sync_first_name()
        return Segment.create(
            self.files,
            self.directory,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=self._limits.index_interval_bytes,
            max_index_bytes=self._limits.max_index_bytes,
            cache=self.index_cache,
        )

    def _seal(self, segment: Segment) -> None:
        """Complete the indexes of a segment that was rolled; after a failure the next sync tries again."""
        if not segment.is_sealed:
            try:
                segment.seal()
            except OSError as error:
                self._derived_file_failed(error)
        if self.unsynced.transaction_indexes.has_unwritten(segment.base_offset):
            self._write_transaction_indexes(segment.base_offset)

    def _write_transaction_indexes(self, base_offset: int | None = None) -> bool:
        """Write the waiting entries of one `.txnindex`, or of all; False after a failure, which is logged."""
        try:
            self.unsynced.transaction_indexes.write(base_offset)
        except OSError as error:
            self._derived_file_failed(error)
            return False
        return True

    def begin_snapshot(self, pause: Pause = no_pause) -> SnapshotWrite | None:
        """A producer snapshot to be written, None when there is none; call `end_snapshot` after it ran."""
        if not self.takes_writes or not self.producer_snapshots.is_due(self.synced_offset):
            return None
        if not self._write_transaction_indexes():
            return None
        return self.producer_snapshots.begin(self.synced_offset, pause)

    def end_snapshot(self, write: SnapshotWrite) -> None:
        """Record that a producer snapshot was written, or was not: then a start has more to replay."""
        self.producer_snapshots.end(write)
        if write.error is not None and not write.is_abandoned:
            self._derived_file_failed(write.error)

    def _begin_last_snapshot(self) -> SnapshotWrite | None:
        """The producer snapshot of the log end, which gets its name when the whole log is on disk; None if it exists.

        Raises OSError when the one before it has failed.
        """
        snapshots = self.producer_snapshots
        if snapshots.writing is not None:
            self._end_last_snapshot(snapshots.writing)  # its end was not reported, because the broker stops
        snapshots.take(self.log_end_offset, self.producers)
        return snapshots.begin(self.log_end_offset) if self.takes_writes else None

    def _end_last_snapshot(self, write: SnapshotWrite) -> None:
        """Record that it was written, or was not because the disk is full. Raises OSError for any other reason."""
        self.end_snapshot(write)
        if self.error is not None:
            raise OSError(f"{self.name} has failed: {self.error}")

    def _write_failed(self, error: OSError) -> None:
        logger.log(level_of(error), "%s: append failed: %s", self.name, error)
        if is_full(error):
            self._health.mark_full(error)
        elif not is_passing(error):
            self.fail(error)

    def _derived_file_failed(self, error: OSError) -> None:
        """Log that an index or snapshot could not be written: the records are safe, the file is written again or
        rebuilt later.
        """
        logger.log(level_of(error, logging.WARNING), "%s: %s", self.name, error)
        if is_full(error):
            self._health.mark_full(error)
        elif not is_passing(error):
            self.fail(error)

    # -- syncing

    def begin_sync(self) -> SyncTicket | None:
        """A ticket for everything that a sync has to cover now; None if everything is on disk, or the log has failed.

        Raises:
            RuntimeError: the last ticket was neither ended, postponed nor failed.
        """
        if self.error is not None:
            return None
        segments = self.segment_list.in_order
        active = segments[-1]
        return self.unsynced.begin(segments, (self.log_end_offset, active.base_offset, active.size_bytes), self._seal)

    def end_sync(self, ticket: SyncTicket) -> None:
        """Publish a ticket that ran: synced offset, recovery point and, in `sync`, the high watermark."""
        unsynced = self.unsynced
        if ticket is not unsynced.ticket:
            return  # the log failed in the meantime: nothing more counts as synced
        # It never goes back to the base of a segment that was rolled meanwhile: a start checks that segment's indexes
        # from any offset inside it, and offsets that the cleaner found below the recovery point stay below it.
        recovery_point = unsynced.end(ticket)
        if recovery_point > self.recovery_point:  # noqa: PLR1730  (a call for each log of a round costs time)
            self.recovery_point = recovery_point
        end_offset = self.synced_offset = ticket.end_offset
        if self._is_synced_before_shown and end_offset > self.high_watermark:
            self.high_watermark = end_offset
            self.reader.high_watermark = ticket.end

    def begin_redo(self, most_bytes: int) -> RedoPart[Self] | None:
        """The part that must be written to the redo log so that the whole log is on disk, read from the log's file.

        None if the redo log is not enough, because more than the end of the active segment has to be synced, or if the
        part has more than `most_bytes` or is not in memory. Raises OSError.
        """
        unsynced, epochs, segments = self.unsynced, self.epochs, self.segment_list.in_order
        segment = segments[-1]
        if (
            self.error is not None
            or segment.synced_bytes < 0  # the file was truncated, and may be longer on disk
            or not unsynced.is_plain
            or epochs.in_memory is not epochs.on_disk
            or (len(segments) > 1 and segments[-2].synced_bytes != segments[-2].size_bytes)
        ):
            return None
        position, size_bytes = max(segment.synced_bytes, segment.redo_bytes), segment.size_bytes
        length = size_bytes - position
        if length > most_bytes:
            return None
        data = segment.file.pread_nowait(length, position) if length else b""
        if data is None:
            return None
        return self, segment, position, (self.log_end_offset, segment.base_offset, size_bytes), segment.cuts, data

    def begin_staging(self) -> None:
        """Note that a round of the redo log has the whole log, so that appends may stage what follows. They do so with
        `sync` only.
        """
        self.unsynced.is_staged = self._is_synced_before_shown

    @staticmethod
    def end_redo(parts: Iterable[RedoPart[LogState]]) -> None:
        """Publish parts of logs that are on disk in the redo log: synced offset and, in `sync`, the high watermark. The
        recovery point does not change. For a log that has failed in the meantime, nothing counts as synced any more.
        """
        for log, segment, _, end, cuts, _ in parts:  # one call, since a round may have many logs
            if log.error is not None:
                continue
            end_offset = end[0]
            if segment.cuts == cuts:
                segment.redo_bytes = end[2]
            log.synced_offset = end_offset
            if log._is_synced_before_shown and end_offset > log.high_watermark:
                log.high_watermark = end_offset
                log.reader.high_watermark = end

    def postpone_sync(self, ticket: SyncTicket) -> None:
        """Withdraw a ticket that met NotOpened: nothing of it counts, and the next one covers all of it."""
        if ticket is self.unsynced.ticket:
            self.unsynced.postpone(ticket)

    def fail(self, error: BaseException) -> None:
        """Note that a sync or a write failed permanently: nothing is written or synced from now on, and the directory
        goes offline.
        """
        if self.error is not None:
            return
        self.error = error
        self.unsynced.ticket = None
        self.unsynced.is_staged = False
        logger.error("%s: accepts no more writes until a restart: %s", self.name, error)
        self._health.mark_offline(error if isinstance(error, OSError) else OSError(str(error)))

    def _raise_high_watermark(self, place: Place) -> None:
        if place[0] > self.high_watermark:
            self.high_watermark = place[0]
            self.reader.high_watermark = place

    # -- leader epochs

    def start_leader_epoch(self, epoch: int) -> None:
        """Begin `epoch` at the log end; the first sync of a record writes it to `leader-epoch-checkpoint`."""
        self.leader_epoch = max(self.leader_epoch, epoch)
        self._note_epoch()

    def _note_epoch(self) -> None:
        """Note that the leader epoch begins at the log end: the next sync has to write it."""
        self.epochs.note(self.leader_epoch, self.log_end_offset)
        self.unsynced.is_staged = False

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) for OffsetForLeaderEpoch; (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """The leader epoch in which `offset` was written, -1 when unknown."""
        return self.epochs.epoch_for(offset)

    # -- segments change

    def put_in_place(self, old: Sequence[Segment], new: Segment, aborted: Sequence[AbortedTransaction] = ()) -> None:
        """Replace neighbouring segments below the high watermark by the cleaner's `new` (segment_swap.py), whose
        `.txnindex` has `aborted`.
        """
        self.segment_list.replace(old, new)
        following = self.segment_list.slot_for(new.base_offset) + 1
        self.transactions.replace_aborted(new.base_offset, self.segment_list[following].base_offset, aborted)
        for segment in old:
            segment.is_deleted = True
            self.forget_segment(segment)
            self.size_bytes -= segment.size_bytes
        self.size_bytes += new.size_bytes
        place = End(*self.reader.high_watermark)
        if any(place.base_offset == segment.base_offset for segment in old):
            # The high watermark was the end of the last of them, and its bytes have moved.
            self.reader.high_watermark = End(place.offset, new.base_offset, new.size_bytes)

    def move_start(self, offset: int) -> None:
        """Move the log start to `offset`, unless it is later already."""
        if offset > self.log_start_offset:
            self.epochs.truncate_from_start(offset)
            self.log_start_offset = offset
            self.transactions.forget_before(offset)
            self.reader.forget_hints()  # no other offset may be before it

    def forget_segment(self, segment: Segment) -> None:
        """Update the state after a segment was removed from the list."""
        self._active_run = None
        self.unsynced.segment_gone(segment)
        self.unsynced.transaction_indexes.forget(segment.base_offset)
        self.reader.forget_hints()
