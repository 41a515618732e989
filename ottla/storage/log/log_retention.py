"""Retention of one log: segments are renamed one by one, and unlinked later.

`retention.py` decides which segments may be deleted. This file has the order of the steps. A crash after any of them is
harmless: the producers' state from their batches is on disk elsewhere; the name of the segment that stays is synced;
readers see the new start; then one segment after the other is renamed, each rename synced before the next.
Appends and reads continue between the steps. Created by its log, whose owner's thread calls everything except what
`steps` yields.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.files.files import NotOpened
from ottla.storage.log.producer_keeping import keep_producers
from ottla.storage.log.retention import DueUnlink, deletable, rename_deleted, unlink_files
from ottla.storage.producers.producer_snapshots import Pause, no_pause
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log_state import LogState

logger = logging.getLogger(__name__)

SEGMENTS_PER_LOOK: Final = 100
"""The number of segments that are found in one step. The age of each is read from one of its batches: 25 us, and more
if that is not in memory."""


class LogRetention:
    """See the module.

    Attributes:
        due_unlinks: files of deleted segments, and the time from which they may be unlinked; the cleaner adds its own.
        is_running: whether steps are running.
    """

    def __init__(self, log: LogState, roll: Callable[[int], object]) -> None:
        """`roll(now_ms)` begins a new segment; it raises KafkaError."""
        self._log = log
        self._roll = roll
        self.due_unlinks: list[DueUnlink] = []
        self.is_running = False
        self._after: list[Callable[[], None]] = []

    def apply(self, now_ms: int) -> list[Segment]:
        """Delete whole segments by time, size and log start; returns those that were renamed to `.deleted`, oldest
        first.
        """
        steps = self.steps(now_ms)
        try:
            work = next(steps)
            while True:
                try:
                    work()
                except OSError as error:
                    work = steps.throw(error)
                else:
                    work = next(steps)
        except StopIteration as end:
            gone: list[Segment] = end.value
            return gone

    def steps(
        self,
        now_ms: int,
        pause: Pause = no_pause,
        *,
        deletion_ms: int | None = None,
        stamped_ms: Callable[[int], int] = int,
        monotonic_ms: int | None = None,
    ) -> Generator[Callable[[], None], None, list[Segment]]:
        """The same, one segment at a time: the caller runs each yielded function, in any thread, before the next step;
        the function calls `pause` from time to time. `deletion_ms`: the time by which segments are too old;
        `stamped_ms`: the time of a record by its timestamp (clock_trust.py); `monotonic_ms`: the time from which their
        files wait. The times default to `now_ms`.

        If the function fails, throw its OSError into the generator. Appends and reads continue between the steps.
        Until the steps end, another call deletes nothing.
        """
        log = self._log
        if not log.takes_writes or self.is_running:
            return []
        old_ms = now_ms if deletion_ms is None else deletion_ms
        waits_from_ms = now_ms if monotonic_ms is None else monotonic_ms
        first_to_stay = partial(self._first_to_stay, now_ms, old_ms, stamped_ms)
        gone: list[Segment] = []
        self.is_running = True
        try:
            while (yield from self._delete_some(first_to_stay, waits_from_ms, pause, gone)):
                pass
        except (OSError, KafkaError) as error:
            logger.warning("%s: retention stopped: %s", log.name, error)
        except GeneratorExit:
            self._after.clear()  # the broker has stopped: no callback, and nothing is created instead
            raise
        finally:
            self._ended()
        return gone

    def _delete_some(
        self, first_to_stay: Callable[[], int], waits_from_ms: int, pause: Pause, gone: list[Segment]
    ) -> Generator[Callable[[], None], None, bool]:
        """Delete the segments that one check of the log finds, and add them to `gone`; returns whether another check
        may find more.
        """
        log = self._log
        if not log.takes_writes:
            return False  # it was closed since the last check, or its directory failed: its indexes are closed, too
        config, before = log.config, first_to_stay()
        if before > log.segment_list[0].base_offset:
            before = yield from keep_producers(log, before, pause)
            if log.error is not None:
                return False  # it was closed meanwhile
            # The segment that stays may be new: if its name were lost, and not that of the last deleted one, the log
            # would end where it once began.
            yield from self._names_synced()
        if log.config is not config and log.takes_writes:
            before = min(before, first_to_stay())  # more may have to be kept now
        found = self._start_behind(before)
        for segment in found:
            if segment.is_deleted or not log.takes_writes:
                return False  # cleaned, or closed, since the step before, or its directory failed
            self._drop(segment, waits_from_ms)
            gone.append(segment)
            # One by one: a crash may keep any of several renames, and a start drops everything after a gap.
            yield from self._names_synced()
        return len(found) >= SEGMENTS_PER_LOOK

    def _first_to_stay(self, now_ms: int, deletion_ms: int, stamped_ms: Callable[[int], int]) -> int:
        """The base offset of the first segment that stays; rolls the log if all segments are to be deleted."""
        log = self._log
        segments = log.segment_list.to_list()
        try:
            count = deletable(
                segments,
                log.config,
                log_start_offset=log.log_start_offset,
                high_watermark=log.high_watermark,
                log_end_offset=log.log_end_offset,
                now_ms=deletion_ms,
                stamped_ms=stamped_ms,
                most=SEGMENTS_PER_LOOK,
            )
        except (OSError, CorruptBatch) as error:
            logger.warning("%s: the age of its segments cannot be read: %s", log.name, error)
            count = 0
        if count == len(segments):
            try:
                self._roll(now_ms)
            except KafkaError:
                count -= 1  # no room for a new segment: deleting the others makes room for it
        return log.segment_list[count].base_offset

    def _start_behind(self, before: int) -> list[Segment]:
        """Move the log start past the segments up to `before`, which will be deleted. Raises KafkaError."""
        log = self._log
        segments = log.segment_list.to_list()
        count = sum(following.base_offset <= before for following in segments[1:])
        if not count or not log.takes_writes:
            return []
        # First what readers may see, and its checkpoints, then the files.
        log.move_start(segments[count].base_offset)
        return segments[:count]

    def take_due_files(self, now_ms: int, most: int = sys.maxsize) -> list[Path]:
        """Files of deleted segments whose `file.delete.delay.ms` has passed, by the clock that the deletion used (in a
        broker the monotonic one); the caller unlinks them, in any thread. Stops after `most` files, but returns all
        files of a segment together, since they are closed here.

        Files that a sync is using wait for the next call. The next start finds files that were not unlinked.
        """
        log = self._log
        if not log.takes_writes:
            return []
        ticket = log.unsynced.ticket
        in_hand = () if ticket is None else ticket.segments()
        latest_ms = now_ms + log.config.file_delete_delay_ms
        if any(item.due_ms > latest_ms for item in self.due_unlinks):
            # If the delay was shortened, or the clock went back, no file must wait for a year.
            self.due_unlinks = [item._replace(due_ms=min(item.due_ms, latest_ms)) for item in self.due_unlinks]
        paths: list[Path] = []
        left: list[DueUnlink] = []
        for item in self.due_unlinks:
            if len(paths) >= most or item.due_ms > now_ms or item.segment in in_hand:
                left.append(item)
                continue
            paths += item.paths
            if item.segment is not None:
                item.segment.abandon()
        self.due_unlinks = left
        return paths

    def unlink_due(self, now_ms: int) -> int:
        """Unlink what `take_due_files` returns; returns the number of files. Raises OSError."""
        return unlink_files(self._log.files, self.take_due_files(now_ms))

    def _names_synced(self) -> Generator[Callable[[], None], None, None]:
        try:
            yield self._sync_names
        except OSError as error:
            if not isinstance(error, NotOpened):  # otherwise the next attempt begins with this sync
                self._log.fail(error)
            raise

    def _sync_names(self) -> None:
        self._log.unsynced.sync_names()

    def _drop(self, segment: Segment, waits_from_ms: int) -> None:
        """Rename a segment's files, including its snapshot, and remove it from the log.

        Raises:
            OSError: it could not be renamed and stays, for the next attempt.
        """
        log = self._log
        log.unsynced.note_renames()
        paths = rename_deleted(log.files, log.directory, segment)
        log.segment_list.remove(segment)
        log.forget_segment(segment)
        log.size_bytes -= segment.size_bytes
        segment.is_deleted = True
        self.due_unlinks.append(DueUnlink(waits_from_ms + log.config.file_delete_delay_ms, paths, segment))

    def call_after(self, callback: Callable[[], None]) -> None:
        """Call back when no steps are running, immediately if none are. After the log is closed they end with the step
        that a thread is running, which may still write under the log's former path.
        """
        if self.is_running:
            self._after.append(callback)
        else:
            callback()

    def _ended(self) -> None:
        self.is_running = False
        waiting, self._after = self._after, []
        for callback in waiting:
            callback()
