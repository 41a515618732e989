"""`ThreadedSyncer`: sync rounds in threads, one per log directory and a few helpers.

`fdatasync` and `syncfs` let other threads run. Only the code of `SyncRound` runs in these threads, every other line of
the syncer on the broker's thread. A directory's thread runs its rounds. The helpers serve all directories: they share
the files of a round, and take over a round whose sync of the volume is overtaken, since that still occupies the
directory's thread.

The broker syncs on its own thread in two cases only, since all clients wait for as long as the disk takes: where a
single client waits and the disk is quick (docs/decisions/a-sync-on-the-brokers-thread.md), and where a thread has ended
and the system gives no other, because a late answer is better than none. Then each further round tries to start a
thread again. Helpers are not started again: without one no volume is synced as a whole, since nothing could overtake
that, and files are synced one after the other.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.disk import GroupSyncer
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_round import NOT_ENDED, SHARED_FROM
from ottla.broker.runtime.threads import NoThread, ThreadStarter, post_surely
from ottla.broker.runtime.volume_syncs import OVERTAKEN_AFTER_MS
from ottla.hand_over import HandOver

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ottla.broker.runtime.directory_queue import DirectoryQueue
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.processor_wait import ProcessorWait
    from ottla.broker.runtime.sync_round import SyncRound
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.broker.runtime.workers import Post
    from ottla.storage.files.clock import Clock

LOG = logging.getLogger("ottla.disk")

_Given = tuple["DirectoryQueue", "SyncRound | RedoRound"] | None

HELPERS: Final = 3
"""Helper threads. With the directory's own, four threads use the disk; sixteen took a fifth less time."""


class _Rounds:
    """The queue from which a directory's thread takes its rounds; None ends the thread."""

    __slots__ = ("get", "is_served", "put")

    def __init__(self) -> None:
        queue: HandOver[_Given] | SimpleQueue[_Given]
        try:
            queue = HandOver()
        except OSError:
            queue = SimpleQueue()
        self.put: Callable[[_Given], None] = queue.put
        self.get: Callable[[], _Given] = queue.get
        self.is_served = True
        """Whether the thread still takes them. `Thread.is_alive` returns the same, but takes 5 us."""


class SyncHelpers:
    """The helper threads. A process that gets none works without them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._serving: list[None] = []
        """An entry for each thread that takes jobs: `Thread.is_alive` returns the same, but takes 5 us."""
        self._starter = ThreadStarter("Files are synced one after the other; nothing is lost")

    def begin(self) -> None:
        """Start as many as the system allows."""
        for number in range(HELPERS):
            self._serving.append(None)
            thread = self._starter.try_start(self._serve, f"sync helper {number}")
            if thread is None:
                self._serving.pop()
                return
            self._threads.append(thread)

    @property
    def are_there(self) -> bool:
        """Whether there is any."""
        return bool(self._serving)

    def run(self, job: Callable[[], None]) -> None:
        """Have one of them run a job."""
        self._jobs.put(job)

    def help(self, work: Callable[[], None], count: int) -> None:
        """Have `work` called by up to `count` of them, when they have time."""
        for _ in range(min(count, len(self._threads))):
            self._jobs.put(work)

    def close(self) -> None:
        """End them after their jobs."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                with suppress(BaseException):  # a round that raises counts as failed
                    job()
                del job
        finally:
            self._serving.pop()


class ThreadedSyncer(GroupSyncer):
    """One thread per log directory, started by `begin` or with the first round. `post` brings completions to the
    broker's thread. `count_waits`, called in such a thread, counts its waits for a processor, or raises OSError.
    `runs_here`: the broker's thread runs a round for which a single client waits, if the disk is quick.
    """

    def __init__(
        self,
        turn: Turn,
        metrics: Metrics,
        clock: Clock,
        timers: Timers,
        post: Post,
        count_waits: Callable[[], ProcessorWait] | None,
        *,
        runs_here: bool = False,
    ) -> None:
        super().__init__(turn, metrics, clock, timers)
        self._post = post
        self._count_waits = count_waits
        self._runs_here = runs_here
        self._threads: dict[Path, tuple[threading.Thread, _Rounds]] = {}
        self._rounds_of: dict[DirectoryQueue, _Rounds] = {}
        """The same as in `_threads`: a comparison of paths takes longer than the rest of `_hand_over`."""
        self._helpers = SyncHelpers()
        self._running: dict[DirectoryQueue, SyncRound | RedoRound] = {}
        self._is_closed = False
        self._starter = ThreadStarter(
            "The broker syncs on its main thread, where all clients wait for it, until there is one; nothing is lost"
        )

    def begin(self, directories: Iterable[Path]) -> None:
        """Start the threads of these directories, and the helpers. Raises NoThread, but not if helpers are missing."""
        for path in directories:
            rounds = _Rounds()
            self._threads[path] = (self._starter.start(self._serve, f"sync {path.name}", rounds), rounds)
        self._helpers.begin()

    def close(self) -> None:
        """Finish the running rounds and their completions (posted ones may never run), and end the threads.

        No log keeps a running sync: it could not be closed cleanly. This does not wait for an overtaken sync of a
        volume: if it has failed, the directory goes offline. If it fails later, the logs find the error: they are
        synced one by one when they are closed.
        """
        self._is_closed = True
        for _, rounds in self._threads.values():
            rounds.put(None)
        for path, (thread, _) in self._threads.items():
            queue = self._queues.get(path)
            if queue is None or not self._is_overtaken(queue):
                thread.join()
        self._threads.clear()
        self._helpers.close()
        for queue in list(self._queues.values()):
            while (sync_round := self._running.get(queue)) is not None:
                sync_round.run()  # what a thread that ended early had not begun
                self._finish(queue, sync_round)  # it may start the next round, which runs here
            if queue.overtaken is not None and queue.overtaken.volume_error is not NOT_ENDED:
                self._volumes.ended(queue, queue.overtaken)
        self._close_volumes()

    def _is_overtaken(self, queue: DirectoryQueue) -> bool:
        """Whether an overtaken sync of the volume occupies the thread of this directory. A sync that runs gets its time
        first.
        """
        if queue.overtaken is not None:
            return True
        sync_round = self._running.get(queue)
        if sync_round is None or sync_round.volume is None:
            return False
        thread, _ = self._threads[queue.path]
        thread.join(OVERTAKEN_AFTER_MS / 1000)
        return thread.is_alive() and sync_round.claim()

    def _finish(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        if self._running.get(queue) is sync_round:  # else `close` has not waited for this callback
            del self._running[queue]
            super()._finish(queue, sync_round)

    def _may_run_here(self, queue: DirectoryQueue) -> bool:
        return self._runs_here and not self._is_closed and queue.disk.is_quick(self._clock.monotonic_ms())

    def _can_overtake(self) -> bool:
        return self._helpers.are_there and not self._is_closed

    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        self._running[queue] = sync_round
        if self._is_closed:
            sync_round.run()
            return
        if queue.overtaken is not None:
            self._hand_to_helper(queue, sync_round)
            return
        rounds = self._rounds_of.get(queue)
        if rounds is None or not rounds.is_served:
            rounds = self._rounds_of[queue] = self._served_rounds(queue)
        rounds.put((queue, sync_round))

    def _served_rounds(self, queue: DirectoryQueue) -> _Rounds:
        """The queue of the directory's thread, or of a new one if that has ended. Raises NoThread."""
        thread, rounds = self._threads.get(queue.path, (None, None))
        if thread is None or rounds is None or not thread.is_alive():
            rounds = _Rounds()
            thread = self._starter.try_start(self._serve, f"sync {queue.path.name}", rounds)
            if thread is None:
                raise NoThread(queue.path.name, RuntimeError("can't start new thread"))
            self._threads[queue.path] = (thread, rounds)
        return rounds

    def _hand_to_helper(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        if not self._helpers.are_there:
            raise NoThread(queue.path.name, RuntimeError("the threads that help have ended"))
        self._helpers.run(partial(self._run_files, queue, sync_round))

    def _run_overtaken(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        self._hand_to_helper(queue, sync_round)

    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        self._post(partial(self._finish, queue, sync_round))

    # -- in the threads

    def _serve(self, rounds: _Rounds) -> None:
        try:
            wait: ProcessorWait | None = None
            if self._count_waits is not None:
                with suppress(OSError):
                    wait = self._count_waits()
            while (given := rounds.get()) is not None:
                queue, sync_round = given
                if sync_round.volume is None:
                    self._run_files(queue, sync_round)
                else:
                    self._run_volume(queue, sync_round, wait)
        finally:
            rounds.is_served = False

    def _run_files(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        # Whatever a round raises (a MemoryError for its log line, say), it counts as failed, and this thread continues:
        # another round may be queued here at any time. (`suppress` would cost three calls of Python code in each synced
        # round trip.)
        try:
            if isinstance(sync_round, RedoRound) or len(sync_round.files) < SHARED_FROM or queue.is_in_memory:
                sync_round.run()
            else:
                sync_round.run_shared(self._helpers.help)
        except BaseException:
            pass
        post_surely(self._post, partial(self._finish, queue, sync_round))

    def _run_volume(self, queue: DirectoryQueue, sync_round: SyncRound, wait: ProcessorWait | None) -> None:
        with suppress(BaseException):
            sync_round.note_begin(self._clock.monotonic_ms(), wait)
            sync_round.sync_volume()
        if not sync_round.claim():  # another thread has taken the round over
            post_surely(self._post, partial(self._volumes.ended, queue, sync_round))
        else:
            with suppress(BaseException):
                sync_round.finish_volume()
            post_surely(self._post, partial(self._finish, queue, sync_round))
        if sync_round.volume_error is not None:
            with suppress(BaseException):
                self._name_files(queue, sync_round)

    def _name_files(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        names = sync_round.name_files()
        LOG.error(
            "log directory %s: the sync of its file system failed (%s), and so does that of %s",
            queue.path,
            sync_round.volume_error,
            ", ".join(names) or "none of the files of its round: it may have been another program's file",
        )
