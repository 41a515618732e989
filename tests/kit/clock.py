"""A clock that moves only when a test says so."""

from __future__ import annotations


class ManualClock:
    """All clocks of `ottla.storage.files.clock.Clock`, moved by hand.

    `advance` moves all, as life does; `set_wall` makes the calendar jump and leaves the others alone; a `suspend` is
    not counted by the monotonic clock; `reboot` begins a new count of the boot clock.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms
        self._boot_ms = 1_000
        self._boots = 1

    def wall_ns(self) -> int:
        """As `wall_ms`, in nanoseconds."""
        return self.wall_ms() * 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ns(self) -> int:
        """As `monotonic_ms`, in nanoseconds."""
        return self.monotonic_ms() * 1_000_000

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def boot_ms(self) -> int:
        return self._boot_ms

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on all clocks."""
        if ms < 0:
            raise ValueError(f"time does not go back: {ms}")
        self._monotonic_ms += ms
        self.suspend(ms)

    def suspend(self, ms: int) -> None:
        """Let `ms` milliseconds pass while the machine sleeps."""
        self._wall_ms += ms
        self._boot_ms += ms

    def reboot(self, off_ms: int = 0) -> None:
        """Switch the machine off for `off_ms`, which the calendar counts, and on again."""
        self._wall_ms += off_ms
        self._boot_ms = 1_000
        self._boots += 1

    def set_wall(self, wall_ms: int) -> None:
        """Make the calendar jump to `wall_ms`."""
        self._wall_ms = wall_ms
