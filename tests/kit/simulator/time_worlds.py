"""Worlds in which time matters: producers whose timestamps are partly out of order, topics whose records have the time
of the broker, and a client that looks offsets up by time (`look_ups.py`).

In the others each record has the time at which it was sent, which only a clock that jumps takes out of order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kit.simulator.look_ups import LookUps
from kit.simulator.model import Model
from kit.simulator.producers import Values
from kit.simulator.topic_model import TIMESTAMP_TYPE

WORLDS: Final = 0.2
"""How many there are."""
LATE_OR_EARLY: Final = 0.4
"""How many records have another time than that of their sending."""
OFF_MS: Final = (-3_600_000, -60_000, -5_000, -5_000, -1, 1, 500, 10_000, 3_600_000)
"""By how much."""
WITHOUT_TIME: Final = 0.03
"""How many records have no timestamp."""
NO_TIMESTAMP: Final = -1
_MORE: Final[Sequence[Mapping[str, str]]] = (
    {TIMESTAMP_TYPE: "LogAppendTime"},
    {TIMESTAMP_TYPE: "LogAppendTime", "index.interval.bytes": "1"},
    {"index.interval.bytes": "1"},
    {"index.interval.bytes": "1", "compression.type": "gzip"},
    {},
    {},
)
"""What the kinds of topics set beside what they set elsewhere."""


class TimeWorld:
    """See the module."""

    def __init__(self, seed: int, model: Model, values: Values, *, loses_writes: bool, has_transactions: bool) -> None:
        self._chance = random.Random(f"the times of {seed}")
        values.stamp_of = self._stamp
        self.look_ups = LookUps(model, self._chance, loses_writes=loses_writes, has_transactions=has_transactions)

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return self.look_ups.operations()

    def _stamp(self, now_ms: int) -> int:
        """The time that a producer gives a record."""
        if self._chance.random() < WITHOUT_TIME:
            return NO_TIMESTAMP
        if self._chance.random() < LATE_OR_EARLY:
            return now_ms + self._chance.choice(OFF_MS)
        return now_ms


def timed_kinds(kinds: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The kinds of topics of such a world."""
    return [{**kind, **more} for kind in kinds for more in _MORE]
