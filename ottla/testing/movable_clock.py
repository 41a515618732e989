"""A clock that a test moves forward: the machine's own time, and what was added."""

from __future__ import annotations

import time
from typing import Final

from ottla.storage.files.clock import SystemClock

_NS_PER_MS = 1_000_000
MOST_AHEAD_MS: Final = 1_000 * 365 * 24 * 3600 * 1000
"""Ottla's files, and Python's dates, end with the year 9999."""


class MovableClock(SystemClock):
    """The machine's clocks, all of them ahead by the same time. So the broker sees no jump of its wall clock."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead_ns = 0

    @property
    def ahead_ms(self) -> int:
        """How far it is ahead of the machine."""
        return self._ahead_ns // _NS_PER_MS

    def advance(self, ms: int) -> None:
        """Move all clocks forward. Raises ValueError: back is not possible, nor more than 1,000 years in all."""
        if ms < 0:
            raise ValueError(f"a clock cannot go back: {ms} ms")
        if self.ahead_ms + ms > MOST_AHEAD_MS:
            raise ValueError(f"{ms:,} ms: the clock can be 1,000 years ahead at most")
        self._ahead_ns += ms * _NS_PER_MS

    def wall_ns(self) -> int:
        """As `wall_ms`, in nanoseconds."""
        return time.time_ns() + self._ahead_ns

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, in nanoseconds."""
        return time.monotonic_ns() + self._ahead_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return self.wall_ns() // _NS_PER_MS

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment."""
        return self.monotonic_ns() // _NS_PER_MS

    def boot_ms(self) -> int:
        """Milliseconds since the machine's start, and the time that was added."""
        return super().boot_ms() + self.ahead_ms

    def boot_id(self) -> str:
        """Empty once it was moved: then no later start compares its own `boot_ms` with the one of this clock."""
        return "" if self._ahead_ns else super().boot_id()
