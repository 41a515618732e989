"""Group sync: one `fdatasync` serves all requests that wait for the disk.

A syncer collects the logs for which requests wait (docs/decisions/acknowledged-means-synced.md). At the end of a turn
it takes a ticket from each (the log's end at that moment and the files that must be synced) and starts a round of
tickets. Back on the broker's thread it publishes the synced offsets and calls back. Each log directory has one round at
a time; while it runs, the next one collects. `sync_round.py` runs a round.

A failed sync is never tried again: after it Linux may mark lost pages as clean. The log fails and takes its directory
offline (`Log.fail`), and everything that waits for that directory gets the error. A sync that could not begin, because
the process had no descriptor left (NotOpened), has not failed: its requests continue to wait, and a later round serves
them.

A round syncs the files of its tickets, or the whole volume, if they are many (`volume_syncs.py`). A round of several
logs with little to write has no tickets: the redo log of the directory is synced instead (`redo_syncs.py`).

Every line of this module runs on the broker's thread. `ThreadedSyncer` (`sync_threads.py`) runs rounds in threads,
except rounds of the redo log for which a single client waits, on a quick disk (`quick_disk.py`). `QueuedSyncer`
(`queued_syncer.py`) leaves them to a simulation. Other work that may block runs in `workers.py`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ottla.broker.runtime.directory_queue import DirectoryQueue
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.redo_syncs import RedoSyncs
from ottla.broker.runtime.sync_callbacks import call_all, log_bug
from ottla.broker.runtime.sync_round import SyncRound
from ottla.broker.runtime.threads import NoThread
from ottla.broker.runtime.volume_syncs import VolumeSyncs
from ottla.storage.directories.redo_log import MOST_LOGS
from ottla.storage.files.files import NotOpened
from ottla.storage.formats.layout import META_PROPERTIES_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.sync_callbacks import SyncCallback
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log
    from ottla.storage.log.sync import SyncTicket

LOG = logging.getLogger("ottla.disk")

POSTPONED_MS = 100
"""A sync that found no descriptor is tried again after this time, or with the next round."""


class LogClosed(OSError):
    """The log was closed before a sync that was requested: its topic is deleted."""


class GroupSyncer(ABC):
    """The part of every syncer that runs on the broker's thread: waiting requests, rounds, completions. `clock` and
    `timers` are for syncs that are tried again later.
    """

    def __init__(self, turn: Turn, metrics: Metrics, clock: Clock, timers: Timers) -> None:
        self._turn = turn
        self._metrics = metrics
        self._clock = clock
        self._timers = timers
        self._queues: dict[Path, DirectoryQueue] = {}
        self._queue_of_log: dict[Log, DirectoryQueue] = {}
        self._volumes = VolumeSyncs(metrics, clock, timers, self._can_overtake, self._run_overtaken)
        self._redo = RedoSyncs(metrics, clock, timers, self._start_round)

    def request(self, log: Log, callback: SyncCallback) -> None:
        """Call `callback(None)` when the current log end is synced (now, if it is already), or with the error."""
        try:
            queue = self._queue_of_log[log]
        except KeyError:
            queue = self._queue_of_log[log] = self._queue_of(log)
        if log.error is not None or queue.error is not None:
            # Also where another log's sync took the directory offline: after a power cut, the disk could have records
            # that this log appends later, but not the refused records before them.
            error = log.error or queue.error
            assert error is not None
            log.fail(error)
            callback(error)
            return
        if log.synced_offset >= log.log_end_offset:
            callback(None)
            return
        waiting = queue.waiting
        if log in waiting:
            waiting[log].append(callback)
        else:
            waiting[log] = [callback]
        if not queue.is_planned and not queue.is_running:  # `_plan_round` inlined: each log of a turn would cost a call
            self._turn.after_append(lambda: self._start_planned(queue))
            queue.is_planned = True  # then: without memory for the step, the next request plans it

    def _queue_of(self, log: Log) -> DirectoryQueue:
        path = log.directory.parent
        queue = self._queues.get(path)
        if queue is None:
            queue = self._queues[path] = DirectoryQueue(path)
        return queue

    def may_sync_here(self, log: Log) -> bool:
        """Whether the broker's thread may run the next round of this log's directory, for the only request of the only
        client.
        """
        queue = self._queue_of_log.get(log)
        return (
            queue is not None
            and queue.redo_log is not None
            and not queue.redo_log.is_due
            and not queue.is_running
            and not queue.waiting
            and queue.error is None
            and self._may_run_here(queue)
        )

    def sync_here(self, log: Log) -> bool:
        """Begin the round that was requested for this log now, and not at the end of the turn, since the turn gathers
        nothing more. Returns whether it has ended: then the broker's thread has run it.
        """
        queue = self._queue_of_log.get(log)
        if queue is None or not queue.is_planned:
            return False
        self._start_round(queue)
        return not queue.is_running

    def request_files(self, log: Log, callback: SyncCallback) -> None:
        """As `request`, for the log's own files, which the recovery point follows: the redo log is not enough."""
        queue = self._queue_of_log.get(log)
        if queue is not None and queue.redo_log is not None and log in queue.redo_log.logs and log.error is None:
            queue.redo_log.is_due = True
            queue.waiting.setdefault(log, []).append(callback)
            self._plan_round(queue)
        else:
            self.request(log, callback)

    def _plan_round(self, queue: DirectoryQueue) -> None:
        if not queue.is_running and not queue.is_planned:
            self._turn.after_append(lambda: self._start_planned(queue))
            queue.is_planned = True  # then: without memory for the step, the next request plans it

    def take_directories(self, files: Files, directories: Iterable[LogDirectory], *, syncs_volumes: bool) -> None:
        """Use the redo logs of these directories, which are open, and keep their file systems open from now on. Where
        that fails or is impossible, or `syncs_volumes` is false, their files are synced. A failed sync of the file
        system takes the directory offline.
        """
        for directory in directories:
            if directory.is_offline:
                continue
            queue = self._queues.setdefault(directory.path, DirectoryQueue(directory.path))
            queue.mark_offline = directory.mark_offline
            try:
                queue.is_in_memory = files.lives_in_memory(directory.path)
                if not queue.is_in_memory:
                    queue.redo_log = directory.redo_log
                if syncs_volumes:
                    queue.volume = files.open_volume(directory.path / META_PROPERTIES_FILE)
                if queue.volume is not None and queue.redo_log is not None:
                    queue.redo_log.most_logs = MOST_LOGS
            except OSError as error:
                LOG.info("%s: its file system cannot be synced as a whole, its files are: %s", directory.path, error)

    def retire(self, log: Log, quiet: Callable[[], None]) -> None:
        """Stop syncing a log that will be closed because its topic is deleted; requests that wait for it get an error.

        Calls `quiet()` when no thread uses its files, immediately if none does now.
        """
        queue = self._queue_of_log.pop(log, None)
        if queue is None:
            quiet()
            return
        if queue.redo_log is not None:
            queue.redo_log.forget(log)
        call_all(queue.waiting.pop(log, []), LogClosed("the log was closed"))
        callbacks = queue.running.get(log)
        if callbacks is None:
            quiet()
        else:
            callbacks.append(lambda _: quiet())

    @abstractmethod
    def close(self) -> None:
        """Finish the running rounds and end the threads. Nothing may be requested afterwards."""

    @abstractmethod
    def begin(self, directories: Iterable[Path]) -> None:
        """Prepare for syncs in these directories. Raises NoThread."""

    @abstractmethod
    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        """Have `sync_round.run()` called, then `_finish(queue, sync_round)` on the broker's thread. Raises NoThread."""

    @abstractmethod
    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        """Have `_finish(queue, sync_round)` called by the broker's thread after its current work."""

    @abstractmethod
    def _can_overtake(self) -> bool:
        """Whether the files of a round could be synced while a sync of the volume runs."""

    @abstractmethod
    def _run_overtaken(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        """Have the files of the round synced, then `_finish` called. The thread that has run the round so far has
        `VolumeSyncs.ended` called instead.
        """

    @abstractmethod
    def _may_run_here(self, queue: DirectoryQueue) -> bool:
        """Whether the disk is quick enough for the broker's thread to wait for it if only one client waits."""

    def _submit(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        turn = self._turn
        if turn.serves_one and isinstance(sync_round, RedoRound) and self._may_run_here(queue):
            turn.serves_one = False  # a sync that its callbacks ask for is another round
            sync_round.is_run_here = True
            sync_round.run()
            GroupSyncer._finish(self, queue, sync_round)  # no thread has had it
            return
        try:
            self._hand_over(queue, sync_round)
        except NoThread:
            if isinstance(sync_round, SyncRound):
                sync_round.volume = None
            sync_round.run()
            self._finish_soon(queue, sync_round)

    def _start_planned(self, queue: DirectoryQueue) -> None:
        """Start the round at the end of the turn, unless `sync_here` has started it before."""
        if queue.is_planned:
            turn = self._turn
            serves_one = turn.serves_one
            self._start_round(queue)
            if serves_one and not turn.serves_one:
                turn.run_asked()  # it was run here: fetches that wait for what is visible now

    def _start_round(self, queue: DirectoryQueue) -> None:
        queue.is_planned = False
        if queue.is_running:
            return
        if queue.error is not None:
            queue.fail_waiting(queue.error)
            return
        waiting, queue.waiting = queue.waiting, {}
        redo_log = queue.redo_log
        is_checkpoint = redo_log is not None and redo_log.is_due
        if redo_log is not None:
            if is_checkpoint:
                for log in redo_log.logs:
                    waiting.setdefault(log, [])
            else:
                try:
                    redo_round = self._redo.begin(queue, redo_log, waiting)
                except MemoryError:  # the requests wait for another round
                    queue.waiting = waiting
                    self._try_again_later(queue)
                    return
                if redo_round is not None:
                    self._submit(queue, redo_round)
                    return
        others: list[Log] = []
        waits: list[tuple[Log, SyncTicket, list[SyncCallback]]] = []
        for log, callbacks in waiting.items():
            try:
                ticket = log.begin_sync()
            except Exception as error:  # a bug, but the other logs of the round must be synced
                _begin_failed(log, error)
                ticket = None
            if ticket is not None:
                waits.append((log, ticket, callbacks))
            else:  # the log has failed, or all of it is on disk
                others.append(log)
                call_all(callbacks, log.error)
        if is_checkpoint and redo_log is not None and any(log.error is not None for log in redo_log.logs):
            is_checkpoint = False  # acknowledged records of a failed log are only in the redo log, for the next start
        if waits or is_checkpoint:
            for log in others:
                del waiting[log]
            queue.is_running = True
            queue.running = waiting
            queue.sync_round = sync_round = SyncRound(waits)
            if is_checkpoint:
                sync_round.redo_log = redo_log
            if queue.volume is not None and sync_round.is_on(queue.volume):
                self._volumes.choose(queue, sync_round)
            self._submit(queue, sync_round)

    def _finish(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        queue.is_running = False
        if isinstance(sync_round, RedoRound):
            if not self._redo.finish(queue, sync_round):
                for log, callbacks in sync_round.waits.items():
                    self._wait_again(queue, log, callbacks)
                self._try_again_later(queue)
            elif queue.waiting and not queue.is_running:
                self._start_round(queue)
            return
        queue.sync_round = None
        if sync_round.has_voided and sync_round.redo_log is not None:
            sync_round.redo_log.note_checkpoint()  # before a callback can begin another round
        is_refused = queue.error is not None  # the sync of a volume that was overtaken has failed
        error = queue.error or sync_round.error
        if error is not None:
            queue.error = error
        self._metrics.sync_round(sync_round.way, len(sync_round.files), sync_round.timings)
        if sync_round.way == "threads" and sync_round.error is None:
            queue.note_shared(len(sync_round.files), sync_round.timings[0][0] / 1000)
        if sync_round.error is not None:
            self._metrics.sync_failures += 1
        has_postponed = False
        running = queue.running
        for (log, ticket, callbacks), result in zip(sync_round.waits, sync_round.results, strict=True):
            if result is None and not is_refused:
                del running[log]  # not before its turn: a callback may retire one whose ticket is not ended
                log.end_sync(ticket)
                # A log that failed in the meantime ignores the ticket, and its offsets do not move any more.
                outcome = None if log.synced_offset >= ticket.end_offset else log.error
                for callback in callbacks:  # `call_all` inlined: each log of a round would cost a call
                    try:
                        callback(outcome)
                    except Exception:  # a bug, logged: the other logs of the round must be answered
                        log_bug()
                continue
            if isinstance(result, NotOpened):
                has_postponed = True
                continue
            running.pop(log, None)
            assert error is not None
            log.fail(error)
            call_all(callbacks, error)
        if (sync_round.volume or sync_round.redo_log) is not None and isinstance(error, OSError):
            queue.mark_offline(error)
        has_others = bool(queue.waiting)
        if has_postponed:
            for wait, result in zip(sync_round.waits, sync_round.results, strict=True):
                if isinstance(result, NotOpened):
                    self._postpone(queue, *wait)
        if error is not None:
            queue.fail_waiting(error)
        elif has_others:
            self._start_round(queue)
        else:
            self._try_again_later(queue)

    def _close_volumes(self) -> None:
        for queue in self._queues.values():
            if queue.volume is not None:
                queue.volume.close()

    def _postpone(self, queue: DirectoryQueue, log: Log, ticket: SyncTicket, callbacks: list[SyncCallback]) -> None:
        """Let a log whose sync could not begin wait for the next round, unless it is closed or has failed."""
        queue.running.pop(log, None)
        log.postpone_sync(ticket)  # first: a deletion that waits for its end continues immediately, and needs this
        self._wait_again(queue, log, callbacks)

    def _wait_again(self, queue: DirectoryQueue, log: Log, callbacks: list[SyncCallback]) -> None:
        if self._queue_of_log.get(log) is not queue or log.error is not None:
            call_all(callbacks, log.error or LogClosed("the log was closed"))
        else:
            queue.waiting[log] = callbacks + queue.waiting.get(log, [])

    def _try_again_later(self, queue: DirectoryQueue) -> None:
        """Plan another round, for logs whose sync could not begin."""
        if queue.waiting and not queue.is_retry_planned:
            self._timers.surely_at(self._clock.monotonic_ms() + POSTPONED_MS, lambda: self._try_again(queue))
            queue.is_retry_planned = True

    def _try_again(self, queue: DirectoryQueue) -> None:
        queue.is_retry_planned = False
        if queue.waiting and not queue.is_running and not queue.is_planned:
            self._start_round(queue)


def _begin_failed(log: Log, error: Exception) -> None:
    """Report a bug: the other logs of the round must be synced, and requests that wait for this one get the error."""
    LOG.exception("bug: a sync of %s could not begin", log.name)
    log.fail(OSError(f"a bug: {error}"))
