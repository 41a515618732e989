"""The broker's timers on the event loop: one `call_later` for the earliest deadline."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.broker.services import Services


class LoopTimers:
    """Runs the broker's timers by one `call_later` for the earliest; if it fires early, it plans again.

    If there is no memory for the `call_later`, `plan_again` is called after the shortage: all deadlines of the broker
    depend on it, since a later one plans nothing.
    """

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None
        self._fires_at_ms = 0.0
        self._is_stopped = False
        services.timers.on_earlier = self._plan
        services.memory_reserve.after_shortage.append(self.plan_again)

    def stop(self) -> None:
        """Run nothing more."""
        self._is_stopped = True
        self._services.timers.on_earlier = None
        self._forget_handle()

    def run(self) -> None:
        """Run what is due now, and plan again: the clock was moved forward."""
        self._forget_handle()
        self._run()

    def plan_again(self) -> None:
        """Plan the next call, whether or not one is planned. Raises MemoryError."""
        self._forget_handle()
        next_ms = None if self._is_stopped else self._services.timers.next_deadline_ms()
        if next_ms is not None:
            self._call_at(next_ms)

    def _forget_handle(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()

    def _plan(self, deadline_ms: float) -> None:
        if self._handle is not None:
            if self._fires_at_ms <= deadline_ms:
                return
            self._forget_handle()
        try:
            self._call_at(deadline_ms)
        except MemoryError:
            self._services.memory_reserve.let_go()

    def _call_at(self, deadline_ms: float) -> None:
        self._fires_at_ms = deadline_ms
        delay_ms = max(0.0, deadline_ms - self._services.clock.monotonic_ms())
        self._handle = self._loop.call_later(delay_ms / 1000, self._run)

    def _run(self) -> None:
        self._handle = None
        timers = self._services.timers
        try:
            timers.run_due(self._services.clock.monotonic_ms())
        finally:
            # Also if a callback raises, which the loop logs: all deadlines of the broker depend on the next call.
            next_ms = timers.next_deadline_ms()
            if next_ms is not None and not self._is_stopped:
                self._plan(next_ms)
