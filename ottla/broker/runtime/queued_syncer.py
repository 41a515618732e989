"""`QueuedSyncer`: sync rounds without threads, which wait until a simulation or a test runs them.

It decides when the disk answers, and which rounds find no thread, so that a seed gives the same order each time. A
broker that serves does not import this module.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ottla.broker.runtime.disk import GroupSyncer
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_round import SHARED_FROM, SyncRound
from ottla.broker.runtime.threads import NoThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from ottla.broker.runtime.directory_queue import DirectoryQueue
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.processor_wait import ProcessorWait
    from ottla.broker.runtime.timers import Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.storage.files.clock import Clock


class QueuedSyncer(GroupSyncer):
    """Rounds wait in `rounds` until `run_one` or `run_all` is called."""

    is_quick = False
    """Whether the broker's thread may wait for the round of a single client, which is run immediately then."""

    def __init__(self, turn: Turn, metrics: Metrics, clock: Clock, timers: Timers) -> None:
        super().__init__(turn, metrics, clock, timers)
        self.rounds: deque[tuple[DirectoryQueue, SyncRound | RedoRound]] = deque()
        self.late: deque[tuple[DirectoryQueue, SyncRound]] = deque()
        """Rounds whose sync of the volume was overtaken, because time went by before they were run."""
        self.has_threads = True
        """Whether rounds find a thread. One that does not is run immediately, and ends in its place in `rounds`."""
        self.begins_at_once = True
        """Whether a thread that gets a round has a processor for it."""
        self.processor_wait: ProcessorWait | None = None

    def begin(self, directories: Iterable[Path]) -> None:
        """Do nothing: there are no threads."""

    def run_one(self) -> bool:
        """Run the oldest round and its completions; False if no round waits."""
        if not self.rounds:
            return False
        queue, sync_round = self.rounds.popleft()
        if sync_round.volume is not None and sync_round.claim():
            sync_round.sync_volume()
            sync_round.finish_volume()
        elif isinstance(sync_round, RedoRound):
            sync_round.run()
        elif self.has_threads and len(sync_round.files) >= SHARED_FROM and not queue.is_in_memory:
            sync_round.run_shared(_nobody_helps)
        else:
            sync_round.run()
        self._finish(queue, sync_round)
        return True

    def run_late(self) -> bool:
        """End the oldest sync of a volume that was overtaken; False when there is none."""
        if not self.late:
            return False
        queue, sync_round = self.late.popleft()
        sync_round.sync_volume()
        self._volumes.ended(queue, sync_round)
        return True

    def run_all(self) -> None:
        """Run rounds until none waits, also those that completions start, and overtaken syncs."""
        while self.run_one() or self.run_late():
            pass

    def close(self) -> None:
        """Run the rounds that wait."""
        self.run_all()
        self._close_volumes()

    def _may_run_here(self, queue: DirectoryQueue) -> bool:
        return self.is_quick

    def _can_overtake(self) -> bool:
        return self.has_threads

    def _run_overtaken(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        self.late.append((queue, sync_round))

    def _hand_over(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        if not self.has_threads:
            raise NoThread(queue.path.name, RuntimeError("can't start new thread"))
        if sync_round.volume is not None and self.begins_at_once:
            sync_round.note_begin(self._clock.monotonic_ms(), self.processor_wait)
        self.rounds.append((queue, sync_round))

    def _finish_soon(self, queue: DirectoryQueue, sync_round: SyncRound | RedoRound) -> None:
        self.rounds.append((queue, sync_round))


def _nobody_helps(work: Callable[[], None], threads: int) -> None:
    """Leave a shared round to the thread that runs it: other threads would do the same work."""
