"""Time, passed in: the only two clocks that the storage and the broker may look at.

`wall_ms` is the calendar and may jump: it serves record timestamps, retention and rolling only. `monotonic_ms` never
goes back and serves every wait, timeout and delay. Tests pass `kit.clock.ManualClock`, so that nothing sleeps.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the code that needs time is given."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in either direction."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since the machine's start."""
        return time.monotonic_ns() // 1_000_000
