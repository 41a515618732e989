"""A reserve of memory for the time when the system gives no more: with it a failed connection can be closed and logged.

Without any memory the loop cannot even close a connection. It finds the same socket readable again, and spins on it
forever. So a MemoryError that reaches the loop, or a connection that has no room for what it receives, releases the
reserve. The connection that needed memory is closed with it, and a timer takes the reserve again when the system has
memory.

A MemoryError can also end a chain of timers, each of which plans the next: it would never run again. So after each
shortage `recover` plans all of them again. The loop calls it until there is memory for that (`wake`).

The reserve uses no physical memory: its pages are never written to. They count only where address space or data
are limited (RLIMIT_AS, RLIMIT_DATA, no overcommit). A cgroup's limit raises no MemoryError: the kernel kills there.
"""

from __future__ import annotations

import logging
import mmap
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.broker.runtime.timers import Timer, Timers

LOG = logging.getLogger("ottla.memory")

RESERVE_BYTES: Final = 4 << 20
"""A few of the blocks of 1 MiB that the interpreter requests from the system, and some room for the log line."""
AGAIN_MS: Final = 1_000
SAID_EVERY_MS: Final = 60_000

Map = Callable[[int], mmap.mmap]


def _nothing() -> None:
    """Wake no loop: there is none."""


def _pages(size_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class MemoryReserve:
    """The reserve of one broker; nothing is held before `take`. All calls on the broker's thread.

    Attributes:
        after_shortage: called after a shortage, perhaps several times: each plans its timer again, or raises
            MemoryError.
        wake: makes the loop call `recover` soon, and again until that returns True. It must not need memory.
    """

    def __init__(self, timers: Timers, now_ms: Callable[[], float], pages: Map = _pages) -> None:
        self._timers = timers
        self._now_ms = now_ms
        self._pages = pages
        self._held: mmap.mmap | None = None
        self._again: Timer | None = None
        self._is_short = self._is_ended = False
        self._said_ms: float | None = None
        self.after_shortage: list[Callable[[], object]] = []
        self.wake: Callable[[], object] = _nothing

    @property
    def is_held(self) -> bool:
        """Whether it is available for the next shortage."""
        return self._held is not None

    def take(self) -> None:
        """Take the reserve; if there is no memory for it, try again later."""
        if self._held is not None or self._is_ended:
            return
        try:
            self._held = self._pages(RESERVE_BYTES)
        except (MemoryError, OSError):
            self._plan()
            return
        if self._is_short:
            self._is_short = False
            LOG.info("memory is available again")

    def let_go(self) -> None:
        """Release the reserve: memory has run out, and closing what failed needs some. Raises nothing."""
        held, self._held = self._held, None
        if held is not None:
            held.close()  # before anything that needs memory
            self._is_short = True
        try:
            self.wake()
            self._plan()
            if held is not None:
                self._say()
        except MemoryError:
            return  # `recover` plans it

    def recover(self) -> bool:
        """Plan everything again that a shortage may have ended; return False if there is not enough memory yet."""
        try:
            for plan in self.after_shortage:
                plan()
            if self._held is None:
                self._plan()
        except MemoryError:
            return False
        return True

    def end(self) -> None:
        """Release the reserve for good: the broker stops, and has to stop even if there is no memory left."""
        self._is_ended = True
        held, self._held = self._held, None
        if held is not None:
            held.close()

    def _plan(self) -> None:
        if (self._again is None or self._again.callback is None) and not self._is_ended:
            self._again = self._timers.at(self._now_ms() + AGAIN_MS, self.take)

    def _say(self) -> None:
        now_ms = self._now_ms()
        if self._said_ms is None or now_ms - self._said_ms >= SAID_EVERY_MS:
            self._said_ms = now_ms
            LOG.error(
                "no memory left: the system gives this process no more (`ulimit -d`, `ulimit -v`, or no overcommit)."
                " Connections that need some are closed. docs/limits.md says how small a broker may be"
            )

    # -- where uncaught errors arrive ---------------------------------------------------------------------------------

    def on_loop_error(self, loop: Any, context: dict[str, Any]) -> None:
        """The loop's exception handler: a MemoryError is a shortage, and everything else is logged as always."""
        if isinstance(context.get("exception"), MemoryError):
            self.let_go()
            return
        try:
            loop.default_exception_handler(context)
        except MemoryError:
            self.let_go()

    def on_unraisable(self, unraisable: Any) -> None:
        """`sys.unraisablehook`: what a callback of the loop's C code raised."""
        try:
            if unraisable.exc_type is not MemoryError:  # an OSError of the system, for example
                sys.__unraisablehook__(unraisable)
                return
        except MemoryError:
            pass  # the message needs memory, too
        self.let_go()
