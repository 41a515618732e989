"""A clock that moves only when a test says so."""

from __future__ import annotations


class ManualClock:
    """Both clocks of `ottla.storage.clock.Clock`, moved by hand.

    `advance` moves both, as life does; `set_wall` makes the calendar jump and leaves the monotonic clock alone.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass on both clocks."""
        if ms < 0:
            raise ValueError(f"time does not go back: {ms}")
        self._wall_ms += ms
        self._monotonic_ms += ms

    def set_wall(self, wall_ms: int) -> None:
        """Make the calendar jump to `wall_ms`."""
        self._wall_ms = wall_ms
