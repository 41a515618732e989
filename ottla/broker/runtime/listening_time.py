"""The clock of deadlines that clients must meet: it counts only the time in which the broker listens to its clients.

A member of a group sends heartbeats, and a producer the end of its transaction, to a broker that may be held up: by a
start, a stopped process, a machine without a free processor. The requests wait in the sockets meanwhile, and a timer
that is due runs before they are read. Such time must not count against the client. So the time of a start does not
count, and between two reads of this clock at most `MOST_MS` count. A loop that runs reads it far more often
(`loop_watch.py`). Where each of its turns takes longer than that, deadlines come late, but they come.

Apache Kafka counts all time: a pause of the virtual machine ends sessions (docs/deviations.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

MOST_MS: Final = 1_000.0
"""Far more than a turn of the loop takes, and less than clients leave between a heartbeat and the end of a session."""


class ListeningTime:
    """Milliseconds that never go back. Without `hold` and `listen`, as in a simulation, all time counts."""

    __slots__ = ("_lost_ms", "_monotonic_ms", "_most_ms", "_seen_ms")

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._most_ms = math.inf
        """The most that counts between two reads."""
        self._seen_ms = monotonic_ms()
        self._lost_ms = 0.0

    def hold(self) -> None:
        """Stop the clock: no client is heard from now on, until `listen`."""
        self.now_ms()
        self._most_ms = 0.0

    def listen(self) -> None:
        """Start the clock: clients are heard from now on, by a loop that calls `now_ms` again and again."""
        self.now_ms()
        self._most_ms = MOST_MS

    def count(self, moved_ms: float) -> None:
        """Count time by which the monotonic clock has just been moved on purpose, all of it."""
        self._seen_ms += moved_ms

    def now_ms(self) -> float:
        """The time that counts until now."""
        now_ms = self._monotonic_ms()
        passed_ms = now_ms - self._seen_ms
        if passed_ms > self._most_ms:
            self._lost_ms += passed_ms - self._most_ms
        self._seen_ms = now_ms
        return now_ms - self._lost_ms

    def clock_ms(self, at_ms: float) -> float:
        """The monotonic time of a time of this clock, if all time counts from now on."""
        return at_ms + self._lost_ms
