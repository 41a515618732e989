"""A token bucket (Kafka's `TokenBucket`, KIP-599): unused tokens are saved, up to a burst of the whole window.

A bucket of 2 per second with 11 samples of 1 s holds 22. A request for more tokens than it has still gets them, and the
rest is owed: a request of many partitions is never too large, it makes the next one wait. Callers pass the time.
"""

from __future__ import annotations

import math

from ottla.broker.security.quotas.rate import MOST_WAIT_MS


class TokenBucket:
    """See the module. It begins full."""

    __slots__ = ("_tokens", "_updated_ms", "_window_s")

    def __init__(self, samples: int, sample_ms: int) -> None:
        self._window_s = samples * sample_ms / 1000
        self._tokens = math.inf
        self._updated_ms = 0

    def take(self, tokens: float, per_second: float, now_ms: int) -> None:
        """Take so many, even more than there are."""
        self._tokens = min(self._window_s * per_second, self.left(per_second, now_ms) - tokens)

    def left(self, per_second: float, now_ms: int) -> float:
        """How many there are; negative if some are owed."""
        filled = self._tokens + per_second * (now_ms - self._updated_ms) / 1000
        self._tokens, self._updated_ms = min(self._window_s * per_second, filled), now_ms
        return self._tokens

    def wait_ms(self, per_second: float, now_ms: int) -> int:
        """The time until nothing is owed, at most MOST_WAIT_MS."""
        left = self.left(per_second, now_ms)
        return 0 if left >= 0 else math.floor(min(-left / per_second * 1000, MOST_WAIT_MS) + 0.5)
