"""Planted bugs of the redo log: one for each way to get it wrong (`bugs.py` says what planted bugs are for)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from kit.simulator import machine
from kit.simulator.planting import before, bug, yes

from ottla.broker.partitions.appending import PartitionAppend
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_round import SyncRound
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.redo_log import RedoLog
from ottla.storage.log.log import Log
from ottla.storage.log.log_state import LogState
from ottla.storage.recovery import redo
from ottla.storage.recovery.redo import RedoContents

THEME = "redo log"


@bug("redo: acknowledged before the sync", "a round counts when it is written to the redo log", theme=THEME)
def _acknowledged_before_the_sync() -> Any:
    def run(self: RedoRound) -> None:
        self.error = None

    return mock.patch.object(RedoRound, "run", run)


@bug("redo: the loop does not sync", "a round that the broker's own thread runs counts without a sync", theme=THEME)
def _loop_does_not_sync() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: RedoRound) -> None:
            if self.is_run_here:
                self.error = None
            else:
                run(self)

        return patched

    return before(RedoRound, "run", replace)


@bug("redo: a lone request does not wait", "its answer is sent although its round was not run at once", theme=THEME)
def _lone_request_does_not_wait() -> Any:
    def replace(append_synced: Any) -> Any:
        def patched(self: PartitionAppend, *given: Any) -> Any:
            appended = append_synced(self, *given)
            self.high_watermark = max(self.high_watermark, self.log.log_end_offset)
            return appended

        return patched

    return before(PartitionAppend, "append_synced", replace)


@bug("redo: a failed sync tried again", "after a failed sync of the redo log another one is believed", theme=THEME)
def _failed_sync_tried_again() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: RedoRound) -> None:
            run(self)
            if self.error is not None and not self.is_postponed:
                self.has_begun = False
                run(self)

        return patched

    return before(RedoRound, "run", replace)


@bug("redo: not replayed", "a start does not look at the redo log", theme=THEME)
def _not_replayed() -> Any:
    return mock.patch.object(RedoContents, "restore", return_value=0)


@bug("redo: void before the logs are synced", "a checkpoint begins with what is its last step", theme=THEME)
@contextmanager
def _void_first() -> Iterator[None]:
    def replace(way: Any) -> Any:
        def patched(self: SyncRound, *given: Any) -> Any:
            if self.redo_log is not None:
                with suppress(OSError):
                    self.redo_log.void()
            return way(self, *given)

        return patched

    with (
        before(SyncRound, "run", replace),
        before(SyncRound, "run_shared", replace),
        before(SyncRound, "sync_volume", replace),
    ):
        yield


@bug("redo: a checkpoint leaves a log out", "the last log of each round is not synced by it", theme=THEME)
def _log_left_out() -> Any:
    def replace(write: Any) -> Any:
        def patched(self: RedoLog, logs: Any) -> Any:
            parts = write(self, logs)
            if parts:
                self.logs.popitem()
            return parts

        return patched

    return before(RedoLog, "write", replace)


@bug("redo: rounds advance the recovery point", "a start does not look at what only the redo log has", theme=THEME)
def _recovery_point_advanced() -> Any:
    def replace(end_redo: Any) -> Any:
        def patched(parts: Any) -> None:
            end_redo(parts)
            for log, *_ in parts:
                log.recovery_point = max(log.recovery_point, log.synced_offset)

        return patched

    return before(LogState, "end_redo", replace)


@bug("redo: topic ids not looked at", "a new topic gets what the deleted one of its name had", theme=THEME)
def _topic_ids_not_looked_at() -> Any:
    def replace(restore: Any) -> Any:
        def patched(self: RedoContents, files: Any, directory: Any, topic_id: bytes, recovery_point: int) -> int:
            ids = dict.fromkeys(entry.topic_id for entry in self.entries.get(directory.name, ()))
            return sum(restore(self, files, directory, one, recovery_point) for one in ids)

        return patched

    return before(RedoContents, "restore", replace)


@bug("redo: recovery points not looked at", "what the cleaner has moved is written over", theme="compaction")
@contextmanager
def _recovery_points_not_looked_at() -> Iterator[None]:
    """Nor where the batches before an entry lead to, by which it would be found."""

    def replace(restore: Any) -> Any:
        def patched(self: RedoContents, files: Any, directory: Any, topic_id: bytes, _: int) -> int:
            written: int = restore(self, files, directory, topic_id, -1)
            return written

        return patched

    with before(RedoContents, "restore", replace), mock.patch.object(redo, "_leads_to", yes):
        yield


@bug("redo: a stale entry ends the replay", "later segments do not get what only the redo log has", theme="compaction")
@contextmanager
def _stale_entry_ends_the_replay() -> Iterator[None]:
    """And the cleaner's checkpoint is not respected, by which most stale entries are found. Each power cut takes the
    recovery points.
    """
    ended: set[Path] = set()

    def replace(restore: Any) -> Any:
        def patched(self: RedoContents, files: Any, directory: Path, topic_id: bytes, _: int) -> int:
            ended.discard(directory)
            written: int = restore(self, files, directory, topic_id, 0)
            return written

        return patched

    def replace_of_segment(restore_segment: Any) -> Any:
        def patched(files: Any, path: Path, *more: Any) -> bool:
            if path.parent in ended:
                return False
            ended.add(path.parent)
            is_written: bool = restore_segment(files, path, *more)
            ended.remove(path.parent)
            return is_written

        return patched

    with (
        before(RedoContents, "restore", replace),
        before(redo, "_restore_segment", replace_of_segment),
        mock.patch.object(machine, "LOST_RECOVERY_POINTS", 1.0),
    ):
        yield


@bug("redo: a gap between two rounds", "what is appended while a round is synced counts as its own", theme=THEME)
def _gap_between_rounds() -> Any:
    def replace(end_redo: Any) -> Any:
        def patched(parts: Any) -> None:
            end_redo(parts)
            for log, segment, *_ in parts:
                segment.redo_bytes = segment.size_bytes
                log.unsynced.is_staged = False

        return patched

    return before(LogState, "end_redo", replace)


@bug("redo: kept bytes believed to be all", "what was not kept in memory is not read", theme=THEME)
def _kept_bytes_believed() -> Any:
    def replace(write: Any) -> Any:
        def patched(self: RedoLog, logs: Any) -> Any:
            for log in logs:
                log.unsynced.is_staged = log.unsynced.is_staged or log.unsynced.is_plain
            return write(self, logs)

        return patched

    return before(RedoLog, "write", replace)


@bug("redo: a round that did not begin is believed", "its parts are not written again", theme=THEME)
def _round_that_did_not_begin_believed() -> Any:
    def nothing(parts: Any) -> None:
        del parts

    return mock.patch.object(RedoLog, "take_back", staticmethod(nothing))


@bug("redo: names not asked for", "it takes a new segment whose name is not on the disk", theme=THEME)
def _names_not_asked_for() -> Any:
    def replace(begin_redo: Any) -> Any:
        def patched(self: Log, most_bytes: int) -> Any:
            unsynced = self.unsynced
            was_plain, unsynced.is_plain = unsynced.is_plain, True
            try:
                return begin_redo(self, most_bytes)
            finally:
                unsynced.is_plain = was_plain

        return patched

    return before(Log, "begin_redo", replace)


@bug("redo: void before the logs are recovered", "a start uses it before its logs are open", theme=THEME)
def _void_before_recovery() -> Any:
    def replace(redo: Any) -> Any:
        def patched(self: LogDirectory) -> None:
            redo(self)
            if self.redo_log is not None:
                self.redo_log.begin()
                self.redo_log.close()

        return patched

    return before(LogDirectory, "_redo", replace)
