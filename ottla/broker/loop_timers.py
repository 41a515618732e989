"""The broker's timers on the event loop: one `call_later` for the earliest deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.services import Services


class LoopTimers:
    """Runs the broker's timers by one `call_later` for the earliest; if it fires early, it plans again."""

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_ms = 0.0
        services.timers.on_earlier = self._plan

    def stop(self) -> None:
        """Run nothing more."""
        self._services.timers.on_earlier = None
        if self._handle is not None:
            self._handle.cancel()

    def run(self) -> None:
        """Run what is due now, and plan again: the clock was moved forward."""
        if self._handle is not None:
            self._handle.cancel()
        self._run()

    def _plan(self, deadline_ms: float) -> None:
        if self._handle is not None:
            if self._fires_at_ms <= deadline_ms:
                return
            self._handle.cancel()
        self._fires_at_ms = deadline_ms
        delay_ms = max(0.0, deadline_ms - self._services.clock.monotonic_ms())
        try:
            self._handle = self._loop.call_later(delay_ms / 1000, self._run)
        except MemoryError:
            self._handle = None
            self._services.memory_reserve.let_go()
            self._handle = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        self._handle = None
        services = self._services
        now_ms = services.clock.monotonic_ms()
        try:
            services.timers.run_due(now_ms)
        finally:
            # Also if a callback raises, which the loop logs: all deadlines of the broker depend on the next call.
            next_ms = services.timers.next_deadline_ms()
            if next_ms is not None:
                self._plan(next_ms)
