"""Threads of the broker, and what happens where the system refuses one ("can't start new thread").

The limit of tasks is shared with other processes (`ulimit -u`, a container's or a unit's `pids.max`), so a refusal
comes at any time and passes. A broker therefore starts what it cannot do without at its own start, and refuses that
start where it gets none. What needs another one later, or finds that its own has ended, asks here each time; what it
gets none for is done on the broker's thread, late for everybody else, and nobody is left without an answer.
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
"""Of each thread. The system's own choice, 8 MiB as a rule, would count as used memory under `ulimit -d`."""
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
    """Starts the threads of one part of the broker. `meanwhile` says what is done without one, for the log."""

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
        """As `start`; without one None, and a line once a minute at most."""
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
    """Post `step` to the broker's thread from another one, again and again until that succeeds: there may be no memory
    for it at the moment, and somebody waits for what it does.
    """
    while True:
        try:
            post(step)
        except Exception:
            sleep(POST_AGAIN_S)
        else:
            return
