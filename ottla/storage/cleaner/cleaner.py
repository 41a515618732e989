"""One cleaning of one log: of each key only the newest record stays, as seen from where the cleaning ends.

First the keys of the dirty part go into an offset map, as many as fit. Then every segment from the start of the log to
where the map ends is copied, in groups that become one segment each, without the records that the map, or their own
time, rules out (`batch_cleaning.py`), and the copies are put in the place of the segments (`segment_swap.py`). Offsets
stay what they were; the active segment is never touched, nor anything that is not synced and stable
(`cleanable.py`). A group of one segment of which everything stays is left as it is. Kafka's Cleaner.

`LogCleaning.run` is a generator: between two `yield`s it runs on the log owner's thread and never waits for a disk;
what it yields is a piece of work, a function for any one thread that handles about `PIECE_BYTES` and returns how many
bytes it has read and written, and is to be run before the generator continues. An error of the piece is to be thrown
into the generator. Closing it at any time is fine. Raised by the generator:

    CleaningAborted   the log was closed, retention took a segment, or cleanup.policy says compact no more: nothing is
                      wrong, another time
    Uncleanable       this log cannot be cleaned, and trying again would end the same way; nothing was changed by it
    OSError           the disk is full; another time. Any other failure to write has failed the log: CleaningAborted
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
"""Read from a log by one piece of work; what comes of it is written as well."""

RETIRED_AT_A_TIME: Final = 8
"""Old segments whose files are renamed in one step: some forty calls, a few milliseconds where a call is slow."""

Work = Callable[[], int]


class CleaningAborted(Exception):
    """The log is not there any more as the cleaning found it."""


class Uncleanable(Exception):
    """The log cannot be cleaned; says why in a line."""


class LogCleaning:
    """See the module. Figures for people and metrics:

    Attributes:
        bytes_read, bytes_written: of `.log` files so far.
        bytes_before, bytes_after: of the segments that were replaced, and of those in their place.
        records_read, records_kept: so far, of the copying.
        map_utilization: how full the offset map was, 0 to 1.
        end_offset: up to where the log is clean, once `run` is over.
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
        state, found: the log and what there is to clean, of this moment.
        now_ms: wall time; tombstones that are met now are kept until `delete.retention.ms` after it.
        deletion_ms: by which time tombstones are old enough to go (clock_trust.py); `now_ms` without one.
        monotonic_ms: from when on the files of old segments wait for `file.delete.delay.ms`; `now_ms` without one.
        dedupe_buffer_bytes, load_factor: `log.cleaner.dedupe.buffer.size`, `log.cleaner.io.buffer.load.factor`.
        cover: sees to it that the log's row of `recovery-point-offset-checkpoint` is on disk and says at least as much.
        checkpoint: writes the log's row of `cleaner-offset-checkpoint`, durably; both are called by pieces of work.
        pause: called by pieces of work every few hundred records.
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
        """Tombstones of formats v0 and v1 go from segments that were last written then or before."""

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
        # From the first swap on offsets may be missing. A start takes that for a loss beyond the recovery point.
        yield from self._written(self._cover, found.first_uncleanable_offset)
        if self._state.clean_offset is None:
            # The row says it when the log is opened or verified.
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
        """Where the segment after a group begins; the active one is never in a group."""
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
        """Have `work` done piece by piece; it reads `segments`."""
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
        """Put a clean segment in the place of a group."""
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
                # What is on disk as `.swap` would be put in its place by a start.
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
        """Have a sync done. One that fails is never tried again: the log has failed. One that could
        not begin for want of a descriptor is: the caller waits a while before.
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
        """Have a checkpoint written."""
        try:
            yield partial(_none, partial(write, offset))
        except OSError as error:
            raise CleaningAborted(str(error)) from error  # the directory knows
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
        """The broker stops in the middle of a swap: what is left takes two syncs, and a start would have to do it."""
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
        """Raises one of the two. The log itself was not touched yet."""
        if is_full(error) or is_passing(error):
            raise error
        self._log.fail(error)
        raise CleaningAborted(str(error)) from error

    def _require_wanted(self, segments: Sequence[Segment]) -> None:
        """To be asked before anything is replaced, not in the middle of it: who answered that the topic keeps every
        record from now on (Kafka's LogManager.updateTopicConfig aborts the cleaning, too) promised that.
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
    """A long piece of work, cut: each call does about `PIECE_BYTES` of it."""

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
    """A piece of work that only lets others run."""
    return 0


def _none(work: Callable[[], None]) -> int:
    """A piece of work that reads and writes nothing to speak of."""
    work()
    return 0
