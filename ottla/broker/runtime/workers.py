"""Workers: a few threads for work that may block, such as cold reads, conversions and checkpoints.

Work runs off the broker's thread and its result comes back on it. In a simulation both happen immediately
(`InlineWorkers`). Group syncs have their own threads (`sync_threads.py`). Long computations call a `pause_for` now and
then, or the broker's thread would wait for the interpreter, `sys.getswitchinterval` each time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ottla.broker.runtime.threads import ThreadStarter, post_surely

if TYPE_CHECKING:
    import threading

Post = Callable[[Callable[[], None]], None]
"""Runs a callable on the broker's thread, soon; may be called from any thread."""

T = TypeVar("T")
MAX_WORKERS = 4
"""Threads that read cold data; more would only queue at the disk."""
WORK_S: Final = 0.0005
REST_S: Final = 0.0005
"""A computation rests for `REST_S` after each `WORK_S`, so that no request waits longer than that for the interpreter.
Measured on two busy cores, with a produce request each millisecond beside a cleaning: without rests a median of 1.8 ms,
a 99th percentile of 28 ms and a loop lag of up to 45 ms; with them 0.9, 8 and 8 ms. The cleaning took 7 s, not 4."""


class Workers(Protocol):
    """Runs blocking work."""

    def begin(self) -> None:
        """Prepare for work. Raises NoThread."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` off the broker's thread and `done(result, error)` on it."""

    @property
    def is_idle(self) -> bool:
        """Whether all work that was given to them has ended."""

    def close(self) -> None:
        """Finish the work that was given to them and end the threads. No `done` is called from now on."""


class InlineWorkers:
    """Runs everything immediately, in the calling thread: for simulations and tests."""

    def begin(self) -> None:
        """Do nothing: there are no threads."""

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run both now."""
        try:
            result = work()
        except OSError as error:
            done(None, error)
        else:
            done(result, None)

    @property
    def is_idle(self) -> bool:
        """Always: everything ends immediately."""
        return True

    def close(self) -> None:
        """Do nothing: there are no threads."""


class OneAtATime:
    """Work of one kind, one piece after the other in the order of arrival, so that memory is needed for one only."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._waiting: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()
        self._is_busy = False

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """As `Workers.run`, after all work that came before."""
        self._waiting.append((work, done))
        self._begin()

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        work, done = self._waiting.popleft()
        self._is_busy = True

        def finished(result: Any, error: BaseException | None) -> None:
            self._is_busy = False
            try:
                done(result, error)
            finally:
                self._begin()

        try:
            self._workers.run(work, finished)
        except Exception as error:  # no thread could be started: this one gets the error, the next one may be luckier
            if not self._is_busy:
                raise  # `done` itself failed, in workers that run everything immediately
            finished(None, error)


class ThreadedWorkers:
    """Up to `MAX_WORKERS` threads: `begin` starts the first, the others start when first needed.

    If the system gives no other thread, work waits for the existing ones; if there is none at all, it runs on the
    broker's thread.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._is_closed = False
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._unfinished = 0
        self._starter = ThreadStarter("Reads and conversions wait for the threads that there are; nothing is lost")

    def begin(self) -> None:
        """Start the first thread. Raises NoThread."""
        self._threads.append(self._starter.start(self._serve, "reader 0"))

    def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        """Run `work()` in a thread and `done(result, error)` on the broker's thread."""

        def finish(result: T | None, error: BaseException | None) -> None:
            self._unfinished -= 1
            if not self._is_closed:  # else the broker has stopped, and its files may belong to another process now
                done(result, error)

        def job() -> None:
            try:
                result = work()
            except BaseException as error:  # whatever the work raised belongs to `done`, on its thread
                post_surely(self._post, partial(finish, None, error))
            else:
                post_surely(self._post, partial(finish, result, None))

        self._unfinished += 1
        if not self._has_threads():
            job()
        else:
            self._jobs.put(job)

    @property
    def is_idle(self) -> bool:
        """Whether all work that was given to them has ended, and its `done` was called."""
        return not self._unfinished

    def close(self) -> None:
        """End the threads after the waiting work; no callback is called any more, posted or not."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _has_threads(self) -> bool:
        """Whether there is a thread; first start one more if there is work for it."""
        if not all(thread.is_alive() for thread in self._threads):
            self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < MAX_WORKERS and self._unfinished > len(self._threads):
            thread = self._starter.try_start(self._serve, f"reader {len(self._threads)}")
            if thread is not None:
                self._threads.append(thread)
        return bool(self._threads)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # else its result would stay in memory until the next job


class InterpreterYield:
    """The `pause` of a piece of work in a thread: yields the interpreter to the broker's thread every `WORK_S`."""

    def __init__(self) -> None:
        self._since_s = 0.0

    def __call__(self) -> None:
        """Rest if it is time to do so."""
        now_s = time.perf_counter()
        if now_s - self._since_s >= WORK_S:
            time.sleep(REST_S)
            self._since_s = time.perf_counter()


def pause_for(workers: Workers) -> Callable[[], None]:
    """The function that one piece of work calls now and then; it does nothing if these workers are no threads."""
    return _no_pause if isinstance(workers, InlineWorkers) else InterpreterYield()


def _no_pause() -> None:
    """Do nothing: no other thread waits for the interpreter."""
