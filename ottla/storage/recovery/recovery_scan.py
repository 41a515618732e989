"""The scan of everything after the recovery point of one log, after a stop without the clean marker.

1. The order and the checksum of every batch are checked, and the indexes are rebuilt: in the segment that contains the
   recovery point only from where its index files are known to be on disk.
2. A torn tail, with no valid batch after it, is truncated. Below the checkpointed high watermark it is damage instead.
3. A bad batch with valid ones after it ends the log. The rest is moved to `<base>.log.corrupt-<ms>`, with the following
   segments, and one log line names the offsets. Unsynced pages that were written out of order look the same as damage:
   the file does not show the difference. Missing offsets that the cleaner has not removed end the log, too
   (`missing_offsets.py`).
4. The rest is written again, with the same bytes, and synced: after a failed sync Linux may mark lost pages as clean.

Everything below the recovery point is on disk, names included, and is neither written nor synced. The active segment's
indexes are not synced, as in operation. Called by `recovery.open_log` only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.files.files import Files, write_all
from ottla.storage.formats import layout
from ottla.storage.log.epoch_runs import EpochRuns
from ottla.storage.log.recovery_report import RecoveryReport
from ottla.storage.recovery.missing_offsets import ANYWHERE, cleaned_before
from ottla.storage.segment.damage import Soundness, examine, sound_batch_behind
from ottla.storage.segment.segment import LENGTH_UNSYNCED, Segment
from ottla.storage.segment.soundness import ENDLESS

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with (bytes checked, bytes to check) of the log that is being recovered. An exception of it ends the work,
which may be repeated."""

COPY_BYTES: Final = 1024 * 1024
SYNC_BYTES: Final = 64 * 1024 * 1024
"""The bytes that are written again before a sync: this limits the wait for the disk, which cannot be interrupted."""


def first_unsure(bases: Sequence[int], recovery_point: int) -> int:
    """The slot of the segment that was active when the recovery point was taken, 0 when there is none.

    Its indexes, and its length after a failed append that was undone, may never have been synced.
    """
    return max([slot for slot, base in enumerate(bases) if base < recovery_point], default=0)


def unsure_bytes(files: Files, directory: Path, recovery_point: int) -> int:
    """The bytes that a recovery of the log in `directory` may have to check, by its file sizes. Raises OSError."""
    parsed = (layout.parse_offset_file(name) for name in files.list_directory(directory))
    bases = sorted(found.offset for found in parsed if found is not None and found.suffix == layout.LOG_SUFFIX)
    unsure = bases[first_unsure(bases, recovery_point) :]
    return sum(files.size(layout.log_file(directory, base)) for base in unsure)


def remove_segment(files: Files, segment: Segment) -> None:
    """Close a segment and unlink its files. Raises OSError."""
    paths = segment.paths()
    segment.abandon()
    for path in paths:
        files.unlink(path)


class RecoveryScan:
    """See the module. `segments` is shortened where the log has to end; `epochs` are those of the scanned batches."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        segments: list[Segment],
        *,
        config: TopicConfig,
        now_ms: int,
        report: RecoveryReport,
        recovery_point: int,
        indexed_offset: int,
        high_watermark: int,
        gaps_before: int,
        progress: Progress | None,
    ) -> None:
        self.epochs = EpochRuns()
        self._files = files
        self._directory = directory
        self._segments = segments
        self._config = config
        self._now_ms = now_ms
        self._report = report
        self._recovery_point = recovery_point
        self._indexed_offset = min(indexed_offset, recovery_point)
        self._high_watermark = high_watermark
        self._progress = progress
        self._may_be_cleaned = gaps_before > 0 or "compact" in config.cleanup_policy
        self._gaps_before = max(gaps_before, recovery_point)
        self._done_bytes = 0
        self._all_bytes = 0
        self._has_changed_names = False
        self._must_sync_indexes = False

    def run(self) -> int:
        """Check, truncate, quarantine, write again, sync; returns the log end offset."""
        segments = self._segments
        first = slot = first_unsure([segment.base_offset for segment in segments], self._recovery_point)
        if self._may_be_cleaned:
            self._look_for_cleaning(segments[slot:])
        self._all_bytes = sum(segment.size_bytes for segment in segments[slot:])
        next_offset = segments[slot].base_offset
        while slot < len(segments):
            segment = segments[slot]
            if segment.base_offset > next_offset and segment.base_offset > self._gaps_before:
                self._end_before(slot, next_offset)
                break
            found = self._examine(slot, max(next_offset, segment.base_offset), is_first=slot == first)
            next_offset = found.next_offset
            if found.problem is not None:
                self._end_segment(slot, found)
                break
            self._write_again(segment, found)
            slot += 1
        for segment in segments[:-1]:
            if not segment.is_sealed:
                segment.seal()
                segment.sync()
        if self._must_sync_indexes:
            # The checkpoint vouches for records that are gone.
            segments[min(first, len(segments) - 1)].sync()
        segments[-1].prepare_to_append()
        if self._has_changed_names or any(
            segment.size_bytes and segment.base_offset >= self._recovery_point for segment in segments
        ):
            self._files.sync_directory(self._directory)
        return next_offset

    def _look_for_cleaning(self, segments: Sequence[Segment]) -> None:
        """Accept missing offsets as far as the batches show that the cleaner removed them."""
        if self._gaps_before == ANYWHERE:
            return
        shown = cleaned_before((segment.base_offset, segment.file, segment.size_bytes) for segment in segments)
        if shown > self._gaps_before:
            logger.warning(
                "%s: cleaned up to offset %d at least, beyond the recovery point %d, which is an old one",
                self._directory,
                shown,
                self._recovery_point,
            )
            self._gaps_before = shown

    def _examine(self, slot: int, next_offset: int, *, is_first: bool) -> Soundness:
        segment = self._segments[slot]
        is_last = slot + 1 == len(self._segments)
        start = segment.keep_indexes(self._indexed_offset) if is_first else None
        if start is None:
            segment.begin_rebuild()
            position = 0
            self._must_sync_indexes |= is_first and segment.base_offset < self._indexed_offset
        else:
            position, next_offset = start
            self._all_bytes -= position
        self._report.scanned_segments += 1

        def visit(position: int, header: BatchHeader) -> None:
            segment.index(header, position)
            self.epochs.note(header)

        return examine(
            segment.file,
            segment.size_bytes,
            next_offset=next_offset,
            check_from_offset=self._recovery_point,
            before_offset=None if is_last else self._segments[slot + 1].base_offset,
            gaps_before=self._gaps_before,
            visit=visit,
            progress=self._advance,
            start=position,
        )

    def _advance(self, size_bytes: int) -> None:
        self._report.scanned_bytes += size_bytes
        self._count(size_bytes)

    def _count(self, size_bytes: int) -> None:
        """Count bytes twice: when they are checked, and when they are on disk again."""
        self._done_bytes += size_bytes
        if self._progress is not None:
            self._progress(self._done_bytes // 2, self._all_bytes)

    def _end_before(self, slot: int, next_offset: int) -> None:
        """End the log with a segment that does not reach up to the next one, which is at `slot`."""
        base_offset = self._segments[slot].base_offset
        problem = f"no batch between offset {next_offset} and {base_offset}"
        if next_offset < self._high_watermark or self._has_sound_batch(slot, next_offset):
            self._end_log(slot, next_offset, problem)
            return
        logger.warning(
            "%s: the log ends at offset %d (%s, and no batch after it)", self._directory, next_offset, problem
        )
        self._remove_from(slot)

    def _end_segment(self, slot: int, found: Soundness) -> None:
        """End the log inside a segment: truncate a torn tail, or quarantine the rest."""
        segment = self._segments[slot]
        torn_bytes = segment.size_bytes - found.end
        behind = sound_batch_behind(segment.file, found.end, segment.size_bytes, least_offset=found.next_offset)
        is_torn = behind is None and not self._has_sound_batch(slot + 1, found.next_offset)
        if is_torn and found.next_offset >= self._high_watermark:
            logger.warning(
                "%s: torn tail of %d bytes truncated, the log ends at offset %d (%s)",
                segment.path,
                torn_bytes,
                found.next_offset,
                found.problem,
            )
            self._report.truncated_bytes += torn_bytes
            self._remove_from(slot + 1)
        else:
            self._quarantine(segment, found)
            self._end_log(slot + 1, found.next_offset, found.problem or "")
        segment.truncate(found.end, found.next_offset)
        self._write_again(segment, found)

    def _has_sound_batch(self, slot: int, least_offset: int) -> bool:
        return any(
            sound_batch_behind(segment.file, -1, segment.size_bytes, least_offset=least_offset) is not None
            for segment in self._segments[slot:]
        )

    def _remove_from(self, slot: int) -> None:
        """Unlink all segments from `slot` on."""
        for segment in self._segments[slot:]:
            remove_segment(self._files, segment)
            self._has_changed_names = True
        del self._segments[slot:]

    def _quarantine(self, segment: Segment, found: Soundness) -> None:
        """Copy the bytes after the last valid batch, synced before the segment is truncated."""
        name = f"{segment.path.name}.corrupt-{self._now_ms}"
        copy = self._files.open(segment.path.with_name(name), create=True)
        try:
            copy.truncate(0)
            for position in range(found.end, segment.size_bytes, COPY_BYTES):
                data = segment.file.pread(min(COPY_BYTES, segment.size_bytes - position), position)
                write_all(copy, [data], position - found.end)
            copy.fdatasync()
        finally:
            copy.close()
        self._files.sync_directory(self._directory)
        self._report.quarantined.append(name)

    def _end_log(self, slot: int, end_offset: int, problem: str) -> None:
        """Quarantine all segments from `slot` on."""
        last_known = self._segments[-1].base_offset
        for segment in self._segments[slot:]:
            name = f"{segment.path.name}.corrupt-{self._now_ms}"
            paths = segment.paths()
            segment.abandon()
            for path in paths[1:]:
                self._files.unlink(path)
            self._files.rename(paths[0], paths[0].with_name(name))
            self._has_changed_names = True
            self._report.quarantined.append(name)
        del self._segments[slot:]
        is_promised = self._config.ottla_acks_all == "sync" and end_offset < self._high_watermark
        logger.log(
            logging.ERROR if is_promised else logging.WARNING,
            "%s: unsynced or damaged: the log ends at offset %d, what follows (up to offset %d at least, high watermark"
            " %d) is kept as %s (%s)",
            self._directory,
            end_offset,
            last_known,
            self._high_watermark,
            ", ".join(self._report.quarantined),
            problem,
        )

    def _write_again(self, segment: Segment, found: Soundness) -> None:
        """Make the pages of the unsure region dirty again, with the same bytes, and sync them."""
        self._count(found.checked_from - found.start)
        # A process that died may have truncated a file after a failed write. If the file was not synced since, a power
        # cut restores the old length, with garbage before the next segment.
        is_unsure = segment.synced_bytes != segment.size_bytes or segment is not self._segments[-1]
        segment.synced_bytes = LENGTH_UNSYNCED  # for the last segment: until the first sync of an append
        for first in range(found.checked_from, found.end, SYNC_BYTES):
            end = min(first + SYNC_BYTES, found.end)
            for position in range(first, end, COPY_BYTES):
                data = segment.file.pread(min(COPY_BYTES, end - position), position)
                write_all(segment.file, [data], position)
            segment.file.fdatasync()
            segment.synced_bytes, is_unsure = segment.size_bytes, False
            self._count(end - first)
        if is_unsure:
            segment.file.fdatasync()
            segment.synced_bytes = segment.size_bytes
        segment.sound.add(found.checked_from, ENDLESS)
