"""Where a thread waits for the loop's thread.

A lock, which is simple, wakes the waiting thread while the loop's thread has the interpreter: the thread wakes up,
finds that out, sleeps again and is woken a second time. While an eventfd is written the loop's thread lets go of the
interpreter, so that the other one can mostly continue at once: three switches between threads for a record that is
sent and awaited, where a lock takes six.

Two descriptors make such a `Bell`: an eventfd, and an epoll that reports each write to it once, so that nothing needs
to be read. Bells are kept and used again. A lock takes their place where there is no eventfd, no descriptor left, or
where more than `MOST_BELLS` threads wait at the same time.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

LOOK_S: Final = 1.0
"""No wait is longer without a look: a Ctrl-C that comes just before a wait begins does not end it."""
MOST_BELLS: Final = 16
"""Of a process; each has two descriptors."""


class Bell(Protocol):
    """What wakes a thread. A ring that comes before the wait is not lost; one may be left over from an earlier wait."""

    ring: Callable[[], object]
    await_ring: Callable[[float], object]
    """Sleep for at most so many seconds; return what is false when that was all."""


class EventBell:
    """An eventfd. Raises OSError when made: there is no descriptor left."""

    __slots__ = ("_bells", "_close", "_descriptor", "_poll", "await_ring", "ring")

    def __init__(self, bells: Bells) -> None:
        self._bells = bells
        self._descriptor: int = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._close = os.close  # os itself may be gone when the interpreter ends
        self._poll = select.epoll()
        self._poll.register(self._descriptor, select.EPOLLIN | select.EPOLLET)
        self.ring: Callable[[], object] = partial(os.eventfd_write, self._descriptor, 1)
        self.await_ring: Callable[[float], object] = partial(self._poll.poll, maxevents=1)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            self.ring = _stay_silent  # other garbage of the same cycle may still ring, and its number may be reused
            self._bells.event_bells -= 1
            self._close(descriptor)


def _stay_silent() -> None:
    """What is closed rings no more."""


class LockBell:
    """A lock, which everybody has."""

    __slots__ = ("_lock", "await_ring", "ring")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.ring: Callable[[], object] = self._ring
        self.await_ring: Callable[[float], object] = partial(self._lock.acquire, True)

    def _ring(self) -> None:
        if self._lock.locked():
            self._lock.release()


class Bells:
    """The bells of a process, of which those in `idle` are not used now. Any thread may take one, and gives it back.

    A forked child has others: parent and child would take each other's rings.
    """

    of_this_process: Bells

    def __init__(self) -> None:
        self.idle: list[Bell] = []
        self.event_bells = 0

    def another(self) -> Bell:
        """Return one more, or a lock in its place."""
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
        """In a new process: none so far."""
        cls.of_this_process = cls()


Bells.begin()
if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=Bells.begin)


class ThreadWaiter:
    """One thread waits, one other wakes it. A wake that comes before the wait is not lost.

    The thread calls `release` when it waits no more. What wakes it after that may ring the bell of another wait, which
    takes no notice. (It is no finalizer: one that runs for a cycle of garbage may give back a bell that is closed.)
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
        """Leave the bell to another wait; called once, and the last thing."""
        if isinstance(self._bell, EventBell):
            self._bells.idle.append(self._bell)

    def wake(self) -> None:
        """Let the thread continue; called by one thread alone, any number of times."""
        self._is_woken = True
        self._bell.ring()

    def wait(self, at_most_s: float) -> bool:
        """Wait to be woken, for at most so long, and at most `LOOK_S`; return whether it was."""
        limit_s = max(0.0, min(at_most_s, LOOK_S))
        while not self._is_woken:
            if not self._bell.await_ring(limit_s):
                return False
        self._is_woken = False
        return True
