"""`ThreadedSyncer`: rounds of syncs in threads, one per log directory and a few that help.

`fdatasync` and `syncfs` let other threads run. Only what `SyncRound` says runs here, every other line of the syncer on
the broker's thread. A directory's thread runs its rounds. The helpers are there for all directories: they share the
files of a round, and run a round in which the sync of a volume is overtaken, while that keeps the directory's thread.

The broker syncs on its own thread in two cases only, since that holds up everybody for as long as the disk takes: where
a single client waits and the disk is quick (docs/decisions/a-sync-on-the-brokers-thread.md), and where a thread ended
and the system gives no other, because a late answer is better than none; each further round asks for a thread again.
Helpers are not asked for again: without one no volume is synced as a whole, since nothing could overtake that, and
files are synced one after the other.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.disk import OVERTAKEN_AFTER_MS, GroupSyncer
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_round import NOT_ENDED, SHARED_FROM
from ottla.broker.runtime.threads import NoThread, ThreadStarter, post_surely
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
"""Threads that help. With the directory's own there are four at the disk; sixteen took a fifth less time."""


class _Rounds:
    """The rounds that a directory's thread takes; None ends it."""

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
        """Whether the thread still takes them. `Thread.is_alive` says the same in 5 us."""


class SyncHelpers:
    """The threads that help. A process that gets none works without them."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._serving: list[None] = []
        """An entry for each thread that takes jobs: `Thread.is_alive` says the same in 5 us."""
        self._starter = ThreadStarter("Files are synced one after the other; nothing is lost")

    def begin(self) -> None:
        """Start those that the system gives."""
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
        """Have it run by one of them."""
        self._jobs.put(job)

    def help(self, work: Callable[[], None], count: int) -> None:
        """Have `work` called by so many of them, as far as there are so many and when they have time."""
        for _ in range(min(count, len(self._threads))):
            self._jobs.put(work)

    def close(self) -> None:
        """End them after what was given to them."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                with suppress(BaseException):  # a round that something leaves counts as failed
                    job()
                del job
        finally:
            self._serving.pop()


class ThreadedSyncer(GroupSyncer):
    """One thread per log directory, made by `begin`, or with the first round. `post` brings completions to the broker's
    thread. `count_waits`, called in such a thread, counts how long that waits for a processor; OSError: it cannot.
    `runs_here`: the broker's thread runs a round that a single client waits for, where the disk is quick.
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
        """As in `_threads`: to compare paths takes longer than the rest of handing a round over."""
        self._helpers = SyncHelpers()
        self._running: dict[DirectoryQueue, SyncRound | RedoRound] = {}
        self._is_closed = False
        self._starter = ThreadStarter(
            "The broker syncs on its main thread, where everybody waits for it, until there is one; nothing is lost"
        )

    def begin(self, directories: Iterable[Path]) -> None:
        """Start the threads of these directories, and the helpers. Raises NoThread, but not for want of helpers."""
        for path in directories:
            rounds = _Rounds()
            self._threads[path] = (self._starter.start(self._serve, f"sync {path.name}", rounds), rounds)
        self._helpers.begin()

    def close(self) -> None:
        """Finish the rounds that run, their completions too (posted ones may never run), and end the threads.

        No log is left with a sync under way: it could not be closed cleanly. A sync of a volume that is overtaken is
        not waited for: if it has failed the directory goes offline; what it reports later is met by the logs, which are
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
                self._finish(queue, sync_round)  # it may start the next one, which runs here
            if queue.overtaken is not None and queue.overtaken.volume_error is not NOT_ENDED:
                self._volume_ended(queue, queue.overtaken)
        self._close_volumes()

    def _is_overtaken(self, queue: DirectoryQueue) -> bool:
        """Whether the thread of this directory is held by a sync of the volume that nobody waits for any more; one that
        runs is given its time first.
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
        if self._running.get(queue) is sync_round:  # else `close` has not waited for the post
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
        """What the directory's thread takes; a new one's if it has ended. Raises NoThread."""
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
        # Whatever leaves a round (no memory for its line in the log, say), it counts as failed then, and this thread
        # continues: another round may be put here at any time. (`suppress` would be three calls of Python code, and
        # each synced round trip comes by.)
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
        if not sync_round.claim():  # another thread runs it meanwhile
            post_surely(self._post, partial(self._volume_ended, queue, sync_round))
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
