"""Retries as decisions: after a failure, the pause before the next attempt, or that it was the last.

The driver waits. Random numbers and time are passed in, so that a decision can be reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass

_LARGEST_DOUBLING = 30
SPREAD = 0.2
"""The relative variation of a pause, so that clients that failed together do not all retry at the same time."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure, from the first to the largest; all equal where these two are."""

    first_ms: int
    largest_ms: int
    spread: float = 0.0

    def pause_s(self, failures: int, chance: float = 0.5) -> float:
        """Return the pause after this many failures, in seconds. `chance` from 0 to 1 places it within its spread."""
        pause_ms: float = min(self.largest_ms, self.first_ms * 2 ** min(max(failures, 1) - 1, _LARGEST_DOUBLING))
        return pause_ms * (1 + self.spread * (2 * chance - 1)) / 1000


class Attempts:
    """The attempts at one task: at most `most_retries` after the first, and none after the time `give_up_at`.

    With `last_at_the_end` a pause may end after `give_up_at`, so that a last attempt begins then. Otherwise there is no
    further attempt as soon as the pause before it would end too late.
    """

    def __init__(
        self,
        backoff: Backoff,
        *,
        most_retries: int | None = None,
        give_up_at: float | None = None,
        last_at_the_end: bool = False,
    ) -> None:
        self.failures = 0
        self._backoff = backoff
        self._most_retries = most_retries
        self._give_up_at = give_up_at
        self._last_at_the_end = last_at_the_end

    def failed(self, now: float, chance: float = 0.5) -> float | None:
        """Count a failure after which a retry may succeed; return the pause before it in seconds, None to give up."""
        self.failures += 1
        if self._most_retries is not None and self.failures > self._most_retries:
            return None
        pause_s = self._backoff.pause_s(self.failures, chance)
        if self._give_up_at is not None and now + (0 if self._last_at_the_end else pause_s) >= self._give_up_at:
            return None
        return pause_s
