"""The waiting of a thread for the loop's thread.

A simple lock would wake the waiting thread while the loop's thread holds the interpreter lock: the thread wakes up,
finds that lock taken, sleeps again and is woken a second time. While the loop's thread writes to an eventfd, it
releases the interpreter lock, so that the waiting thread can mostly continue immediately: a record that is sent and
awaited takes three thread switches, with a lock six.

Such a `Bell` has two descriptors: an eventfd, and an epoll that reports each write to it once, so that nothing needs to
be read. Bells are kept and reused. A lock is used instead if there is no eventfd, no descriptor left, or if more than
`MOST_BELLS` threads wait at the same time.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

LOOK_S: Final = 1.0
"""The longest wait before the next check: a Ctrl-C just before a wait does not end that wait."""
MOST_BELLS: Final = 16
"""The most bells of a process; each has two descriptors."""


class Bell(Protocol):
    """A way to wake a thread. A ring before the wait is not lost; one may be left over from an earlier wait."""

    ring: Callable[[], object]
    await_ring: Callable[[float, int], object]
    """Sleep for at most this many seconds; return a false value after the timeout. The second argument is 1: the number
    of events that an epoll returns. (Keyword arguments of a C function would cost more than the whole call.)"""


class EventBell:
    """A bell with an eventfd. The constructor raises OSError when no descriptor is left."""

    __slots__ = ("_bells", "_close", "_descriptor", "_poll", "await_ring", "ring")

    def __init__(self, bells: Bells) -> None:
        self._bells = bells
        self._descriptor: int = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = os.close  # os itself may be gone when the interpreter ends
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLIN | select.EPOLLET)
        self.ring: Callable[[], object] = partial(os.eventfd_write, self._descriptor, 1)
        self.await_ring: Callable[[float, int], object] = self._poll.poll

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            self.ring = _stay_silent  # other garbage of the same cycle may still ring, and its number may be reused
            self._bells.event_bells -= 1
            self._close(descriptor)


def _stay_silent() -> None:
    """Do nothing, instead of ringing a closed bell."""


class LockBell:
    """A bell with a lock, which exists on every system."""

    __slots__ = ("_lock", "await_ring", "ring")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.ring: Callable[[], object] = self._ring
        self.await_ring: Callable[[float, int], object] = self._await_ring

    def _await_ring(self, at_most_s: float, _: int) -> bool:
        return self._lock.acquire(timeout=at_most_s)

    def _ring(self) -> None:
        if self._lock.locked():
            self._lock.release()


class Bells:
    """The bells of a process; those in `idle` are free. Any thread may take one, and returns it.

    A forked child has its own: otherwise parent and child would get each other's rings.
    """

    of_this_process: Bells

    def __init__(self) -> None:
        self.idle: list[Bell] = []
        self.event_bells = 0

    def another(self) -> Bell:
        """Return a new bell, or a lock instead."""
        if self.event_bells < MOST_BELLS and hasattr(os, "eventfd"):
            try:
                bell = EventBell(self)
            except OSError:
                return LockBell()
            self.event_bells += 1
            return bell
        return LockBell()

    @classmethod
    def begin(cls) -> None:
        """Begin without any bell, in a new process."""
        cls.of_this_process = cls()


Bells.begin()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=Bells.begin)


class ThreadWaiter:
    """A wait of one thread, which one other thread ends. A wake before the wait is not lost.

    The thread calls `release` after its last wait. A later `wake` may ring the bell of another wait, which ignores it.
    (`release` is no finalizer: one that runs for a cycle of garbage might return a closed bell.)
    """

    __slots__ = ("_bell", "_bells", "_is_woken")

    def __init__(self) -> None:
        self._is_woken = False
        bells = self._bells = Bells.of_this_process
        try:
            self._bell = bells.idle.pop()
        except IndexError:
            self._bell = bells.another()

    def release(self) -> None:
        """Return the bell for another wait; call it once, at the end."""
        if isinstance(self._bell, EventBell):
            self._bells.idle.append(self._bell)

    def wake(self) -> None:
        """Let the thread continue; called by a single thread, any number of times."""
        self._is_woken = True
        self._bell.ring()

    def wait(self, at_most_s: float) -> bool:
        """Wait for `wake`, for at most this time and at most `LOOK_S`; return whether it was called."""
        limit_s = LOOK_S if at_most_s >= LOOK_S else max(0.0, at_most_s)
        while not self._is_woken:
            if not self._bell.await_ring(limit_s, 1):
                return False
        self._is_woken = False
        return True
