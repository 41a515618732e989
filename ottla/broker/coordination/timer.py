"""The deadlines of a shard's keys: at most one for each key, and one timer of the broker for all of them.

They use the time in which the broker listens (`runtime/listening_time.py`). While that stands still, a timer comes
early, finds nothing due, and is planned again.

Source: Kafka's `CoordinatorTimer`. An exception of `on_due` is a bug, and is passed on to the loop. The other keys that
are due are handled after that. After a MemoryError it is not known which keys would still be due: `on_shortage` is
called, which has to plan everything again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.coordination.deadlines import Deadlines

if TYPE_CHECKING:
    from ottla.broker.runtime.listening_time import ListeningTime
    from ottla.broker.runtime.timers import Timer, Timers


class CoordinatorTimer:
    """`on_due(key)` is called once when a key is due; it may plan the key again."""

    def __init__(
        self,
        timers: Timers,
        time: ListeningTime,
        on_due: Callable[[str], None],
        on_shortage: Callable[[], None],
    ) -> None:
        self._timers = timers
        self._time = time
        self._on_due = on_due
        self._on_shortage = on_shortage
        self._deadlines: Deadlines[str] = Deadlines()
        self._timer: Timer | None = None
        self._planned_ms = 0.0
        """The deadline for which `_timer` is set."""
        self._is_closed = False

    def plan(self, key: str, deadline_ms: float | None) -> None:
        """Let `key` be due at `deadline_ms` and at no other time; never, where that is None."""
        if deadline_ms is None:
            self._deadlines.cancel(key)
        else:
            self._deadlines.set(key, deadline_ms)
            if self._timer is None or deadline_ms < self._planned_ms:
                self._start()

    def close(self) -> None:
        """Let nothing be due any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        try:
            self._run_due()
        except MemoryError:
            self._on_shortage()

    def _run_due(self) -> None:
        self._timer = None
        now_ms = self._time.now_ms()
        rest = iter(self._deadlines.take_due(now_ms))
        try:
            for key in rest:
                self._on_due(key)
        finally:
            for key in rest:
                self._deadlines.bring_forward(key, now_ms)
            self._start()

    def _start(self) -> None:
        next_ms = self._deadlines.next_ms
        if self._timer is not None:
            if next_ms is not None and self._planned_ms <= next_ms:
                return
            self._timer.cancel()
            self._timer = None
        if next_ms is not None and not self._is_closed:
            self._planned_ms = next_ms
            self._timer = self._timers.surely_at(self._time.clock_ms(next_ms), self._run)
