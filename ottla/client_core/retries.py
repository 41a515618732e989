"""Retries as decisions: after a failure, how long to pause before the next attempt, or that it was the last.

The driver waits. Chance and time are passed in, so that a decision can be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

_LARGEST_DOUBLING = 30
SPREAD = 0.2
"""How much a pause varies, as a part of itself, so that clients that failed together do not come back together."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double with each failure, from the first to the largest; equal ones where these are the same."""

    first_ms: int
    largest_ms: int
    spread: float = 0.0

    def pause_s(self, failures: int, chance: float = 0.5) -> float:
        """Return the pause after so many failures, in seconds. `chance` from 0 to 1 places it within its spread."""
        pause_ms: float = min(self.largest_ms, self.first_ms * 2 ** min(max(failures, 1) - 1, _LARGEST_DOUBLING))
        return pause_ms * (1 + self.spread * (2 * chance - 1)) / 1000


class Attempts:
    """The attempts at one thing: at most `most_retries` after the first, and none when the time is over.

    `give_up_at` is when the time is over. An attempt may begin when it is, if `last_at_the_end`; else the last one
    fails earlier, as soon as its pause would end too late.
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
        """Count a failure that another attempt may mend; return the pause before that in seconds, None to give up."""
        self.failures += 1
        if self._most_retries is not None and self.failures > self._most_retries:
            return None
        pause_s = self._backoff.pause_s(self.failures, chance)
        if self._give_up_at is not None and now + (0 if self._last_at_the_end else pause_s) >= self._give_up_at:
            return None
        return pause_s
