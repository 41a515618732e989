"""A rate over a moving window of samples (Kafka's `Rate` over `WindowedSum`, `SampledStat`), and the time to wait.

With samples of 1 s and `samples` = 11, the window is the ten whole samples before now and the elapsed part of the
newest. From the first value on, a rate is computed over the whole window: 1,000 in the first second are 100 per second.
That is the burst that a quota allows.

    rate      sum of the samples / seconds of the window
    wait      (rate - bound) / bound * window: after it, without new values, the rate is the bound (`QuotaUtils`)

A sample without a new value for the whole window is empty again. Callers pass the time, in whole milliseconds.

The window is never shorter than all samples but one. So if the sum of the samples is within the bound for that time,
the rate is within the bound, and need not be measured (`add_within`).
"""

from __future__ import annotations

import math
from typing import Final

MOST_WAIT_MS: Final = (1 << 31) - 1
"""The longest wait: the largest throttle time that an answer can have."""


class Rate:
    """See the module."""

    __slots__ = ("_current", "_last_ms", "_least_window_s", "_sample_ms", "_samples", "_starts_ms", "_sum", "_values")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._samples = samples
        self._sample_ms = sample_ms
        self._least_window_s = max((samples - 1) * sample_ms, 1) / 1000
        self._sum = 0.0
        """The sum of all samples, also of those that the next measurement would find expired."""
        self._current = 0
        self._starts_ms: list[int] = []
        self._last_ms: list[int] = []
        self._values: list[float] = []

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one withdraws what was added."""
        starts_ms, slot = self._starts_ms, self._current
        if not starts_ms or now_ms - starts_ms[slot] >= self._sample_ms:
            slot = self._next_sample(now_ms)
        self._values[slot] += value
        self._sum += value
        self._last_ms[slot] = now_ms

    def add_within(self, value: float, bound: float, now_ms: int) -> bool:
        """Add a value if no wait follows from it (`wait_ms`), else nothing. Returns whether it was added."""
        if self._sum + value > bound * self._least_window_s:
            self.record(value, now_ms)
            if not self.wait_ms(bound, now_ms):
                return True
            self.record(-value, now_ms)
            return False
        # `record`, inlined.
        starts_ms, slot = self._starts_ms, self._current
        if not starts_ms or now_ms - starts_ms[slot] >= self._sample_ms:
            slot = self._next_sample(now_ms)
        self._values[slot] += value
        self._sum += value
        self._last_ms[slot] = now_ms
        return True

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the length of the window in milliseconds, at least 1."""
        starts_ms, last_ms, sample_ms = self._starts_ms, self._last_ms, self._sample_ms
        if not starts_ms:
            self._add(now_ms)
        expired_ms = now_ms - self._samples * sample_ms
        for slot, last in enumerate(last_ms):
            if last <= expired_ms:
                self._reset(slot, now_ms)
        window_ms = now_ms - min(starts_ms)
        missing = self._samples - 1 - window_ms // sample_ms
        if missing > 0:
            window_ms += missing * sample_ms
        window_ms = max(window_ms, 1)
        return sum(self._values) / (window_ms / 1000), window_ms

    def wait_ms(self, bound: float, now_ms: int) -> int:
        """The time until the rate is down to the bound again, at most MOST_WAIT_MS; 0 if it is not above it."""
        rate, window_ms = self.measure(now_ms)
        # The limit comes first: a bound such as 5e-324 makes the time infinite.
        return 0 if rate <= bound else math.floor(min((rate - bound) / bound * window_ms, MOST_WAIT_MS) + 0.5)

    def _next_sample(self, now_ms: int) -> int:
        """Begin a sample."""
        if not self._starts_ms:
            self._add(now_ms)
            return 0
        # One sample more than the window has, for one that began before the window and overlaps it.
        self._current = slot = (self._current + 1) % (self._samples + 1)
        if slot >= len(self._starts_ms):
            self._add(now_ms)
        else:
            self._reset(slot, now_ms)
        return slot

    def _add(self, now_ms: int) -> None:
        self._starts_ms.append(now_ms)
        self._last_ms.append(now_ms)
        self._values.append(0.0)

    def _reset(self, slot: int, now_ms: int) -> None:
        self._starts_ms[slot] = self._last_ms[slot] = now_ms
        self._values[slot] = 0.0
        self._sum = sum(self._values)
