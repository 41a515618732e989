"""Queues from one thread to another that sleeps until there is an item: `HandOver`, and `Posts` for an event loop.

A `SimpleQueue` wakes its consumer while the producer holds the interpreter lock: the consumer wakes up, finds the lock
taken, sleeps again and is woken a second time. Here the producer releases the lock while it writes to an eventfd, so
that the consumer can mostly continue immediately. A loop that watches an eventfd has less to do than for
`call_soon_threadsafe` (docs/decisions/a-sync-by-the-kernel.md).

A descriptor is closed when no object refers to it any more: a thread that waited for the disk may put an item long
after the broker has stopped, and must not write into a file that was opened meanwhile under the same number.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")


class HandOver(Generic[T]):
    """Items for one thread, first in, first out. The constructor raises OSError: there is no eventfd, or no descriptor
    is left.
    """

    __slots__ = ("_close", "_descriptor", "_things")

    def __init__(self, *, waits: bool = True) -> None:
        make = getattr(os, "eventfd", None)
        if make is None:
            raise OSError("there is no eventfd")
        self._things: deque[T] = deque()
        self._descriptor: int = make(0, os.EFD_CLOEXEC if waits else os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = os.close  # os itself may be gone when the interpreter ends

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            self._descriptor = -1  # other garbage of the same cycle may still `put`, and the number may be reused
            self._close(descriptor)

    def put(self, thing: T) -> None:
        """Add an item, from any thread. An interrupt that is raised here leaves no item of which the consumer is not
        notified.
        """
        try:
            self._things.append(thing)
        finally:
            os.eventfd_write(self._descriptor, 1)

    def get(self) -> T:
        """Return the next item; sleeps until there is one. For a single thread only."""
        things = self._things
        while not things:  # the counter may still count an item that was taken before
            try:
                os.eventfd_read(self._descriptor)
            except InterruptedError:  # by a signal
                continue
        return things.popleft()


class Posts(HandOver[Callable[[], object]]):
    """Callbacks for a loop's thread, from any thread. The loop calls `run` whenever `descriptor` is readable."""

    __slots__ = ("will_run_ahead",)
    _of_threads = threading.local()

    def __init__(self) -> None:
        super().__init__(waits=False)
        self.will_run_ahead = False
        """Whether the loop's thread is about to call `run_ahead`, so that nothing has to wake it.

        It resets this before it looks at the queue, and other threads read it after they have queued a callback: with
        the interpreter lock, no callback is overlooked.
        """

    def put(self, thing: Callable[[], object]) -> None:
        """As `HandOver.put`; the loop is woken unless it `will_run_ahead`."""
        try:
            self._things.append(thing)
        finally:
            if not self.will_run_ahead:
                os.eventfd_write(self._descriptor, 1)

    @classmethod
    def of_this_thread(cls) -> Posts | None:
        """Return the callbacks that other threads queue for the loop of this thread; None if there are none."""
        found: Posts | None = getattr(cls._of_threads, "posts", None)
        return found

    def belong_to_this_thread(self) -> None:
        """Let `of_this_thread` return this object; the loop's thread calls it."""
        self._of_threads.posts = self

    @property
    def descriptor(self) -> int:
        """The descriptor that the loop watches."""
        return self._descriptor

    def run(self) -> None:
        """Run the callbacks that are queued. An exception of one is raised; the rest run at the loop's next call."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return
        steps = self._things
        for _ in range(len(steps)):
            try:
                steps.popleft()()
            except BaseException:
                os.eventfd_write(self._descriptor, 1)
                raise

    def run_ahead(self) -> None:
        """Run the callbacks that are queued by now, at the end of another callback of the loop.

        A thread that the loop has just woken has often queued its next callback, which then need not wait until the
        loop looks at its descriptors. An exception is raised by `run`, in the loop's next call. The caller sets
        `will_run_ahead` before, and calls this whatever happens.
        """
        self.will_run_ahead = False
        steps = self._things
        for _ in range(len(steps)):
            try:
                steps.popleft()()
            except BaseException as failed:
                steps.appendleft(partial(_raise, failed))
                os.eventfd_write(self._descriptor, 1)
                return


def _raise(failed: BaseException) -> None:
    raise failed
