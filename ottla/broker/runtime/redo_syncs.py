"""Rounds by the redo log: which rounds it takes, how they end, and when its next checkpoint is due.

A round of several logs with little to write is written to the redo log of the directory, if there is one, and the redo
log is synced in place of their files (docs/decisions/a-redo-log-for-small-rounds.md). A checkpoint is a normal round
with all logs for which the redo log is needed. The redo log itself notes that one is due when it is full
(`redo_log.py`); here it becomes due some time after the last one.

Knows no thread: the syncer has rounds run. Every line runs on the broker's thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_callbacks import SyncCallback, fail_all, log_bug
from ottla.storage.directories.redo_log import DUE_AFTER_MS, RedoLog
from ottla.storage.log.log_state import LogState

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.runtime.directory_queue import DirectoryQueue
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.timers import Timers
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.log import Log


class RedoSyncs:
    """The rounds by the redo logs of all directories. `start_round` starts a directory's next round."""

    def __init__(
        self, metrics: Metrics, clock: Clock, timers: Timers, start_round: Callable[[DirectoryQueue], None]
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._timers = timers
        self._start_round = start_round

    def begin(
        self, queue: DirectoryQueue, redo_log: RedoLog, waiting: dict[Log, list[SyncCallback]]
    ) -> RedoRound | None:
        """Write the unsynced bytes of these logs to the redo log. Returns the round, which must be run, or None if the
        redo log cannot take them. Raises MemoryError: no round has begun.
        """
        parts = redo_log.write(waiting)
        if parts is None:
            return None
        try:
            redo_round = RedoRound(redo_log, waiting, parts)
            if not queue.is_redo_watched:
                self._watch(queue)
        except MemoryError:
            redo_log.take_back(parts)
            raise
        queue.is_running = True
        return redo_round

    def finish(self, queue: DirectoryQueue, redo_round: RedoRound) -> bool:
        """Publish what the round has synced, and call back. Returns False, and has called nothing, if the sync could
        not begin: then its requests wait again.
        """
        error = queue.error or redo_round.error
        waits, elapsed_us = redo_round.waits, redo_round.elapsed_us
        self._metrics.sync_round("loop" if redo_round.is_run_here else "redo", 1, [(elapsed_us, len(waits))])
        if error is None:
            queue.disk.note(elapsed_us, self._clock.monotonic_ms())
            LogState.end_redo(redo_round.parts)
            for log, callbacks in waits.items():
                for callback in callbacks:  # `call_all` inlined: each log of a round would cost a call
                    try:
                        callback(log.error)
                    except Exception:  # a bug, logged: the other logs of the round must be answered
                        log_bug()
        elif redo_round.is_postponed and queue.error is None:
            RedoLog.take_back(redo_round.parts)
            return False
        else:
            self._metrics.sync_failures += 1
            queue.error = error
            fail_all(waits, error)
            if isinstance(error, OSError):
                queue.mark_offline(error)
            queue.fail_waiting(error)
        return True

    def _watch(self, queue: DirectoryQueue) -> None:
        due_ms = self._clock.monotonic_ms() + DUE_AFTER_MS
        self._timers.at(due_ms, partial(self._checkpoint, queue))
        queue.is_redo_watched = True

    def _checkpoint(self, queue: DirectoryQueue) -> None:
        """Sync the logs for which the redo log is needed, some time after the first of them came."""
        queue.is_redo_watched = False
        redo_log = queue.redo_log
        if redo_log is None or redo_log.file is None or not redo_log.logs or queue.error is not None:
            return
        redo_log.is_due = True
        self._watch(queue)  # for a checkpoint that cannot be made now
        if not queue.is_running and not queue.is_planned:
            self._start_round(queue)
