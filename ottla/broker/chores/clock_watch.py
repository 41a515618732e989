"""Checks the wall clock once a second, and stores the trusted time on disk for the next start.

`ottla.storage.files.clock_trust` has the rules; code that deletes by time checks the clock itself, just before it does.
This check is for the log lines and the metric, and to follow small corrections of the wall clock. The broker's thread
calls `step`; what it returns is for a worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.services import Services

WRITE_EVERY_MS: Final = 300_000
"""The greatest age of the time that a start knows, and so the longest time that a start may wait too long."""
MOVED_MS: Final = 60_000
"""If the trusted time moves by more against the boot clock, it is written immediately: the clock has been set."""


class ClockWatch:
    """The chore of one node."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._written = services.clock_trust.known()

    def step(self) -> Callable[[], None] | None:
        """Check the clock. Return the work that stores the time, if that is necessary."""
        services, written = self._services, self._written
        services.clock_trust.look()
        known = services.clock_trust.known()
        passed_ms = known.boot_ms - written.boot_ms
        moved_ms = known.wall_ms - written.wall_ms - passed_ms
        if passed_ms < WRITE_EVERY_MS and abs(moved_ms) < MOVED_MS:
            return None
        self._written = known
        return partial(services.log_manager.write_known_time, known)
