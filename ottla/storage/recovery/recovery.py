"""Opening a log: which parts are trusted, checked again, truncated and quarantined.

After a clean stop nothing is scanned: the indexes have the positions of the last batches, which must match the files.
Without the clean marker everything from the recovery point on is unsure. There recovery_scan.py checks every batch, and
truncates, quarantines, writes again and syncs. All of it may be interrupted and repeated. Only then are leader epochs
and producers loaded, and the log is served (docs/decisions/a-start-trusts-nothing-unsynced.md).

No log ends before the offset that its checkpoints record: see `lost_end.py`. Segments below the log start are removed
by retention, as in operation: nothing here unlinks a segment because of a small file.

A log without an unsure part needs no sync here: names that may not be durable yet (an empty segment's) are covered by
the log's first group sync, as in operation.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.errors import StorageError
from ottla.storage.files.files import Files
from ottla.storage.files.health import DirectoryHealth, IndependentDirectory
from ottla.storage.formats import layout
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry
from ottla.storage.formats.lost_starts import begins_late
from ottla.storage.index.index_cache import IndexCache
from ottla.storage.log.append_plan import RollLimits
from ottla.storage.log.log import Log
from ottla.storage.log.recovery_report import RecoveryReport
from ottla.storage.producers.producer_recovery import load_producers, remove_stray_snapshots, scan_transactions
from ottla.storage.producers.transactions import (
    NONE_OPEN,
    LogTransactions,
    TransactionReplay,
    load_transactions,
    sync_transaction_indexes,
)
from ottla.storage.recovery import leftovers
from ottla.storage.recovery.epoch_recovery import load_epochs
from ottla.storage.recovery.lost_end import is_possible, leave_gap, require_possible
from ottla.storage.recovery.recovery_scan import Progress, RecoveryScan, first_unsure
from ottla.storage.segment.segment import Segment

__all__ = ["Progress", "RecoveryReport", "open_log"]

logger = logging.getLogger(__name__)


def open_log(
    files: Files,
    directory: Path,
    *,
    topic: str,
    partition: int,
    topic_id: UUID,
    config: TopicConfig,
    now_ms: int,
    was_clean: bool = True,
    is_new: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    reached: int | None = None,
    indexed_offset: int = 0,
    gaps_before: int = 0,
    is_log_start_certain: bool = True,
    knows_log_starts: bool = False,
    producer_id_expiration_ms: int | None = None,
    health: DirectoryHealth | None = None,
    index_cache: IndexCache | None = None,
    progress: Progress | None = None,
) -> Log:
    """Open the log in `directory`, which exists; an empty one is new and gets its first segment.

    Args:
        directory: `<log.dirs entry>/<topic>-<partition>`.
        was_clean: the clean-shutdown marker existed: nothing is scanned.
        is_new: this process has created the directory, and its first sync covers the files in it.
        recovery_point, log_start_offset, high_watermark: from the checkpoints, 0 without a row.
        reached: the offset that the log had reached, if a repair knows it better than the checkpoints; None uses those.
            An impossible value is ignored, for which a start refuses.
        indexed_offset: the offset up to which the index files of its segment are known to be on disk, 0 if unknown;
            they are rebuilt from there on.
        gaps_before: offsets below it may be missing (`missing_offsets.py`), whatever the topic's configuration is now.
        is_log_start_certain: the checksum of its file confirms `log_start_offset`.
        knows_log_starts: whether a log start is on disk before a segment below it is unlinked: true for Ottla's logs,
            but not for a metadata log, which begins at the offset of its snapshot if it was rebuilt.
        producer_id_expiration_ms: `producer.id.expiration.ms`; None uses the default.
        health: that of the directory in `log.dirs`; is notified of a full or failing disk.
        index_cache: limits the memory of sealed segments' indexes, for all logs together.
        progress: called from time to time while scanning.

    Raises:
        StorageError: the checkpoints contradict this log; nothing was freed or lost.
        OSError: the directory cannot be read or repaired; the manager decides whether it is offline.
    """
    opening = _Opening(files, directory, config, now_ms, index_cache, RecoveryReport(was_clean=was_clean))
    contents = leftovers.tidy(files, directory)
    bases = contents.bases
    scanned = bases[first_unsure(bases, recovery_point) :] if not was_clean else []
    segments = [opening.segment(base, sealed=base != bases[-1], is_scanned=base in scanned) for base in bases]
    end_offset = _trusted_end(opening, segments) if was_clean else None
    opening.report.was_on_disk = end_offset is not None
    if end_offset is None and segments:
        scan = RecoveryScan(
            files,
            directory,
            segments,
            config=config,
            now_ms=now_ms,
            report=opening.report,
            recovery_point=recovery_point if not was_clean else segments[-1].base_offset,
            indexed_offset=indexed_offset if not was_clean else 0,
            high_watermark=high_watermark,
            gaps_before=gaps_before,
            progress=progress,
        )
        end_offset = scan.run()
        opening.scanned_epochs = scan.epochs.entries()
    if not segments or end_offset is None:
        segments[:] = [opening.create(log_start_offset)]
        end_offset = log_start_offset
    if reached is None:
        reached = max(recovery_point, high_watermark, end_offset)
    else:
        known = (reached, log_start_offset)
        reached = max([end_offset, *(offset for offset in known if is_possible(end_offset, offset))])
        log_start_offset = min(log_start_offset, reached)
    next_offset = max(reached, log_start_offset)
    try:
        _require_sense(opening, end_offset, reached, log_start_offset, is_certain=is_log_start_certain)
    except StorageError:
        for segment in segments:
            segment.abandon()
        raise
    _report_late_beginning(opening, segments[0].base_offset, log_start_offset, is_known=knows_log_starts)
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    is_founded = is_new or was_clean or recovery_point > 0
    epochs = load_epochs(
        files, directory, segments, opening.scanned_epochs, log_start_offset, end_offset, is_founded=is_founded
    )
    expiration_ms = (
        config.broker.producer_id_expiration_ms if producer_id_expiration_ms is None else producer_id_expiration_ms
    )
    snapshot_count = len(contents.snapshots)
    producers, snapshot_offset, replayed = load_producers(
        files,
        directory,
        segments,
        log_end_offset=end_offset,
        expiration_ms=expiration_ms,
        now_ms=now_ms,
        snapshots=contents.snapshots,
    )
    transactions = _load_transactions(opening, segments, contents, end_offset, replayed, scanned)
    if end_offset < next_offset:
        _report_lost_end(opening, end_offset, next_offset, log_start_offset, recovery_point)
        if was_clean:
            segments[-1].rebuild_indexes(seal=False)  # they may have entries of lost records
        # Snapshots and `.txnindex` files of lost records must not reappear when the log has grown past them.
        files.sync_directory(directory)
        leave_gap(segments, end_offset, next_offset, max(epochs.latest, 0), opening.create)
        end_offset = next_offset
    if was_clean:
        remove_stray_snapshots(files, directory, contents.snapshots, [segment.base_offset for segment in segments])
    else:
        # It is unknown which snapshots are on disk: all of them stay, and one is written before segments are deleted.
        snapshot_offset = -1
    if contents.has_changed or len(contents.snapshots) != snapshot_count:
        # Before any append: files that were removed here must not reappear and be taken for files of other records.
        files.sync_directory(directory)
    elif not was_clean and segments[-1].base_offset >= recovery_point:
        opening.report.has_unsynced_names = True
    return Log(
        files,
        directory,
        topic=topic,
        partition=partition,
        topic_id=topic_id,
        config=config,
        segments=segments,
        epochs=epochs,
        producers=producers,
        transactions=transactions,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        health=health or IndependentDirectory(),
        index_cache=index_cache,
        report=opening.report,
        snapshot_offset=snapshot_offset,
    )


class _Opening:
    """The data that every step of opening one log needs."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: TopicConfig,
        now_ms: int,
        index_cache: IndexCache | None,
        report: RecoveryReport,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.report = report
        self.scanned_epochs: Sequence[EpochEntry] = ()
        self._limits = RollLimits(config)
        self._index_cache = index_cache

    def segment(self, base_offset: int, *, sealed: bool, is_scanned: bool) -> Segment:
        """Open a segment. Missing indexes are rebuilt, unless it `is_scanned`: the scan rebuilds them.

        Those of a sealed segment are synced: the next start trusts what it finds below the recovery point, and a power
        cut may leave zeros in a file that was not synced.
        """
        segment, index_lost = Segment.open(
            self.files,
            self.directory,
            base_offset,
            sealed=sealed,
            is_unsure=is_scanned,
            now_ms=self.now_ms,
            index_interval_bytes=self._limits.index_interval_bytes,
            max_index_bytes=self._limits.max_index_bytes,
            cache=self._index_cache,
        )
        if index_lost:
            self.report.rebuilt_indexes += 1
        if index_lost and not is_scanned:
            try:
                segment.rebuild_indexes(seal=sealed)
            except CorruptBatch as error:
                logger.warning("%s: %s: its indexes are rebuilt up to there", segment.path, error)
            if sealed:
                segment.offset_index.sync()
                segment.time_index.sync()
        return segment

    def create(self, base_offset: int) -> Segment:
        """Create an empty segment."""
        segment = Segment.create(
            self.files,
            self.directory,
            base_offset,
            now_ms=self.now_ms,
            index_interval_bytes=self._limits.index_interval_bytes,
            max_index_bytes=self._limits.max_index_bytes,
            cache=self._index_cache,
        )
        self.report.has_unsynced_names = True
        return segment


def _trusted_end(opening: _Opening, segments: list[Segment]) -> int | None:
    """The log end after a clean stop, None if the files contradict the marker."""
    if not segments:
        return None
    try:
        return segments[-1].restore_index_state()
    except CorruptBatch as error:
        logger.warning("%s: stopped cleanly, yet %s", opening.directory, error)
        return None


def _require_sense(
    opening: _Opening, end_offset: int, reached: int, log_start_offset: int, *, is_certain: bool
) -> None:
    """Refuse a log start after everything that the log is known to have had. After a crash it can be right, since
    deleted records may have been lost, too: if its checksum `is_certain`, or with `page-cache`. Otherwise it is wrong
    and would hide all records. Also refuse an impossible log end. Raises StorageError.
    """
    require_possible(opening.directory, end_offset, max(reached, log_start_offset))
    may_be = not opening.report.was_clean and (is_certain or opening.config.ottla_acks_all != "sync")
    if log_start_offset <= reached or may_be:
        return
    root = opening.directory.parent
    raise StorageError(
        f"{root / layout.LOG_START_OFFSET_CHECKPOINT_FILE}: {opening.directory.name} is said to begin at offset"
        f" {log_start_offset}, and its log ends at {end_offset}; stop the broker and run"
        f" `ottla log verify --repair {root}`"
    )


def _report_late_beginning(opening: _Opening, first_base_offset: int, log_start_offset: int, *, is_known: bool) -> None:
    """Log that the first segments are missing; after a crash only if the log start `is_known` to be written in time."""
    if opening.report.was_clean:
        is_late = begins_late(opening.files, opening.directory, first_base_offset, log_start_offset)
    else:
        is_late = is_known and first_base_offset > log_start_offset
    if is_late:
        logger.error(
            "%s: the log began at offset %d when it was stopped, and its first segment begins at %d: the files before"
            " it are missing, and so are their records",
            opening.directory,
            log_start_offset,
            first_base_offset,
        )


def _report_lost_end(
    opening: _Opening, end_offset: int, next_offset: int, log_start_offset: int, recovery_point: int
) -> None:
    """Log which offsets are lost, and that they are not assigned again."""
    report = opening.report
    report.gap = end_offset, next_offset
    is_promised = report.was_clean or opening.config.ottla_acks_all == "sync" or end_offset < recovery_point
    first = max(end_offset, log_start_offset)
    if first >= next_offset:
        logger.warning(
            "%s: the log ends at offset %d; what is missing before its log start %d was deleted: it begins there",
            opening.directory,
            end_offset,
            log_start_offset,
        )
        return
    report.lost_below_high_watermark = is_promised
    logger.log(
        logging.ERROR if is_promised else logging.WARNING,
        "%s: the log ends at offset %d, and had reached %d when that was last written down: %s are gone, offsets %d to"
        " %d; the next record gets offset %d, in a new leader epoch",
        opening.directory,
        end_offset,
        next_offset,
        "records that were acknowledged" if is_promised else "records that were not synced",
        first,
        next_offset - 1,
        next_offset,
    )


def _load_transactions(
    opening: _Opening,
    segments: list[Segment],
    contents: leftovers.Contents,
    end_offset: int,
    replayed: TransactionReplay,
    scanned: Sequence[int],
) -> LogTransactions:
    """`scanned`: base offsets of the segments that were not known to be on disk."""
    bases, indexes = [segment.base_offset for segment in segments], contents.transaction_indexes
    for base_offset in indexes:
        if base_offset not in bases:  # its segment is gone; another one may begin there later
            opening.files.unlink(layout.txn_index_file(opening.directory, base_offset))
    transactions = load_transactions(
        opening.files,
        opening.directory,
        bases,
        indexes,
        lost=contents.lost_transaction_indexes,
        log_end_offset=end_offset,
        replayed=replayed,
        scan=partial(scan_transactions, segments),
        unwritten=opening.report.unwritten_indexes.__setitem__,
    )
    if not opening.report.unwritten_indexes:
        for path in contents.lost_transaction_indexes:
            opening.files.unlink(path)
    # A snapshot of this run relies on the content of these files, of which no page may be on disk yet.
    unsure = set(indexes).intersection(scanned)
    contents.has_changed |= sync_transaction_indexes(opening.files, opening.directory, unsure)
    if transactions.first_open_offset < NONE_OPEN:
        logger.info(
            "%s: a transaction of producer %d is open since offset %d: readers of committed records get nothing from"
            " there on until it is ended",
            opening.directory,
            next(iter(replayed.open_offsets)),
            transactions.first_open_offset,
        )
    return transactions
