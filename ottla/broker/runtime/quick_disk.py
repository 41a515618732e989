"""Whether a disk syncs so quickly that the broker's thread may wait for it, while it has nothing else to do.

Passing a sync to a thread and its result back takes two wake-ups of sleeping threads: a quarter of the processor time
of a synced request, and as much of its latency (docs/decisions/a-sync-on-the-brokers-thread.md). Where a single client
sends, and waits for each answer (`Turn.serves_one`), no other client gains by the thread. But while the broker's thread
waits for the disk it answers no client, so it waits only for a disk that has been quick lately:

    usual       the average time of its syncs, in which the newest counts an eighth, is below `USUAL_US`
    slow        a sync that took `SLOW_US` or longer: threads sync for `FIRST_REST_MS`, and twice as long after each
                further slow one that comes soon, up to `MOST_REST_MS`

So a disk that sometimes stalls rarely delays the broker, and a slow disk never does.

Knows no clock and no disk: callers pass times.
"""

from __future__ import annotations

from typing import Final

USUAL_US: Final = 500
SLOW_US: Final = 10_000
FIRST_REST_MS: Final = 1_000
MOST_REST_MS: Final = 600_000
CALM_MS: Final = 600_000
"""After so long without a slow sync the next one counts as the first."""
_WEIGHT: Final = 8


class QuickDisk:
    """The times of the syncs of one file in a log directory. A disk without a known time is not quick."""

    __slots__ = ("_again_ms", "_rest_ms", "_usual_us")

    def __init__(self) -> None:
        self._usual_us = float(SLOW_US)
        self._again_ms = 0.0
        self._rest_ms = FIRST_REST_MS

    def note(self, elapsed_us: int, now_ms: float) -> None:
        """Note how long a sync of one file took; `now_ms` is monotonic."""
        if elapsed_us < SLOW_US:
            self._usual_us += (elapsed_us - self._usual_us) / _WEIGHT
            return
        if now_ms >= self._again_ms + CALM_MS:
            self._rest_ms = FIRST_REST_MS
        self._again_ms = now_ms + self._rest_ms
        self._rest_ms = min(2 * self._rest_ms, MOST_REST_MS)

    def is_quick(self, now_ms: float) -> bool:
        """Whether the broker's thread may wait for a sync now."""
        return self._usual_us < USUAL_US and now_ms >= self._again_ms
