"""The time in which the broker listens to its clients: what a client that has to show life may be late by.

A member of a group sends heartbeats, and a producer the end of its transaction, to a broker that may be held up: by a
start, a stopped process, a machine without a free processor. They wait in the sockets meanwhile, and a timer that is
due runs before they are read. Such time must not count against the client. So a start counts nothing, and from one look
at this time to the next at most `MOST_MS` count. A loop that runs looks far more often (`loop_watch.py`); where each of
its turns takes longer than that, deadlines come late, and they come.

Apache Kafka counts all time: a pause of the virtual machine ends sessions (docs/deviations.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

MOST_MS: Final = 1_000.0
"""Far more than a turn of the loop takes, and less than clients leave between a heartbeat and the end of a session."""


class ListeningTime:
    """Milliseconds, which never go back. Without `hold` and `listen`, as under a simulation, all time counts."""

    __slots__ = ("_lost_ms", "_monotonic_ms", "_most_ms", "_seen_ms")

    def __init__(self, monotonic_ms: Callable[[], float]) -> None:
        self._monotonic_ms = monotonic_ms
        self._most_ms = math.inf
        """What counts from one look to the next, at most."""
        self._seen_ms = monotonic_ms()
        self._lost_ms = 0.0

    def hold(self) -> None:
        """No client is heard from now on, until `listen`."""
        self.now_ms()
        self._most_ms = 0.0

    def listen(self) -> None:
        """Clients are heard from now on, by a loop that looks at this time (`now_ms`) again and again."""
        self.now_ms()
        self._most_ms = MOST_MS

    def now_ms(self) -> float:
        """The time that counts."""
        now_ms = self._monotonic_ms()
        passed_ms = now_ms - self._seen_ms
        if passed_ms > self._most_ms:
            self._lost_ms += passed_ms - self._most_ms
        self._seen_ms = now_ms
        return now_ms - self._lost_ms

    def clock_ms(self, at_ms: float) -> float:
        """What the monotonic clock will show at a time that counts, if all counts from now on."""
        return at_ms + self._lost_ms
