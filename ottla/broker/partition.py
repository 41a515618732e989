"""A partition as requests see it: its log, its leader epoch, and what of the log may be seen.

Invariants: `log_start_offset <= high_watermark <= log_end_offset`, and the high watermark never goes back. In
`ottla.acks.all=sync` it follows the synced offset, in `page-cache` the log end (decisions.md 2).

Produce batches are gathered and appended once per loop turn; everything else that looks at the log calls `settle()`
first, so no request sees a partition between two requests of the same client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.disk import Syncer
    from ottla.broker.metrics import Metrics
    from ottla.broker.timers import Timers
    from ottla.broker.turn import Turn
    from ottla.storage.clock import Clock
    from ottla.storage.log import AppendEntry, AppendResult, Log, LogSlice


class Appended(Protocol):
    """Whoever gathers a batch is told what became of it, in the turn's flush."""

    def appended(self, index: int, result: AppendResult) -> None:
        """`result` of the batch gathered under `index`."""


@dataclass(frozen=True, slots=True)
class PartitionServices:
    """What every partition of a node shares."""

    clock: Clock
    timers: Timers
    turn: Turn
    syncer: Syncer
    metrics: Metrics


class Partition:
    """One partition. `leader_epoch` is the catalog's to set. `last_stable_offset` is the high watermark until
    transactions exist."""

    topic: str
    index: int
    log: Log
    leader_epoch: int
    high_watermark: int

    def __init__(self, topic: str, index: int, log: Log, services: PartitionServices) -> None:
        raise NotImplementedError

    @property
    def topic_id(self) -> UUID:
        """The topic's id."""
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed readers may not see."""
        raise NotImplementedError

    def gather(self, entry: AppendEntry, waiter: Appended, index: int) -> None:
        """Append `entry` at the end of this turn and tell `waiter.appended(index, result)`."""
        raise NotImplementedError

    def flush(self, now_ms: int) -> None:
        """Append what was gathered."""
        raise NotImplementedError

    def settle(self) -> None:
        """Append what was gathered, if anything: called before anybody else looks at the log."""
        raise NotImplementedError

    def when_visible(self, end_offset: int, callback: Callable[[Exception | None], None], deadline_ms: float) -> None:
        """Call back once the high watermark covers `end_offset`; with the error when that cannot be."""
        raise NotImplementedError

    def read(self, offset: int, max_bytes: int, *, committed_only: bool, at_least_one: bool) -> LogSlice:
        """Whole batches from the one that holds `offset` up to what may be seen."""
        raise NotImplementedError

    def close(self, error: Exception) -> None:
        """The partition is deleted or its disk failed: everybody who waits on it gets `error`."""
        raise NotImplementedError
