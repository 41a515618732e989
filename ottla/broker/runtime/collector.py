"""The schedule of Python's garbage collector in a broker: no collection visits all objects while clients wait.

Reference counts free nearly everything immediately. The collector is for reference cycles. To find them it visits all
objects of a generation, 0.2 to 0.5 us for each, and nothing else runs meanwhile: 0.1 s with 2,000 partitions, more than
half a second with 10,000. So:

    young objects    after 5,000 new ones (`YOUNG_OBJECTS`); the survivors move to the middle generation
    middle ones      after two collections of young ones; the survivors are old
    all objects      when what the process has allocated has doubled: in a moment in which no client sends anything, or
                     after `MOST_WAIT_S` without such a moment

An old object in a cycle, such as the log of a deleted topic, is freed by the last kind only. A long answer must be in
no cycle: `steps.py` ensures that (docs/decisions/no-long-collections.md).

Knows no loop: `call_later` is the loop's. A process has one `Collector`, made by `process.py`.
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
"""New objects after which the collector visits the young ones: 1 to 2 ms. Small requests make hundreds of objects in a
turn and leave none, so they do not reach it."""
YOUNG_COLLECTIONS: Final = 1
"""The middle generation is collected after more than so many of the young one: 15,000 objects at most."""
NEVER: Final = 1 << 30
"""Collections of the middle generation between two of all objects: never by itself, `Collector` asks for those."""
LEAST_GROWTH: Final = 200_000
"""Blocks of memory by which the process must grow before all objects are visited, however few they were: 20 MB."""
LOOK_S: Final = 5.0
"""The interval of the checks of what is allocated; one takes 0.06 ms with 3,000 partitions."""
QUIET_S: Final = 1.0
"""The time without a byte from any client that counts as such a moment."""
MOST_WAIT_S: Final = 600.0
"""How long a collection of all objects waits for such a moment."""


class GarbageCollector(Protocol):
    """The functions of `gc` that are needed."""

    callbacks: list[Any]
    """Called with `start` and `stop`."""

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        """Set when each generation is collected."""

    def enable(self) -> None:
        """Collect by these thresholds."""

    def freeze(self) -> None:
        """Exempt all existing objects from collections."""

    def unfreeze(self) -> None:
        """Move them to the old generation."""

    def collect(self, generation: int = 2) -> int:
        """Collect now."""


class Handle(Protocol):
    """The result of `call_later`."""

    def cancel(self) -> None:
        """Cancel the call."""


class Collector:
    """Controls the collector of this process, until `stop`. `received_bytes` returns how many bytes clients have sent.
    `counters` count each collection as a step.
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
        # The command line begins without the collector, and what a start has made stays: move it to the old generation.
        collector.freeze()
        collector.unfreeze()
        self._blocks = allocated_blocks()
        """Allocated blocks when all objects were last visited."""
        collector.callbacks.append(self._on_collection)
        collector.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
        collector.enable()
        self._handle = call_later(LOOK_S, self._look)
        self._is_stopped = False

    def stop(self) -> None:
        """Change nothing more."""
        self._is_stopped = True
        self._handle.cancel()
        self._gc.callbacks.remove(self._on_collection)

    def plan_again(self) -> None:
        """Plan the next check, whether or not one is planned: there was no memory to plan it, perhaps."""
        if not self._is_stopped:
            self._handle.cancel()
            self._handle = self._call_later(LOOK_S, self._look)

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
        """Whether no bytes came since the check before. The first check only notes the time; the next one decides."""
        now_s, seen_bytes = self._now_s(), self._received_bytes()
        is_quiet = seen_bytes == self._seen_bytes
        self._seen_bytes = seen_bytes
        if self._waits_since_s is None:
            self._waits_since_s = now_s
            return False
        return is_quiet or now_s - self._waits_since_s >= MOST_WAIT_S
