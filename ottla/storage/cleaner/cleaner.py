"""One cleaning of one log: only the newest record of each key stays, up to the offset where the cleaning ends.

First, as many keys of the dirty part as fit are put into an offset map. Then every segment from the start of the log to
the end of the map is copied, in groups that become one segment each. Records that the map supersedes, or whose time has
passed, are left out (`batch_cleaning.py`). The copies then replace the segments (`segment_swap.py`). Offsets do not
change. The active segment is never changed, nor any record that is not synced and stable (`cleanable.py`). A group of
one segment that keeps everything stays as it is. Kafka's Cleaner.

`LogCleaning.run` is a generator. Between two `yield`s it runs on the log owner's thread and never waits for a disk. It
yields pieces of work: functions that process about `PIECE_BYTES` and return how many bytes they have read and written.
The caller runs each in any one thread before the generator continues, throws an error of it into the generator, and may
close the generator at any time. The generator raises:

    CleaningAborted   the log was closed, retention deleted a segment, or cleanup.policy has no compact any more: no
                      error, try again later
    Uncleanable       this log cannot be cleaned, and another attempt would have the same result; nothing was changed
    OSError           the disk is full; try again later. Any other failed write has failed the log: CleaningAborted
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.storage.cleaner import segment_swap
from ottla.storage.cleaner.batch_cleaning import BatchCleaning, Pause, put_keys
from ottla.storage.cleaner.cleanable import Assessment, LogToAssess, group_segments
from ottla.storage.cleaner.cleaned_segment import CleanedSegment, SegmentTooLarge
from ottla.storage.cleaner.cleaning_reads import Unreadable, batches_of, reading
from ottla.storage.cleaner.decided_transactions import DecidedTransactions, look_at_all, may_have_transactions
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.files.disk_errors import is_full, is_passing
from ottla.storage.files.files import NotOpened
from ottla.storage.formats import layout
from ottla.storage.log.append_plan import RollLimits
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

PIECE_BYTES: Final = 1024 * 1024
"""The bytes that one piece of work reads from a log; it also writes the result."""

RETIRED_AT_A_TIME: Final = 8
"""The number of old segments whose files are renamed in one step: some forty calls, a few milliseconds if they are
slow.
"""

Work = Callable[[], int]


class CleaningAborted(Exception):
    """The log has changed since the cleaning began."""


class Uncleanable(Exception):
    """The log cannot be cleaned; the message has the reason, in one line."""


class LogCleaning:
    """See the module. Figures for log lines and metrics:

    Attributes:
        bytes_read, bytes_written: the bytes of `.log` files so far.
        bytes_before, bytes_after: the size of the segments that were replaced, and of the new ones.
        records_read, records_kept: the records copied so far.
        map_utilization: the fill level of the offset map, 0 to 1.
        end_offset: the offset up to which the log is clean, when `run` has ended.
    """

    def __init__(
        self,
        log: Log,
        state: LogToAssess,
        found: Assessment,
        *,
        dedupe_buffer_bytes: int,
        load_factor: float,
        now_ms: int,
        deletion_ms: int | None = None,
        monotonic_ms: int | None = None,
        cover: Callable[[int], None],
        checkpoint: Callable[[int], None],
        pause: Pause = lambda: None,
    ) -> None:
        """Args:
        state, found: the current state of the log, and the part to clean.
        now_ms: wall time; tombstones that are found now are kept until `delete.retention.ms` after it.
        deletion_ms: the time by which tombstones are old enough to be removed (clock_trust.py); by default `now_ms`.
        monotonic_ms: the time from which the files of old segments wait for `file.delete.delay.ms`; by default
        `now_ms`. dedupe_buffer_bytes, load_factor: `log.cleaner.dedupe.buffer.size`,
        `log.cleaner.io.buffer.load.factor`. cover: writes at least this offset to the log's row of
        `recovery-point-offset-checkpoint`, durably. checkpoint: writes the log's row of `cleaner-offset-checkpoint`,
        durably; both are called by pieces of work. pause: called by pieces of work every few hundred records.
        """
        self._log = log
        self._state = state
        self._found = found
        self._now_ms = now_ms
        self._deletion_ms = now_ms if deletion_ms is None else deletion_ms
        self._waits_from_ms = now_ms if monotonic_ms is None else monotonic_ms
        self._cover = cover
        self._checkpoint = checkpoint
        self._pause = pause
        self._limits = RollLimits(state.config)
        self._max_decompressed_bytes = state.config.ottla_batch_max_decompressed_bytes
        expected = found.first_uncleanable_offset - found.first_dirty_offset
        self._offsets = OffsetMap(dedupe_buffer_bytes, load_factor, expected)
        self.bytes_read = self.bytes_written = self.bytes_before = self.bytes_after = 0
        self.records_read = self.records_kept = 0
        self.map_utilization = 0.0
        self.end_offset = found.first_dirty_offset
        self._transactions = DecidedTransactions()
        self._old_horizon_ms = 0
        """Tombstones of formats v0 and v1 are removed from segments that were last written at or before this time."""

    def run(self) -> Generator[Work, int, None]:
        """See the module."""
        found, sealed = self._found, self._state.segments[:-1]
        if found.first_uncleanable_offset <= found.first_dirty_offset:
            return
        if may_have_transactions(self._log, sealed):
            end_offset = found.first_uncleanable_offset
            yield from self._in_pieces(look_at_all(self._transactions, self._log, self._state, end_offset), sealed)
        yield from self._in_pieces(self._fill(sealed), sealed)
        self.map_utilization = self._offsets.utilization
        end_offset = self._offsets.latest_offset + 1
        if end_offset <= found.first_dirty_offset:
            raise Uncleanable("the keys of one batch do not fit log.cleaner.dedupe.buffer.size")
        segments = [one for one in sealed if one.base_offset < end_offset]
        groups: list[list[Segment]] = []
        yield from self._in_pieces(self._group(segments, groups), segments)
        # From the first swap on offsets may be missing. After the recovery point, a start takes that for a loss.
        yield from self._written(self._cover, found.first_uncleanable_offset)
        if self._state.clean_offset is None:
            # The row shows that it was cleaned, when the log is opened or verified.
            yield from self._written(self._checkpoint, found.first_dirty_offset)
        for group in groups:
            yield from self._clean(group)
        yield from self._written(self._checkpoint, end_offset)
        self.end_offset = end_offset

    # -- pieces of work

    def _fill(self, sealed: Sequence[Segment]) -> Iterator[int]:
        """Put the dirty part's keys into the map, as many as fit."""
        found, offsets = self._found, self._offsets
        for slot, segment in enumerate(sealed):
            following = (self._state.segments[slot + 1]).base_offset
            if segment.base_offset >= found.first_uncleanable_offset:
                return
            if following <= found.first_dirty_offset:
                continue
            with reading(segment):
                position = segment.floor(found.first_dirty_offset)
            for batch, header in batches_of(segment, position):
                with reading(segment):
                    fits = put_keys(
                        offsets,
                        batch,
                        header,
                        found.first_dirty_offset,
                        self._max_decompressed_bytes,
                        self._pause,
                        self._transactions.is_aborted(header),
                    )
                if not fits:
                    return
                self.bytes_read += len(batch)
                yield len(batch)
            offsets.latest_offset = max(offsets.latest_offset, following - 1)

    def _group(self, segments: Sequence[Segment], groups: list[list[Segment]]) -> Iterator[int]:
        clean = [one for one in segments if one.base_offset < self._found.first_dirty_offset]
        if clean:
            with reading(clean[-1]):
                written_ms = self._log.files.modified_ms(clean[-1].file.path)
            self._old_horizon_ms = written_ms - self._state.config.delete_retention_ms
        config, end_offset = self._state.config, self._found.first_uncleanable_offset
        for segment in segments:
            with reading(segment):
                segment.offset_index.check()
            yield 0
        with reading(segments[0]):
            groups += group_segments(
                segments,
                max_bytes=config.segment_bytes,
                max_index_bytes=self._limits.max_index_bytes,
                end_offset=max(end_offset, self._offsets.latest_offset + 1),
            )

    def _copy(self, group: Sequence[Segment], cleaned: CleanedSegment) -> Iterator[int]:
        decision = BatchCleaning(
            self._offsets,
            now_ms=self._now_ms,
            deletion_ms=self._deletion_ms,
            delete_retention_ms=self._state.config.delete_retention_ms,
            end_offset=self._end_of(group),
            last_offset_of=self._last_offset_of,
            max_decompressed_bytes=self._max_decompressed_bytes,
            pause=self._pause,
            transactions=self._transactions,
            epoch_of=self._epoch_of,
        )
        cleaned.changes = len(group) > 1
        modified_ms = self._log.files.modified_ms
        for segment in group:
            with reading(segment):
                decision.keeps_old_tombstones = modified_ms(segment.file.path) > self._old_horizon_ms
            for batch, header in batches_of(segment, 0):
                with reading(segment):
                    kept = decision.apply(batch, header)
                if kept is not batch:
                    cleaned.changes = True
                if kept is not None:
                    cleaned.append(kept)
                    self.bytes_written += len(kept)
                self.bytes_read += len(batch)
                yield len(batch) + (0 if kept is None else len(kept))
        aborted = self._transactions.take_entries()
        if cleaned.changes:
            cleaned.complete(aborted)
        self.records_read += decision.records_read
        self.records_kept += decision.records_kept

    def _end_of(self, group: Sequence[Segment]) -> int:
        """The base offset of the segment after a group; the active one is never in a group."""
        segments = self._state.segments
        return segments[segments.index(group[-1]) + 1].base_offset

    def _last_offset_of(self, producer_id: int) -> int | None:
        entry = self._log.producers.get(producer_id)
        return entry.batches[-1].last_offset if entry is not None and entry.batches else None

    def _epoch_of(self, producer_id: int) -> int | None:
        entry = self._log.producers.get(producer_id)
        return entry.epoch if entry is not None and not entry.batches else None

    # -- the owner's thread

    def _in_pieces(self, work: Iterator[int], segments: Sequence[Segment]) -> Generator[Work, int, None]:
        """Yield `work` in pieces; it reads `segments`."""
        pieces = _Pieces(work)
        while not pieces.are_over:
            try:
                yield pieces
            except (Unreadable, SegmentTooLarge) as error:
                self._require_unchanged(segments)
                raise Uncleanable(str(error)) from None
            except OSError as error:
                self._require_unchanged(segments)
                self._write_failed(error)
            self._require_wanted(segments)

    def _clean(self, group: Sequence[Segment]) -> Generator[Work, int, None]:
        """Replace a group by a clean segment."""
        log = self._log
        self._require_wanted(group)
        log.unsynced.note_renames()
        cleaned = self._create(group)
        try:
            yield from self._in_pieces(self._copy(group, cleaned), group)
            if not cleaned.changes:
                cleaned.discard()
                return
            yield from self._synced(partial(_none, cleaned.sync), group)
            self._change_names(partial(cleaned.rename, layout.SWAP_SUFFIX))
            yield from self._synced(self._sync_names, group)
            self._require_wanted(group)
        except CleaningAborted:
            cleaned.discard()
            if self._log.takes_writes:
                # A start would finish the swap of files that are on disk as `.swap`.
                yield from self._synced(self._sync_names, [])
            raise
        except BaseException:
            cleaned.discard()
            raise
        segment_swap.begin(log, group, cleaned)
        self.bytes_before += sum(segment.size_bytes for segment in group)
        self.bytes_after += cleaned.segment.size_bytes
        waiting = list(group)
        try:
            while waiting:
                self._retire(waiting[:RETIRED_AT_A_TIME], cleaned)
                del waiting[:RETIRED_AT_A_TIME]
                yield from self._synced(self._sync_names if not waiting else _nothing, [])
        except GeneratorExit:
            self._finish_now(waiting, cleaned)
            raise
        self._change_names(partial(segment_swap.finish, cleaned))
        yield from self._synced(self._sync_names, [])

    def _create(self, group: Sequence[Segment]) -> CleanedSegment:
        log = self._log
        try:
            return CleanedSegment(
                log.files,
                log.directory,
                group,
                now_ms=self._now_ms,
                index_interval_bytes=self._limits.index_interval_bytes,
                max_index_bytes=self._limits.max_index_bytes,
                cache=log.index_cache,
            )
        except OSError as error:
            self._write_failed(error)
            raise

    def _synced(self, sync: Work, segments: Sequence[Segment]) -> Generator[Work, int, None]:
        """Yield a sync. One that fails is never tried again: the log has failed. One that could not begin, because no
        descriptor was free, is tried again: the caller waits a while before.
        """
        is_synced = False
        while not is_synced:
            try:
                yield sync
                is_synced = True
            except NotOpened:
                pass
            except OSError as error:
                self._require_unchanged(segments)
                self._log.fail(error)
            self._require_unchanged(segments)

    def _written(self, write: Callable[[int], None], offset: int) -> Generator[Work, int, None]:
        """Yield the write of a checkpoint."""
        try:
            yield partial(_none, partial(write, offset))
        except OSError as error:
            raise CleaningAborted(str(error)) from error  # already reported to the directory
        self._require_unchanged([])

    def _sync_names(self) -> int:
        self._log.unsynced.sync_names()
        return 0

    def _change_names(self, change: Callable[[], None]) -> None:
        try:
            change()
        except OSError as error:
            self._log.fail(error)
            raise CleaningAborted(str(error)) from error

    def _retire(self, segments: Sequence[Segment], cleaned: CleanedSegment) -> None:
        for segment in segments:
            self._change_names(partial(segment_swap.retire, self._log, segment, cleaned, self._waits_from_ms))

    def _finish_now(self, waiting: Sequence[Segment], cleaned: CleanedSegment) -> None:
        """Finish a swap when the broker stops: the rest takes two syncs, and otherwise a start would have to do it."""
        if self._log.takes_writes:
            try:
                for segment in waiting:
                    segment_swap.retire(self._log, segment, cleaned, self._waits_from_ms)
                self._sync_names()
                segment_swap.finish(cleaned)
                self._sync_names()
            except NotOpened:
                return  # the next start finishes it
            except OSError as error:
                self._log.fail(error)

    def _write_failed(self, error: OSError) -> None:
        """Raise the OSError for a full disk or a lack of descriptors, otherwise fail the log and raise CleaningAborted.
        The log itself has not changed yet.
        """
        if is_full(error) or is_passing(error):
            raise error
        self._log.fail(error)
        raise CleaningAborted(str(error)) from error

    def _require_wanted(self, segments: Sequence[Segment]) -> None:
        """Raise CleaningAborted if the topic is no longer compacted. Called before a swap, not during it: the response
        to such a change promised to keep every record (Kafka's LogManager.updateTopicConfig aborts the cleaning, too).
        """
        self._require_unchanged(segments)
        if "compact" not in self._log.config.cleanup_policy:
            raise CleaningAborted(f"{self._log.name} is not to be compacted any more")

    def _require_unchanged(self, segments: Sequence[Segment]) -> None:
        if not self._log.takes_writes:
            raise CleaningAborted(f"{self._log.name}: {self._log.error or 'its directory is offline'}")
        if any(segment.is_deleted for segment in segments):
            raise CleaningAborted(f"{self._log.name}: segments were deleted meanwhile")


class _Pieces:
    """A long piece of work in parts: each call does about `PIECE_BYTES` of it."""

    def __init__(self, work: Iterator[int]) -> None:
        self.are_over = False
        self._work = work

    def __call__(self) -> int:
        done_bytes = 0
        for size_bytes in self._work:
            done_bytes += size_bytes
            if done_bytes >= PIECE_BYTES:
                return done_bytes
        self.are_over = True
        return done_bytes


def _nothing() -> int:
    """A piece of work that does nothing, so that other work can run."""
    return 0


def _none(work: Callable[[], None]) -> int:
    """Run work that reads and writes almost nothing, as a piece of work."""
    work()
    return 0
