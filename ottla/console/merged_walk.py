"""The order in which records of several partitions are shown: by time, forwards or backwards, page by page. Pure.

Each partition is a `Lane` of records that were read, in the order of their offsets. A record is taken from the lane
whose next one is the newest (backwards) or the oldest (forwards). A lane that has no record left, although its
partition has more, stops the walk until more of it was read: an unread record might come first.

What is left of a walk is one offset for each partition, its `Place`; the next page begins there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Seen(NamedTuple):
    """A record that was read. `shown` is None if it does not match the search."""

    offset: int
    timestamp_ms: int
    shown: dict[str, Any] | None


@dataclass(slots=True)
class Lane:
    """A partition of a walk: the offsets that are not read yet, and the records that are read and not shown.

    Backwards, `[start, end)` shrinks from its end, forwards from its start.
    """

    start: int
    end: int
    read: deque[Seen] = field(default_factory=deque)
    window: int = 1

    @property
    def is_exhausted(self) -> bool:
        """Whether everything was read."""
        return self.start >= self.end

    @property
    def is_dry(self) -> bool:
        """Whether more has to be read before the walk can continue."""
        return not self.read and not self.is_exhausted


class Walk:
    """See the module. `first_window`: how many offsets of each partition are read first; it doubles up to `most`."""

    def __init__(
        self, edges: Mapping[int, tuple[int, int]], *, is_backwards: bool, first_window: int, most: int
    ) -> None:
        self.is_backwards = is_backwards
        self.lanes = {
            partition: Lane(start, end, window=first_window) for partition, (start, end) in edges.items() if start < end
        }
        self._places = {partition: end if is_backwards else start for partition, (start, end) in edges.items()}
        self._most = most
        self.scanned = 0

    def windows(self) -> dict[int, tuple[int, int]]:
        """The offsets `[low, high)` that have to be read next, by partition."""
        found: dict[int, tuple[int, int]] = {}
        for partition, lane in self.lanes.items():
            if lane.is_dry:
                if self.is_backwards:
                    found[partition] = (max(lane.start, lane.end - lane.window), lane.end)
                else:
                    found[partition] = (lane.start, min(lane.end, lane.start + lane.window))
        return found

    def add(self, partition: int, window: tuple[int, int], seen: Iterable[Seen]) -> None:
        """Add the records of a window, in the order of their offsets."""
        lane = self.lanes[partition]
        low, high = window
        if self.is_backwards:
            lane.end = low
        else:
            lane.start = high
        lane.read.extend(seen)
        lane.window = min(lane.window * 2, self._most)

    def take(self, limit: int) -> list[dict[str, Any]]:
        """Take records up to `limit` that match, as far as the lanes allow. Counts all that were passed."""
        taken: list[dict[str, Any]] = []
        while len(taken) < limit and not any(lane.is_dry for lane in self.lanes.values()):
            partition = self._next()
            if partition is None:
                break
            lane = self.lanes[partition]
            seen = lane.read.pop() if self.is_backwards else lane.read.popleft()
            self._places[partition] = seen.offset if self.is_backwards else seen.offset + 1
            self.scanned += 1
            if seen.shown is not None:
                taken.append(seen.shown)
        return taken

    @property
    def is_done(self) -> bool:
        """Whether no record is left."""
        return all(lane.is_exhausted and not lane.read for lane in self.lanes.values())

    def places(self) -> dict[int, int]:
        """Where the next page begins: backwards the offset after its newest record, forwards that of its oldest."""
        places = dict(self._places)
        for partition, lane in self.lanes.items():
            if not lane.read:  # what was read and had no records, such as markers of transactions, is not read again
                places[partition] = lane.end if self.is_backwards else lane.start
        return places

    def _next(self) -> int | None:
        """The partition of the next record."""
        best: int | None = None
        best_key: tuple[int, int] = (0, 0)
        for partition, lane in self.lanes.items():
            if lane.read:
                key = (lane.read[-1].timestamp_ms if self.is_backwards else -lane.read[0].timestamp_ms, -partition)
                if best is None or key > best_key:
                    best, best_key = partition, key
        return best
