"""Looks at the wall clock once a second, and has what is believed of it on disk for the next start.

What is decided is in `ottla.storage.files.clock_trust`; whatever deletes by time looks itself, just before it does.
This look is for the lines and the metric, and so that the wall clock's small corrections are followed. The broker's
thread calls `step`; what it returns is for a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.services import Services

WRITE_EVERY_MS: Final = 300_000
"""What a start knows of the time is at most so old, and what it goes on waiting is at most so much too long."""
MOVED_MS: Final = 60_000
"""A believed time that has moved by more against the boot clock is written at once: somebody has set the clock."""


class ClockWatch:
    """The chore of one node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._written = services.clock_trust.known()

    def step(self) -> Callable[[], None] | None:
        """Look; what is to be written, if anything."""
        services, written = self._services, self._written
        services.clock_trust.look()
        known = services.clock_trust.known()
        passed_ms = known.boot_ms - written.boot_ms
        moved_ms = known.wall_ms - written.wall_ms - passed_ms
        if passed_ms < WRITE_EVERY_MS and abs(moved_ms) < MOVED_MS:
            return None
        self._written = known
        return partial(services.log_manager.write_known_time, known)
