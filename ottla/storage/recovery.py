"""Opening a log: what is trusted, what is looked at again, what is cut and what is kept aside (decisions.md 7).

After a clean stop nothing is scanned: the indexes say where the last batches lie, and they must fit. Without the
clean marker everything from the recovery point on is unsure. There

1. every batch is walked, its order and checksum are checked, the indexes are made anew;
2. a torn tail, with no sound batch behind it, is cut; not so below the checkpointed high watermark, where it is damage;
3. a bad batch with sound ones behind it ends the log; the rest goes to `<base>.log.corrupt-<ms>`, following segments
   with it, and one log line names the offsets. Unsynced pages that were written out of order look just like damage:
   the file cannot tell;
4. what stays is written again, the same bytes, and synced: after a failed sync Linux may call lost pages clean.

All of it may be interrupted and done again. Only then are leader epochs and producers loaded and the log served.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.storage import leftovers
from ottla.storage.append_plan import RollLimits
from ottla.storage.checkpoint import BrokenFile
from ottla.storage.damage import Soundness, examine, sound_batch_behind
from ottla.storage.files import Files, write_all
from ottla.storage.health import DirectoryHealth, IndependentDirectory
from ottla.storage.leader_epoch_checkpoint import EpochEntry, read_leader_epochs
from ottla.storage.leader_epochs import LeaderEpochs
from ottla.storage.log import Log
from ottla.storage.producer_recovery import load_producers, remove_stray_snapshots, write_again
from ottla.storage.recovery_report import RecoveryReport
from ottla.storage.scan import SEQUENTIAL_CHUNK_BYTES, walk
from ottla.storage.segment import Segment
from ottla.storage.sparse_index import IndexCache

__all__ = ["Progress", "RecoveryReport", "open_log"]

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with (bytes looked at, bytes to look at) of the log that is being recovered."""

COPY_BYTES: Final = 1024 * 1024


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
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    was_cleaned: bool = False,
    producer_id_expiration_ms: int | None = None,
    health: DirectoryHealth | None = None,
    index_cache: IndexCache | None = None,
    progress: Progress | None = None,
) -> Log:
    """Open the log in `directory` (which exists; a new one is empty and gets its first segment).

    Args:
        directory: `<log.dirs entry>/<topic>-<partition>`.
        was_clean: the clean-shutdown marker was there: nothing is scanned.
        recovery_point, log_start_offset, high_watermark: from the checkpoints, 0 where they name nothing.
        was_cleaned: the cleaner has been there, so that offsets may be missing, whatever the topic says now.
        producer_id_expiration_ms: `producer.id.expiration.ms`; None takes the broker's.
        health: of the directory in `log.dirs`; is told about a full or failing disk.
        index_cache: bounds the memory of sealed segments' indexes, for all logs together.
        progress: called now and then while scanning.

    Raises:
        OSError: the directory cannot be read or repaired; it is for the manager to call it offline.
    """
    opening = _Opening(files, directory, config, now_ms, index_cache, RecoveryReport(was_clean=was_clean))
    bases = leftovers.tidy(files, directory)
    segments = [opening.segment(base, sealed=base != bases[-1]) for base in bases]
    end_offset = _trusted_end(opening, segments) if was_clean else None
    if end_offset is None and segments:
        start = recovery_point if not was_clean else segments[-1].base_offset
        allow_gaps = was_cleaned or "compact" in config.cleanup_policy
        end_offset = _Scan(opening, segments, start, high_watermark, allow_gaps, progress).run()
    if not segments or end_offset is None or end_offset < log_start_offset:
        _start_empty(opening, segments, log_start_offset)
        end_offset = log_start_offset
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs = _load_epochs(opening, segments, end_offset)
    expiration_ms = (
        config.broker.producer_id_expiration_ms if producer_id_expiration_ms is None else producer_id_expiration_ms
    )
    producers, snapshot_offset = load_producers(
        files,
        directory,
        segments,
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        expiration_ms=expiration_ms,
        now_ms=now_ms,
    )
    if not was_clean:
        snapshot_offset = write_again(files, directory, producers, end_offset)
    remove_stray_snapshots(files, directory, [segment.base_offset for segment in segments])
    if not was_clean:
        files.sync_directory(directory)
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
        log_start_offset=log_start_offset,
        log_end_offset=end_offset,
        health=health or IndependentDirectory(),
        index_cache=index_cache,
        report=opening.report,
        snapshot_offset=snapshot_offset,
    )


class _Opening:
    """What every step of opening one log needs."""

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
        self.scanned_epochs: list[EpochEntry] = []
        self._limits = RollLimits(config)
        self._index_cache = index_cache

    def segment(self, base_offset: int, *, sealed: bool) -> Segment:
        """Open a segment; indexes that are missing are empty and marked lost."""
        segment, index_lost = Segment.open(
            self.files,
            self.directory,
            base_offset,
            sealed=sealed,
            now_ms=self.now_ms,
            index_interval_bytes=self._limits.index_interval_bytes,
            max_index_bytes=self._limits.max_index_bytes,
            cache=self._index_cache,
        )
        if index_lost:
            self.report.rebuilt_indexes += 1
            try:
                segment.rebuild_indexes(seal=sealed)
            except CorruptBatch as error:
                logger.warning("%s: %s: its indexes are made up to there", segment.path, error)
        return segment

    def create(self, base_offset: int) -> Segment:
        """Make an empty segment."""
        segment = Segment.create(
            self.files,
            self.directory,
            base_offset,
            now_ms=self.now_ms,
            index_interval_bytes=self._limits.index_interval_bytes,
            max_index_bytes=self._limits.max_index_bytes,
            cache=self._index_cache,
        )
        self.files.sync_directory(self.directory)
        return segment


def _trusted_end(opening: _Opening, segments: list[Segment]) -> int | None:
    """The log end after a clean stop, None when the files do not bear the marker out."""
    if not segments:
        return None
    try:
        return segments[-1].restore_index_state()
    except CorruptBatch as error:
        logger.warning("%s: stopped cleanly, yet %s", opening.directory, error)
        return None


def _start_empty(opening: _Opening, segments: list[Segment], offset: int) -> None:
    """A log without records that begins at `offset`; segments that end before the log start are gone for readers
    anyway.
    """
    for segment in segments:
        logger.warning("%s: segment %d lies before the log start %d", opening.directory, segment.base_offset, offset)
        _remove(opening.files, segment)
    segments[:] = [opening.create(offset)]


def _remove(files: Files, segment: Segment) -> None:
    paths = segment.paths()
    segment.abandon()
    for path in paths:
        files.unlink(path)


def _load_epochs(opening: _Opening, segments: list[Segment], end_offset: int) -> LeaderEpochs:
    """The checkpoint's epochs, those found in scanned batches, nothing beyond the log end."""
    try:
        entries = read_leader_epochs(opening.files, opening.directory)
    except BrokenFile as error:
        logger.warning("%s; the epochs are taken from the batches", error)
        entries = []
        opening.scanned_epochs = _epochs_of_batches(segments)
    epochs = LeaderEpochs(opening.files, opening.directory, entries)
    epochs.truncate_from_end(end_offset + 1)
    for entry in opening.scanned_epochs:
        epochs.assign(entry.epoch, entry.start_offset)
    return epochs


def _epochs_of_batches(segments: list[Segment]) -> list[EpochEntry]:
    found: list[EpochEntry] = []
    for segment in segments:
        for _, header in walk(segment.file.pread, 0, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
            if header.partition_leader_epoch > (found[-1].epoch if found else -1):
                found.append(EpochEntry(header.partition_leader_epoch, header.base_offset))
    return found


class _Scan:
    """The walk over everything past the recovery point of one log. `segments` is cut where the log has to end."""

    def __init__(
        self,
        opening: _Opening,
        segments: list[Segment],
        recovery_point: int,
        high_watermark: int,
        allow_gaps: bool,
        progress: Progress | None,
    ) -> None:
        self._opening = opening
        self._files = opening.files
        self._segments = segments
        self._recovery_point = recovery_point
        self._high_watermark = high_watermark
        self._progress = progress
        self._allow_gaps = allow_gaps
        self._done_bytes = 0
        self._all_bytes = 0

    def run(self) -> int:
        """Check, cut, keep aside, write again, sync; the log end offset."""
        segments = self._segments
        # The segment that was active when the point was taken: its indexes, and its length after a failed append that
        # was taken back, may never have been synced.
        last_synced = self._recovery_point - 1
        slot = max([number for number, one in enumerate(segments) if one.base_offset <= last_synced], default=0)
        self._all_bytes = sum(segment.size_bytes for segment in segments[slot:])
        next_offset = segments[slot].base_offset
        while slot < len(segments):
            segment = segments[slot]
            if (
                segment.base_offset > next_offset
                and segment.base_offset > self._recovery_point
                and not self._allow_gaps
            ):
                self._end_log(slot, next_offset, f"no batch between offset {next_offset} and {segment.base_offset}")
                break
            found = self._examine(slot, max(next_offset, segment.base_offset))
            next_offset = found.next_offset
            if found.problem is not None:
                self._end_segment(slot, found)
                break
            self._write_again(segment, found)
            slot += 1
        for number, segment in enumerate(segments):
            if number + 1 < len(segments) and not segment.is_sealed:
                segment.seal()
                segment.sync()
        segments[-1].prepare_to_append()
        self._files.sync_directory(self._opening.directory)
        self._check_high_watermark(next_offset)
        return next_offset

    def _examine(self, slot: int, next_offset: int) -> Soundness:
        segment = self._segments[slot]
        is_last = slot + 1 == len(self._segments)
        segment.begin_rebuild()
        self._opening.report.scanned_segments += 1

        def visit(position: int, header: BatchHeader) -> None:
            segment.index(header, position)
            scanned = self._opening.scanned_epochs
            if header.partition_leader_epoch > (scanned[-1].epoch if scanned else -1):
                scanned.append(EpochEntry(header.partition_leader_epoch, header.base_offset))

        found = examine(
            segment.file,
            segment.size_bytes,
            next_offset=next_offset,
            check_from_offset=self._recovery_point,
            before_offset=None if is_last else self._segments[slot + 1].base_offset,
            allow_gaps=self._allow_gaps,
            visit=visit,
            progress=self._advance,
        )
        return found

    def _advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self._opening.report.scanned_bytes += size_bytes
        if self._progress is not None:
            self._progress(self._done_bytes, self._all_bytes)

    def _end_segment(self, slot: int, found: Soundness) -> None:
        """The log ends inside a segment: cut a torn tail, or keep the rest aside."""
        segment = self._segments[slot]
        torn_bytes = segment.size_bytes - found.end
        behind = sound_batch_behind(segment.file, found.end, segment.size_bytes, least_offset=found.next_offset)
        is_torn = behind is None and not self._has_sound_batch(slot + 1, found.next_offset)
        if is_torn and found.next_offset >= self._high_watermark:
            logger.warning(
                "%s: torn tail of %d bytes cut, the log ends at offset %d (%s)",
                segment.path,
                torn_bytes,
                found.next_offset,
                found.problem,
            )
            self._opening.report.truncated_bytes += torn_bytes
            for following in self._segments[slot + 1 :]:
                _remove(self._files, following)
        else:
            self._keep_aside(segment, found)
            self._end_log(slot + 1, found.next_offset, found.problem or "")
        del self._segments[slot + 1 :]
        segment.truncate(found.end, found.next_offset)
        self._write_again(segment, found)

    def _has_sound_batch(self, slot: int, least_offset: int) -> bool:
        return any(
            sound_batch_behind(segment.file, -1, segment.size_bytes, least_offset=least_offset) is not None
            for segment in self._segments[slot:]
        )

    def _keep_aside(self, segment: Segment, found: Soundness) -> None:
        """Copy what follows the last sound batch, synced before the segment is cut."""
        name = f"{segment.path.name}.corrupt-{self._opening.now_ms}"
        copy = self._files.open(segment.path.with_name(name), create=True)
        try:
            copy.truncate(0)
            for position in range(found.end, segment.size_bytes, COPY_BYTES):
                data = segment.file.pread(min(COPY_BYTES, segment.size_bytes - position), position)
                write_all(copy, [data], position - found.end)
            copy.fdatasync()
        finally:
            copy.close()
        self._files.sync_directory(self._opening.directory)
        self._opening.report.kept_aside.append(name)

    def _end_log(self, slot: int, end_offset: int, problem: str) -> None:
        """Keep aside all segments from `slot` on."""
        last_known = self._segments[-1].base_offset
        for segment in self._segments[slot:]:
            name = f"{segment.path.name}.corrupt-{self._opening.now_ms}"
            paths = segment.paths()
            segment.abandon()
            for path in paths[1:]:
                self._files.unlink(path)
            self._files.rename(paths[0], paths[0].with_name(name))
            self._opening.report.kept_aside.append(name)
        del self._segments[slot:]
        is_promised = self._opening.config.ottla_acks_all == "sync" and end_offset < self._high_watermark
        logger.log(
            logging.ERROR if is_promised else logging.WARNING,
            "%s: unsynced or damaged: the log ends at offset %d, what follows (up to offset %d at least, high watermark"
            " %d) is kept as %s (%s)",
            self._opening.directory,
            end_offset,
            last_known,
            self._high_watermark,
            ", ".join(self._opening.report.kept_aside),
            problem,
        )

    def _write_again(self, segment: Segment, found: Soundness) -> None:
        """Make the pages of the unsure region dirty again, with the same bytes, and sync them."""
        for position in range(found.checked_from, found.end, COPY_BYTES):
            data = segment.file.pread(min(COPY_BYTES, found.end - position), position)
            write_all(segment.file, [data], position)
        segment.sync()
        segment.synced_bytes = segment.size_bytes

    def _check_high_watermark(self, end_offset: int) -> None:
        if self._opening.config.ottla_acks_all == "sync" and end_offset < self._high_watermark:
            self._opening.report.lost_below_high_watermark = True
            logger.error(
                "%s: the log ends at offset %d, below its high watermark %d: records that were acknowledged are gone",
                self._opening.directory,
                end_offset,
                self._high_watermark,
            )
