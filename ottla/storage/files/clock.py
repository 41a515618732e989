"""Time, passed in: the only three clocks that the storage and the broker may read.

`wall_ms` is the calendar and may jump. It is for record timestamps and rolling; deletion by age uses it only through
`clock_trust.py`. `monotonic_ms` never goes back and is for every wait, timeout and delay. `boot_ms` never jumps either,
and also counts while the machine is suspended: the calendar is compared with it. Tests pass `kit.clock.ManualClock`, so
that nothing sleeps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_MOST_ID_CHARACTERS = 64


class Clock(Protocol):
    """The clocks that are passed to code that needs the time."""

    def wall_ns(self) -> int:
        """As `wall_ms`, in nanoseconds: it saves the hot path a call."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump in either direction."""
        ...

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, in nanoseconds: for the hot path, as `wall_ns`."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary moment; never goes back."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since the machine's start, including suspends; never jumps."""
        ...

    def boot_id(self) -> str:
        """The id of the boot from which `boot_ms` counts; empty if the machine has none. Then `boot_ms` may count from
        any moment.
        """
        ...


class SystemClock:
    """The machine's own clocks."""

    def __init__(self) -> None:
        self._boot_id: str | None = None

    wall_ns = staticmethod(time.time_ns)
    monotonic_ns = staticmethod(time.monotonic_ns)

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since the machine's start."""
        return time.monotonic_ns() // 1_000_000

    def boot_ms(self) -> int:
        """CLOCK_BOOTTIME of Linux; elsewhere the closest clock (`boot_clock`)."""
        return _boot_ns() // 1_000_000

    def boot_id(self) -> str:
        """Linux's random id of this boot, read once; empty elsewhere."""
        if self._boot_id is None:
            try:
                self._boot_id = BOOT_ID_FILE.read_text("ascii")[:_MOST_ID_CHARACTERS].strip()
            except (OSError, ValueError):
                self._boot_id = ""
        return self._boot_id


def boot_clock(platform: str, clocks: object) -> str:
    """The name of the clock in the module `clocks` (`time`) that counts suspends and never jumps.

    Linux has CLOCK_BOOTTIME. macOS does not, but its CLOCK_MONOTONIC_RAW continues while the machine sleeps, according
    to Apple's clock_gettime(3) (on Linux the clock of that name does not, so it is used on macOS only). Without either,
    CLOCK_MONOTONIC is used, which may stop during a suspend: the calendar then seems to jump by its length.
    """
    if hasattr(clocks, "CLOCK_BOOTTIME"):
        return "CLOCK_BOOTTIME"
    if platform == "darwin" and hasattr(clocks, "CLOCK_MONOTONIC_RAW"):
        return "CLOCK_MONOTONIC_RAW"
    return "CLOCK_MONOTONIC"


def _reader() -> Callable[[], int]:
    number = getattr(time, boot_clock(sys.platform, time), None)
    if number is None:  # Windows has no clock_gettime
        return time.monotonic_ns
    return lambda: time.clock_gettime_ns(number)


_boot_ns = _reader()
