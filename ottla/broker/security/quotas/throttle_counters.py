"""How often clients had to wait for a quota, and for how long: for metrics."""

from __future__ import annotations


class ThrottleCounters:
    """By kind of quota: how often a client had to wait, and for how long in all."""

    __slots__ = ("throttle_ms", "throttled")

    def __init__(self) -> None:
        self.throttled: dict[str, int] = {}
        self.throttle_ms: dict[str, int] = {}

    def note(self, kind: str, throttle_ms: int) -> None:
        """Count a client that has to wait."""
        self.throttled[kind] = self.throttled.get(kind, 0) + 1
        self.throttle_ms[kind] = self.throttle_ms.get(kind, 0) + throttle_ms
