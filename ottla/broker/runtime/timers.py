"""Deadlines without a loop: a heap of (monotonic time, callback).

The real broker drives it through one `loop.call_later` for the earliest deadline (`on_earlier` is called when that
becomes earlier); a simulation moves its clock and calls `run_due`. A cancelled timer stays in the heap until it would
have been due, or until more than half of the heap is cancelled: long polls that are answered early must not pile up.

A callback that raises is a bug, and `run_due` raises its error; the other timers stay, and are due in the next call.
A MemoryError is no bug: it would end a chain of timers, of which each plans the next, for good. So the callbacks of
`surely_at` are called again after it, until one call ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

_COMPACT_FROM = 64
AGAIN_MS = 1_000
"""The time after a MemoryError until the callback of a timer that must not be lost is called again."""


class Timer:
    """A planned deadline; `cancel()` withdraws it and may be called at any time, also twice."""

    __slots__ = ("_timers", "callback", "deadline_ms", "order")

    def __init__(self, timers: Timers, deadline_ms: float, order: int, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return (self.deadline_ms, self.order) < (other.deadline_ms, other.order)

    def cancel(self) -> None:
        """Never run the callback."""
        if self.callback is not None:
            self.callback = None
            self._timers.note_cancelled()


class _SureTimer(Timer):
    """A timer of `surely_at`. While its callback runs, it is in the heap for the case that there is no memory."""

    __slots__ = ()


class Timers:
    """All deadlines of one broker. `monotonic_ms` values only, never wall time."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._later: list[Timer] = []
        """Timers that are due already, added by callbacks of the current `run_due`: for its next call."""
        self._next_order = 0
        self._cancelled_count = 0
        self.on_earlier: Callable[[float], None] | None = None
        """Called with the new earliest deadline when a timer is added before all others."""

    def __len__(self) -> int:
        return len(self._heap) + len(self._later) - self._cancelled_count

    @property
    def kept(self) -> int:
        """How many take memory: active ones, and cancelled ones that are not removed yet."""
        return len(self._heap) + len(self._later)

    def at(self, deadline_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` once `run_due` gets a monotonic time of `deadline_ms` or later; equal deadlines in order."""
        self._next_order += 1
        timer = Timer(self, deadline_ms, self._next_order, callback)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer and self.on_earlier is not None:
            self.on_earlier(deadline_ms)
        return timer

    def surely_at(self, deadline_ms: float, callback: Callable[[], None]) -> Timer:
        """As `at`, for a callback whose loss nothing would make good: after a MemoryError of it, it is called again.
        It must be correct to call it again, wherever it was interrupted.
        """
        self._next_order += 1
        timer = _SureTimer(self, deadline_ms, self._next_order, callback)
        heapq.heappush(self._heap, timer)
        if self._heap[0] is timer and self.on_earlier is not None:
            self.on_earlier(deadline_ms)
        return timer

    def next_deadline_ms(self) -> float | None:
        """The earliest deadline that is not cancelled, or None."""
        heap = self._heap
        while heap and heap[0].callback is None:
            heapq.heappop(heap)
            self._cancelled_count -= 1
        return heap[0].deadline_ms if heap else None

    def run_due(self, now_ms: float) -> int:
        """Run everything that is due at `now_ms`; return how many ran.

        Timers that these callbacks add run in the next call only: a callback that always adds another one that is
        already due would never end.
        """
        last_order = self._next_order
        ran = 0
        try:
            while self._heap and self._heap[0].deadline_ms <= now_ms:
                timer = self._heap[0]
                callback = timer.callback
                if callback is not None and timer.order <= last_order and isinstance(timer, _SureTimer):
                    ran += 1
                    self._run_surely(timer, callback, now_ms)
                    continue
                heapq.heappop(self._heap)
                if callback is None:
                    self._cancelled_count -= 1
                elif timer.order > last_order:
                    self._later.append(timer)
                else:
                    timer.callback = None
                    ran += 1
                    callback()
        finally:
            later = self._later
            while later:  # in steps that lose none if there is no memory for one
                heapq.heappush(self._heap, later[-1])
                later.pop()
        return ran

    def _run_surely(self, timer: _SureTimer, callback: Callable[[], None], now_ms: float) -> None:
        """Run the callback of the first timer of the heap. Needs no memory to keep it for another call."""
        timer.deadline_ms = now_ms + AGAIN_MS
        heapq.heapreplace(self._heap, timer)
        try:
            callback()
        except MemoryError:
            raise
        except BaseException:
            timer.cancel()
            raise
        timer.cancel()

    def note_cancelled(self) -> None:
        """Count a cancelled timer, and clean the heap when most of it is cancelled."""
        self._cancelled_count += 1
        if self._cancelled_count > _COMPACT_FROM and self._cancelled_count * 2 > len(self._heap) + len(self._later):
            self._heap = [timer for timer in self._heap if timer.callback is not None]
            heapq.heapify(self._heap)
            self._later = [timer for timer in self._later if timer.callback is not None]
            self._cancelled_count = 0
