"""Where a thread waits for the loop's thread: a lock, which costs a fifth of what a condition or an event does."""

from __future__ import annotations

import threading

LOOK_S = 1.0
"""No wait is longer without a look: a Ctrl-C that comes just before a lock is waited for does not end that wait."""


class ThreadWaiter:
    """One thread waits, one other wakes it. A wake that comes before the wait is not lost."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Let the thread go on; called by one thread alone, any number of times."""
        if self._lock.locked():
            self._lock.release()

    def wait(self, at_most_s: float) -> bool:
        """Wait to be woken, for at most so long, and at most `LOOK_S`; return whether it was."""
        return self._lock.acquire(timeout=max(0.0, min(at_most_s, LOOK_S)))
