"""The waits for the high watermark of one partition: acknowledgements, and requests about records that are not synced.

Each waits for an offset, until a deadline; they are notified in the order of their offsets. One timer serves all of
them. Called by the partition only, on the broker's thread.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.storage.files.clock import Clock

VisibleCallback = Callable[[BaseException | None], None]
NEVER_MS = (1 << 63) - 1
"""Kafka's "no limit" for times."""

_end_offset = itemgetter(0)

_Wait = tuple[int, float, VisibleCallback]
"""The end offset that must be visible, the deadline (monotonic, ms), the callback. A tuple is cheap: a synced Produce
has one per partition."""


def promise_failure(error: BaseException) -> tuple[ErrorCode, str]:
    """The answer to a producer whose batch is stored, but was not visible by its deadline or not synced."""
    if isinstance(error, KafkaError):
        return error.code, error.message
    return ErrorCode.KAFKA_STORAGE_ERROR, str(error)


class VisibilityWaits:
    """See the module. `waiting` is the list of waits."""

    __slots__ = ("_clock", "_timer", "_timers", "waiting")

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._timer: Timer | None = None
        self.waiting: list[_Wait] = []

    def add(self, end_offset: int, callback: VisibleCallback, deadline_ms: float) -> None:
        """Call back with None once `end_offset` is reached, with an error when that fails or `deadline_ms` is past."""
        wait = (end_offset, deadline_ms, callback)
        waits = self.waiting
        if waits and waits[-1][0] > end_offset:
            insort(waits, wait, key=_end_offset)
        else:
            waits.append(wait)
        if deadline_ms < NEVER_MS:
            timer = self._timer
            if timer is None or timer.deadline_ms > deadline_ms:
                if timer is not None:
                    timer.cancel()
                self._timer = self._timers.at(deadline_ms, self._expire)

    def reached(self, offset: int) -> None:
        """Call back the waits up to `offset`: everything below it is visible."""
        waits = self.waiting
        if not waits:
            return
        if waits[-1][0] <= offset:
            reported, self.waiting = waits, []
        else:
            count = sum(wait[0] <= offset for wait in waits)
            reported, self.waiting = waits[:count], waits[count:]
        for _, _, callback in reported:
            callback(None)

    def fail(self, error: BaseException) -> None:
        """Call back all waits with `error`."""
        waits, self.waiting = self.waiting, []
        for _, _, callback in waits:
            callback(error)

    def stop(self) -> None:
        """Cancel the timer: there will be no more waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """Time out the waits that are due; the next timer is for the earliest of the rest."""
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        due = [wait for wait in self.waiting if wait[1] <= now_ms]
        self.waiting = [wait for wait in self.waiting if wait[1] > now_ms]
        next_ms = min((wait[1] for wait in self.waiting), default=NEVER_MS)
        if next_ms < NEVER_MS:
            self._timer = self._timers.at(next_ms, self._expire)
        for _, _, callback in due:
            callback(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the disk did not sync in time"))
