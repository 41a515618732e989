"""Retention at work on one log: what goes is renamed segment by segment, and unlinked later.

`retention.py` says which segments may go. Here is the order in which they do, which a crash may cut anywhere: first
what their batches told of producers is on disk elsewhere, then the name of the segment that stays, then readers see
the new start, then one segment after the other is renamed, each rename synced before the next. Appends and reads go on
between the steps. Made by the log that it belongs to; its owner's thread calls everything but what `steps` yields.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

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


class LogRetention:
    """See the module.

    Attributes:
        due_unlinks: files of segments that are gone, and when they may be unlinked; the cleaner adds its own.
        is_running: whether steps are under way.
    """

    def __init__(self, log: LogState, roll: Callable[[int], object]) -> None:
        """`roll` begins a new segment at the time that it is given; it raises KafkaError."""
        self._log = log
        self._roll = roll
        self.due_unlinks: list[DueUnlink] = []
        self.is_running = False
        self._after: list[Callable[[], None]] = []

    def apply(self, now_ms: int) -> list[Segment]:
        """Delete whole segments by time, size and log start; those that were renamed to `.deleted`, oldest first."""
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
        """The same one segment at a time: what is yielded is to be run, in any thread, before it goes on; there it
        calls `pause` now and then. `deletion_ms`: by which time segments are too old, `stamped_ms`: when a
        record was made, by its stamp (clock_trust.py); `monotonic_ms`: from when on their files wait. Both times are
        `now_ms` where nothing else is given.

        Throw in the OSError with which it failed. Appends and reads go on between the steps; while it is not through
        another one deletes nothing.
        """
        log = self._log
        if not log.takes_writes or self.is_running:
            return []
        old_ms = now_ms if deletion_ms is None else deletion_ms
        waits_from_ms = now_ms if monotonic_ms is None else monotonic_ms
        gone: list[Segment] = []
        self.is_running = True
        try:
            config, before = log.config, self._first_to_stay(now_ms, old_ms, stamped_ms)
            if before > log.segment_list[0].base_offset:
                before = yield from keep_producers(log, before, pause)
                if log.error is not None:
                    return gone  # it was closed meanwhile
                # The segment that stays may be new: were its name lost, and not that of the last one that goes, the log
                # would end where it once began.
                yield from self._names_synced()
            if log.config is not config:
                before = min(before, self._first_to_stay(now_ms, old_ms, stamped_ms))  # more may have to be kept now
            for segment in self._start_behind(before):
                if segment.is_deleted or not log.takes_writes:
                    break  # cleaned, or closed, since the step before, or its directory failed
                self._drop(segment, waits_from_ms)
                gone.append(segment)
                # One by one: of several renames a crash may keep any, and a gap would cut off all that follows it.
                yield from self._names_synced()
        except (OSError, KafkaError) as error:
            logger.warning("%s: retention stopped: %s", log.name, error)
        except GeneratorExit:
            self._after.clear()  # the broker has stopped: nobody is told, and nothing is made in its place
            raise
        finally:
            self._ended()
        return gone

    def _first_to_stay(self, now_ms: int, deletion_ms: int, stamped_ms: Callable[[int], int]) -> int:
        """Base offset of the first segment that is not to go; the log is rolled for it where all are."""
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
            )
        except (OSError, CorruptBatch) as error:
            logger.warning("%s: how old its segments are cannot be said: %s", log.name, error)
            count = 0
        if count == len(segments):
            try:
                self._roll(now_ms)
            except KafkaError:
                count -= 1  # a full disk takes no new segment: the others make room for it
        return log.segment_list[count].base_offset

    def _start_behind(self, before: int) -> list[Segment]:
        """Let the log start behind the segments that end at `before` at most, which are to go. Raises KafkaError."""
        log = self._log
        segments = log.segment_list.to_list()
        count = sum(following.base_offset <= before for following in segments[1:])
        if not count or not log.takes_writes:
            return []
        # First what readers may see, and its checkpoints, then the files.
        log.move_start(segments[count].base_offset)
        return segments[:count]

    def take_due_files(self, now_ms: int) -> list[Path]:
        """Files of deleted segments whose `file.delete.delay.ms` has passed, by the clock that their deletion was given
        (in a broker the monotonic one); the caller unlinks them, in any thread.

        Those that a sync has in hand wait for the next time. What is not unlinked is found by the next start.
        """
        log = self._log
        if not log.takes_writes:
            return []
        ticket = log.unsynced.ticket
        in_hand = () if ticket is None else ticket.segments()
        latest_ms = now_ms + log.config.file_delete_delay_ms
        if any(item.due_ms > latest_ms for item in self.due_unlinks):
            # The delay was made shorter, or the time that is given goes back: nothing keeps its room for a year.
            self.due_unlinks = [item._replace(due_ms=min(item.due_ms, latest_ms)) for item in self.due_unlinks]
        due = [item for item in self.due_unlinks if item.due_ms <= now_ms and item.segment not in in_hand]
        if not due:
            return []
        self.due_unlinks = [item for item in self.due_unlinks if item.due_ms > now_ms or item.segment in in_hand]
        for item in due:
            if item.segment is not None:
                item.segment.abandon()
        return [path for item in due for path in item.paths]

    def unlink_due(self, now_ms: int) -> int:
        """Unlink what `take_due_files` tells; how many files. Raises OSError."""
        return unlink_files(self._log.files, self.take_due_files(now_ms))

    def _names_synced(self) -> Generator[Callable[[], None], None, None]:
        try:
            yield self._sync_names
        except OSError as error:
            if not isinstance(error, NotOpened):  # else the next attempt begins with it
                self._log.fail(error)
            raise

    def _sync_names(self) -> None:
        self._log.unsynced.sync_names()

    def _drop(self, segment: Segment, waits_from_ms: int) -> None:
        """Rename a segment's files, its snapshot among them, and take it out of the log.

        Raises:
            OSError: it could not be renamed and stays, for the next attempt.
        """
        log = self._log
        paths = rename_deleted(log.files, log.directory, segment)
        log.segment_list.remove(segment)
        log.forget_segment(segment)
        log.size_bytes -= segment.size_bytes
        segment.is_deleted = True
        self.due_unlinks.append(DueUnlink(waits_from_ms + log.config.file_delete_delay_ms, paths, segment))

    def call_after(self, callback: Callable[[], None]) -> None:
        """Call back when no steps are under way, at once if none are: of a log that was closed, they end with the one
        that a thread has in hand, and until then may write under the path that the log had.
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
