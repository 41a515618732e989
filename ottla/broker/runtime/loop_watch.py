"""The lag of the event loop: how much later than planned a timer runs, because other work holds the loop.

A timer runs every `INTERVAL_S`; its delay is a sample. Work that holds the loop for longer than the interval is always
seen, shorter work by chance: the histogram shows what a client that sends a request at a random moment finds. It
includes waits for the interpreter's lock and for the operating system's scheduler: clients wait for them too.

The timer also reads the listening time (`listening_time.py`), so often that no stop of the loop is missed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from ottla.broker.runtime.metrics import Histogram

INTERVAL_S: Final = 0.1
"""Ten wake-ups a second are 0.02 % of a processor."""


class Handle(Protocol):
    """The result of `call_later`."""

    def cancel(self) -> None:
        """Cancel the call."""


class LoopWatch:
    """Samples into `lag` until `stop`, and calls `look` each time. `call_later` is the loop's.

    It plans the next sample first: an error of `look` does not end it. If there is no memory to plan it, `plan_again`
    has to be called.
    """

    def __init__(
        self,
        lag: Histogram,
        look: Callable[[], object],
        call_later: Callable[[float, Callable[[], None]], Handle],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lag = lag
        self._look_at_time = look
        self._call_later = call_later
        self._now_s = now_s
        self._due_s = 0.0
        self._handle: Handle | None = None
        self._is_stopped = False
        self._plan()

    def stop(self) -> None:
        """End the timer."""
        self._is_stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def plan_again(self) -> None:
        """Plan the next sample, whether or not one is planned."""
        if self._is_stopped:
            return
        if self._handle is not None:
            self._handle.cancel()
        self._plan()

    def _plan(self) -> None:
        self._handle = None
        self._due_s = self._now_s() + INTERVAL_S
        self._handle = self._call_later(INTERVAL_S, self._look)

    def _look(self) -> None:
        due_s = self._due_s
        self._plan()
        self._lag.observe(max(0, int((self._now_s() - due_s) * 1e6)))
        self._look_at_time()
