"""Group sync: one `fdatasync` serves all requests that wait for the disk.

A syncer collects the logs that somebody waits for (docs/decisions/acknowledged-means-synced.md). At the end of a turn
it takes a ticket from each (the log's end at that moment and the files that must be synced), has a round of tickets
run, and back on the broker's thread publishes the synced offsets and calls back. Each log directory has one round at a
time; while it runs, the next one collects.

A failed sync is never tried again: after it Linux may call lost pages clean. The log fails and takes its directory
offline (`Log.fail`), and everything that waits for that directory gets the error. A sync that could not begin, because
the process had no descriptor left (NotOpened), is none: who waits for it goes on waiting, and a later round serves
them.

`ThreadedSyncer` runs rounds in one thread per directory (`fdatasync` releases the GIL); only tickets run there, every
other line of this module runs on the broker's thread. It does not sync on the broker's own thread: where a single
request waits that would be 10 to 25 % faster on a disk of 0.1 ms (measured), and would hold up everybody else for as
long as a slower disk takes. The one exception is a thread that ended, and a system that gives no other: its round runs
on the broker's thread, because a late answer is better than none, and each round asks for a thread again.
`QueuedSyncer` has no threads: a simulation runs the rounds, and decides which of them find no thread.
What else may block runs in `workers.py`.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from ottla.broker.runtime.threads import NoThread, ThreadStarter, post_surely
from ottla.storage.files.files import NotOpened

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable

    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.broker.runtime.workers import Post
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.log import Log
    from ottla.storage.log.sync import SyncTicket

LOG = logging.getLogger("ottla.disk")

SyncCallback = Callable[[BaseException | None], None]
POSTPONED_MS = 100
"""What could not be synced for want of a descriptor is tried again so much later, or with the next round."""


class DiskOffline(OSError):
    """The directory's disk failed before; nothing is written there until a restart."""


class Syncer(Protocol):
    """What partitions and the catalog ask of the disk."""

    def request(self, log: Log, callback: SyncCallback) -> None:
        """Call `callback(None)` once the log end seen now is synced (at once if it is), or with the error."""

    def close(self) -> None:
        """Finish what runs and end the threads. Nothing may be requested afterwards."""


class SyncRound:
    """Tickets of several logs of one directory, to be run one after another. `run` may be called in any thread.

    Until a ticket has run it counts as failed: whatever ends `run`, nothing is taken for synced that may not be.
    """

    __slots__ = ("elapsed_us", "error", "failed_index", "has_begun", "postponed", "waits")

    def __init__(self, waits: list[tuple[Log, SyncTicket, list[SyncCallback]]]) -> None:
        self.waits = waits
        self.error: OSError | None = OSError("the sync did not end")
        self.failed_index = 0
        self.has_begun = False
        self.elapsed_us: list[int] = []
        self.postponed: set[int] = set()
        """Of which waits the sync could not begin."""

    def run(self) -> None:
        """Sync every log; stop at the first that fails, because the directory goes offline with it. One that could not
        begin stops nobody: most need no descriptor that they do not have. A second call does nothing.
        """
        if self.has_begun:
            return
        self.has_begun = True
        for index, (_, ticket, _) in enumerate(self.waits):
            self.failed_index = index
            started_ns = time.perf_counter_ns()
            try:
                ticket.run()
            except NotOpened:
                self.postponed.add(index)
            except OSError as error:
                self.error = error
                return
            except Exception as error:  # a bug (a closed file, say), but the waiting requests must get it
                self.error = OSError(f"a bug: {error}")
                LOG.exception("bug: a sync failed")
                return
            finally:
                self.elapsed_us.append((time.perf_counter_ns() - started_ns) // 1000)
        self.failed_index = len(self.waits)
        self.error = None


class DirectoryQueue:
    """The logs of one directory that wait for the next round."""

    __slots__ = ("error", "is_planned", "is_retry_planned", "is_running", "path", "running", "waiting")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: dict[Log, list[SyncCallback]] = {}
        self.running: dict[Log, list[SyncCallback]] = {}
        """The logs of the round that runs, and their callbacks."""
        self.is_planned = False
        self.is_retry_planned = False
        self.is_running = False
        self.error: BaseException | None = None


class GroupSyncer(ABC):
    """The part of every syncer that runs on the broker's thread: who waits, rounds, completions. `clock` and `timers`
    are for what is tried again later.
    """

    def __init__(self, turn: Turn, metrics: Metrics, clock: Clock, timers: Timers) -> None:
        self._turn = turn
        self._metrics = metrics
        self._clock = clock
        self._timers = timers
        self._queues: dict[Path, DirectoryQueue] = {}
        self._queue_of_log: dict[Log, DirectoryQueue] = {}

    def request(self, log: Log, callback: SyncCallback) -> None:
        """Call `callback(None)` once the log end seen now is synced (at once if it is), or with the error."""
        queue = self._queue_of_log.get(log)
        if queue is None:
            path = Path(log.directory).parent
            queue = self._queues.setdefault(path, DirectoryQueue(path))
            self._queue_of_log[log] = queue
        error = log.error or queue.error
        if error is not None:
            callback(error)
            return
        if log.synced_offset >= log.log_end_offset:
            callback(None)
            return
        queue.waiting.setdefault(log, []).append(callback)
        if not queue.is_running and not queue.is_planned:
            queue.is_planned = True
            self._turn.after_append(lambda: self._start_round(queue))

    def retire(self, log: Log, quiet: Callable[[], None]) -> None:
        """The log is to be closed for good (topic deleted): nobody syncs it again; who waits for that gets an error.

        `quiet()` once no thread has its files in hand, at once if none has.
        """
        queue = self._queue_of_log.pop(log, None)
        if queue is None:
            quiet()
            return
        _tell(queue.waiting.pop(log, []), DiskOffline("the log was closed"))
        told = queue.running.get(log)
        if told is None:
            quiet()
        else:
            told.append(lambda _: quiet())

    @abstractmethod
    def close(self) -> None:
        """Finish what runs and end the threads. Nothing may be requested afterwards."""

    @abstractmethod
    def begin(self, directories: Iterable[Path]) -> None:
        """Make ready for syncs in these directories. Raises NoThread."""

    @abstractmethod
    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        """Have `sync_round.run()` called, then `_finish(queue, sync_round)` on the broker's thread. Raises NoThread."""

    @abstractmethod
    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        """Have `_finish(queue, sync_round)` called by the broker's thread when it is done with what it does now."""

    def _submit(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        try:
            self._hand_over(queue, sync_round)
        except NoThread:
            sync_round.run()
            self._finish_soon(queue, sync_round)

    def _start_round(self, queue: DirectoryQueue) -> None:
        queue.is_planned = False
        if queue.is_running:
            return
        waiting, queue.waiting = queue.waiting, {}
        waits: list[tuple[Log, SyncTicket, list[SyncCallback]]] = []
        for log, callbacks in waiting.items():
            ticket = self._begin(log)
            if ticket is not None:
                waits.append((log, ticket, callbacks))
                continue
            _tell(callbacks, log.error)
        if waits:
            queue.is_running = True
            queue.running = {log: callbacks for log, _, callbacks in waits}
            self._submit(queue, SyncRound(waits))

    @staticmethod
    def _begin(log: Log) -> SyncTicket | None:
        """None when the log has failed, or all of it is on disk."""
        try:
            return log.begin_sync()
        except (
            Exception
        ) as error:  # a bug, but the other logs of the round are to be synced, and the waiters get the error
            LOG.exception("bug: a sync of %s could not begin", log.name)
            log.fail(OSError(f"a bug: {error}"))
            return None

    def _finish(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        queue.is_running = False
        error: BaseException | None = sync_round.error
        if error is not None:
            queue.error = error
        for index, elapsed_us in enumerate(sync_round.elapsed_us):
            self._metrics.sync(elapsed_us, failed=index == sync_round.failed_index)
        for index, (log, ticket, callbacks) in enumerate(sync_round.waits):
            if index in sync_round.postponed:
                continue
            queue.running.pop(log, None)  # not before its turn: a callback may retire one whose ticket is not ended
            if index < sync_round.failed_index:
                log.end_sync(ticket)
                # A log that failed in the meantime does not believe the ticket, and nobody will move its offsets.
                _tell(callbacks, None if log.synced_offset >= ticket.end_offset else log.error)
                continue
            assert error is not None
            log.fail(error)
            _tell(callbacks, error)
        has_others = bool(queue.waiting)
        for index in sorted(sync_round.postponed):
            self._postpone(queue, *sync_round.waits[index])
        if error is not None:
            waiting, queue.waiting = queue.waiting, {}
            for log, callbacks in waiting.items():
                log.fail(error)
                _tell(callbacks, error)
        elif has_others:
            self._start_round(queue)
        elif queue.waiting and not queue.is_retry_planned:
            queue.is_retry_planned = True
            self._timers.at(self._clock.monotonic_ms() + POSTPONED_MS, lambda: self._try_again(queue))

    def _postpone(self, queue: DirectoryQueue, log: Log, ticket: SyncTicket, callbacks: list[SyncCallback]) -> None:
        """Who waits for a log whose sync could not begin waits for the next one, unless the log is gone or failed."""
        queue.running.pop(log, None)
        if self._queue_of_log.get(log) is not queue or log.error is not None:
            _tell(callbacks, log.error or DiskOffline("the log was closed"))
            return
        log.postpone_sync(ticket)
        queue.waiting[log] = callbacks + queue.waiting.get(log, [])

    def _try_again(self, queue: DirectoryQueue) -> None:
        queue.is_retry_planned = False
        if queue.waiting and not queue.is_running and not queue.is_planned:
            self._start_round(queue)


def _tell(callbacks: list[SyncCallback], outcome: BaseException | None) -> None:
    """Call everybody; one that fails is a bug of its own, and must not leave other logs with a sync that never ends."""
    for callback in callbacks:
        try:
            callback(outcome)
        except Exception:
            LOG.exception("bug: a completion of a sync failed")


_Rounds = SimpleQueue["tuple[DirectoryQueue, SyncRound] | None"]


class ThreadedSyncer(GroupSyncer):
    """One thread per log directory, made by `begin`, or with the first round. `post` brings completions to the broker's
    thread.
    """

    def __init__(self, turn: Turn, metrics: Metrics, clock: Clock, timers: Timers, post: Post) -> None:
        super().__init__(turn, metrics, clock, timers)
        self._post = post
        self._threads: dict[Path, tuple[threading.Thread, _Rounds]] = {}
        self._running: dict[DirectoryQueue, SyncRound] = {}
        self._is_closed = False
        self._starter = ThreadStarter(
            "The broker syncs on its main thread, where everybody waits for it, until there is one; nothing is lost"
        )

    def begin(self, directories: Iterable[Path]) -> None:
        """Start the threads of these directories. Raises NoThread."""
        for path in directories:
            rounds = _Rounds()
            self._threads[path] = (self._starter.start(self._serve, f"sync {path.name}", rounds), rounds)

    def close(self) -> None:
        """Finish the rounds that run, their completions too (posted ones may never run), and end the threads.

        No log is left with a sync under way: it could not be closed cleanly.
        """
        self._is_closed = True
        for _, rounds in self._threads.values():
            rounds.put(None)
        for thread, _ in self._threads.values():
            thread.join()
        self._threads.clear()
        for queue in list(self._queues.values()):
            while (sync_round := self._running.get(queue)) is not None:
                sync_round.run()  # what a thread that ended early had not begun
                self._finish(queue, sync_round)  # it may start the next one, which runs here

    def _finish(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        if self._running.get(queue) is sync_round:  # else `close` has not waited for the post
            del self._running[queue]
            super()._finish(queue, sync_round)

    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        self._running[queue] = sync_round
        if self._is_closed:
            sync_round.run()
            return
        thread, rounds = self._threads.get(queue.path, (None, None))
        if thread is None or rounds is None or not thread.is_alive():
            rounds = _Rounds()
            thread = self._starter.try_start(self._serve, f"sync {queue.path.name}", rounds)
            if thread is None:
                raise NoThread(queue.path.name, RuntimeError("can't start new thread"))
            self._threads[queue.path] = (thread, rounds)
        rounds.put((queue, sync_round))

    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        self._post(partial(self._finish, queue, sync_round))

    def _serve(self, rounds: _Rounds) -> None:
        while (given := rounds.get()) is not None:
            queue, sync_round = given
            # Whatever leaves a round (no memory for its line in the log, say), it counts as failed then, and this
            # thread continues: another round may be put here at any time.
            with suppress(BaseException):
                sync_round.run()
            post_surely(self._post, partial(self._finish, queue, sync_round))


class QueuedSyncer(GroupSyncer):
    """Rounds wait in `rounds` until `run_one` or `run_all` is called: a simulation decides when the disk answers."""

    def __init__(self, turn: Turn, metrics: Metrics, clock: Clock, timers: Timers) -> None:
        super().__init__(turn, metrics, clock, timers)
        self.rounds: deque[tuple[DirectoryQueue, SyncRound]] = deque()
        self.has_threads = True
        """Whether rounds find a thread. One that does not is run at once, and ends in its place in `rounds`."""

    def begin(self, directories: Iterable[Path]) -> None:
        """Nothing to make."""

    def run_one(self) -> bool:
        """Run the oldest round and its completions; False when none waits."""
        if not self.rounds:
            return False
        queue, sync_round = self.rounds.popleft()
        sync_round.run()
        self._finish(queue, sync_round)
        return True

    def run_all(self) -> None:
        """Run rounds until none waits, also those that completions start."""
        while self.run_one():
            pass

    def close(self) -> None:
        """Run what waits."""
        self.run_all()

    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        if not self.has_threads:
            raise NoThread(queue.path.name, RuntimeError("can't start new thread"))
        self.rounds.append((queue, sync_round))

    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        self.rounds.append((queue, sync_round))
