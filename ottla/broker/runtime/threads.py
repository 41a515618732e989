"""Threads of the broker, and what happens when the system refuses one ("can't start new thread").

The limit of tasks is shared with other processes (`ulimit -u`, a container's or a unit's `pids.max`), so a refusal may
come at any time and is temporary. A broker therefore starts the threads that it needs at its own start, and refuses to
start without them. A part that needs another thread later, or whose thread has ended, asks here each time. Without a
thread the work is done on the broker's thread: other clients wait for it, but every request gets its answer.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from time import monotonic_ns, sleep
from typing import Any, Final

LOG = logging.getLogger("ottla.threads")

STACK_BYTES: Final = 1 << 20
"""The stack of each thread. The system's default, usually 8 MiB, would count as used memory under `ulimit -d`."""
POST_AGAIN_S: Final = 0.1
SAID_EVERY_NS: Final = 60_000_000_000
ADVICE: Final = (
    "the limit of tasks is reached or there is no memory for one: `ulimit -u`, TasksMax= in a unit of systemd or"
    " --pids-limit of a container raises it"
)


class NoThread(OSError):
    """The system refuses another thread."""

    def __init__(self, name: str, reason: BaseException) -> None:
        super().__init__(errno.EAGAIN, f"no thread can be started for {name} ({reason}); {ADVICE}")

    def __str__(self) -> str:
        return str(self.strerror)


class ThreadStarter:
    """Starts the threads of one part of the broker. `meanwhile`, for the log: what happens without a thread."""

    def __init__(self, meanwhile: str) -> None:
        self._meanwhile = meanwhile
        self._said_ns: int | None = None
        self._is_short = False

    def start(self, target: Callable[..., None], name: str, *args: Any) -> threading.Thread:
        """A running daemon thread. Raises NoThread."""
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=target, args=args, name=name, daemon=True)
            thread.start()
        except (RuntimeError, MemoryError) as error:
            raise NoThread(name, error) from error
        finally:
            threading.stack_size(before)
        if self._is_short:
            self._is_short = False
            LOG.info("a thread could be started again: %s", name)
        return thread

    def try_start(self, target: Callable[..., None], name: str, *args: Any) -> threading.Thread | None:
        """As `start`; without a thread, return None and log a line, at most once a minute."""
        try:
            return self.start(target, name, *args)
        except NoThread as error:
            self._is_short = True
            now_ns = monotonic_ns()
            if self._said_ns is None or now_ns - self._said_ns >= SAID_EVERY_NS:
                self._said_ns = now_ns
                LOG.error("%s. %s", error, self._meanwhile)
            return None


def post_surely(post: Callable[[Callable[[], None]], None], step: Callable[[], None]) -> None:
    """Post `step` to the broker's thread from another one, and retry until that succeeds: there may be no memory for it
    at the moment, and requests wait for `step`.
    """
    while True:
        try:
            post(step)
        except Exception:  # whatever it is, requests wait for the step
            sleep(POST_AGAIN_S)
        else:
            return
