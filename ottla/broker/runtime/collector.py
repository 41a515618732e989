"""Python's garbage collector, as a broker has it: no collection goes through all objects while clients wait.

Reference counts free nearly everything at once. The collector is for objects that refer to each other in a circle. To
find them it goes through all objects of a generation, 0.2 to 0.5 us for each, and nothing else runs meanwhile: with
2,000 partitions for 0.1 s, with 10,000 for more than half a second. So:

    young objects    after 5,000 new ones (`YOUNG_OBJECTS`); those that are left are of the middle generation
    middle ones      after two collections of young ones; those that are left are old
    all objects      when what the process has allocated has doubled: in a moment in which no client sends anything, or
                     after `MOST_WAIT_S` without one

What is in a circle and is old, such as the log of a deleted topic, is freed by the last kind only. A long answer must
be in none: `steps.py` sees to that (docs/decisions/no-long-collections.md).

Knows no loop: `call_later` is the loop's. One of a process, made by `process.py`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ottla.broker.runtime.metrics import ChoreCounters

YOUNG_OBJECTS: Final = 5_000
"""New objects after which the collector goes through the young ones: 1 to 2 ms. Small requests make hundreds of objects
in a turn, and leave none, so they do not come to it."""
YOUNG_COLLECTIONS: Final = 1
"""The middle generation is collected after more than so many of the young one: 15,000 objects at most."""
NEVER: Final = 1 << 30
"""Collections of the middle generation between two of all objects: those are asked for."""
LEAST_GROWTH: Final = 200_000
"""Blocks of memory by which the process must grow before all objects are gone through, however few they were: 20 MB."""
LOOK_S: Final = 5.0
"""Between two looks at what is allocated: 0.06 ms with 3,000 partitions."""
QUIET_S: Final = 1.0
"""So long no client must have sent anything."""
MOST_WAIT_S: Final = 600.0
"""For such a moment."""


class GarbageCollector(Protocol):
    """The functions of `gc` that are needed."""

    callbacks: list[Any]
    """Called with `start` and `stop`."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        """Say when each generation is collected."""

    def enable(self) -> None:
        """Collect by these thresholds."""

    def freeze(self) -> None:
        """Let no collection go through the objects that there are."""

    def unfreeze(self) -> None:
        """Make them old ones."""

    def collect(self, generation: int = 2) -> int:
        """Collect now."""


class Handle(Protocol):
    """What `call_later` gives."""

    def cancel(self) -> None:
        """Do not call."""


class Collector:
    """Sets the collector of this process up, until `stop`. `received_bytes` says how many bytes clients have sent,
    `counters` get each collection as a step.
    """

    def __init__(
        self,
        counters: ChoreCounters,
        received_bytes: Callable[[], int],
        call_later: Callable[[float, Callable[[], None]], Handle],
        *,
        wall_ms: Callable[[], int],
        collector: GarbageCollector = gc,
        allocated_blocks: Callable[[], int] = sys.getallocatedblocks,
        now_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._counters = counters
        self._received_bytes = received_bytes
        self._call_later = call_later
        self._wall_ms = wall_ms
        self._gc = collector
        self._allocated_blocks = allocated_blocks
        self._now_s = now_s
        self._began_s = 0.0
        self._seen_bytes = -1
        self._waits_since_s: float | None = None
        # The command line has begun without the collector, and what a start has made stays: it becomes old at once.
        collector.freeze()
        collector.unfreeze()
        self._blocks = allocated_blocks()
        """Allocated when all objects were gone through."""
        collector.callbacks.append(self._on_collection)
        collector.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        collector.enable()
        self._handle = call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Change nothing more."""
        self._handle.cancel()
        self._gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        """Count a collection. Runs in any thread, and never twice at a time: nothing is collected meanwhile."""
        if phase == "start":
            self._began_s = self._now_s()
            return
        self._counters.step(int((self._now_s() - self._began_s) * 1e6), self._wall_ms())

    def _look(self) -> None:
        """Collect all objects if that is due and no client sends anything."""
        delay_s = LOOK_S
        if self._allocated_blocks() < self._blocks + max(self._blocks, LEAST_GROWTH):
            self._waits_since_s = None
        elif self._may_collect():
            self._gc.collect()
            self._blocks = self._allocated_blocks()
            self._waits_since_s = None
        else:
            delay_s = QUIET_S
        self._handle = self._call_later(delay_s, self._look)

    def _may_collect(self) -> bool:
        """Whether nothing came since the look before, of which the first one waits for the next."""
        now_s, seen_bytes = self._now_s(), self._received_bytes()
        is_quiet = seen_bytes == self._seen_bytes
        self._seen_bytes = seen_bytes
        if self._waits_since_s is None:
            self._waits_since_s = now_s
            return False
        return is_quiet or now_s - self._waits_since_s >= MOST_WAIT_S
