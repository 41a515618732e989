"""Syncs of a whole volume: which rounds get one, when it is overtaken, and what its late end means.

A round of many files syncs the file system of its directory instead (docs/decisions/one-sync-for-many-logs.md). That
may take longer than `OVERTAKEN_AFTER_MS`, and longer than the files would take (estimated from earlier rounds),
probably because of what other programs have written. Then the files are synced beside it, the round ends with them, and
no volume is synced for a while (`DirectoryQueue.rest`), unless the files take even longer. Time in which the thread was
ready to run and had no processor does not count: more threads would make a busy machine busier. The overtaken sync
still takes the directory offline if it fails, whenever it ends.

Knows no thread: the syncer says whether a sync can be overtaken, and runs the files. Every line runs on the broker's
thread.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.runtime.directory_queue import DirectoryQueue
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.sync_round import SyncRound
    from ottla.broker.runtime.timers import Timers
    from ottla.storage.files.clock import Clock

OVERTAKEN_AFTER_MS: Final = 20
"""How long to wait at least for the sync of a volume, before the files of its round are synced one by one."""
OVERTAKEN_AT_LAST_MS: Final = 200
"""How long at most: where its files would take as long, or its thread had no processor for most of the time."""


class VolumeSyncs:
    """The syncs of all volumes, one for each directory at a time. `can_overtake` returns whether the files of a round
    could be synced while a sync of the volume runs, and `run_overtaken` has that done.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        timers: Timers,
        can_overtake: Callable[[], bool],
        run_overtaken: Callable[[DirectoryQueue, SyncRound], None],
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._timers = timers
        self._can_overtake = can_overtake
        self._run_overtaken = run_overtaken

    def choose(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        """Have the round sync the volume, unless volumes rest now."""
        now_ms = self._clock.monotonic_ms()
        if queue.overtaken is not None or now_ms < queue.volume_again_ms or not self._can_overtake():
            return
        sync_round.volume = queue.volume
        sync_round.handed_over_ms = now_ms
        if not queue.is_watched:
            queue.is_watched = True
            self._timers.at(now_ms + OVERTAKEN_AFTER_MS, partial(self._watch, queue))

    def _watch(self, queue: DirectoryQueue) -> None:
        """Overtake the running sync of the volume, if its time is up; one timer serves many rounds."""
        queue.is_watched = False
        sync_round = queue.sync_round
        if sync_round is None or sync_round.volume is None or queue.overtaken is not None:
            return
        patience_ms = max(OVERTAKEN_AFTER_MS, queue.file_ms * len(sync_round.files))
        now_ms = self._clock.monotonic_ms()
        if now_ms >= sync_round.handed_over_ms + patience_ms:
            patience_ms += sync_round.without_processor_ms(now_ms)
        due_ms = sync_round.handed_over_ms + min(patience_ms, OVERTAKEN_AT_LAST_MS)
        if now_ms < due_ms:
            queue.is_watched = True
            self._timers.at(due_ms, partial(self._watch, queue))
        elif self._can_overtake() and sync_round.claim():
            queue.overtaken = sync_round
            queue.rest(now_ms)
            self._metrics.sync_overtaken += 1
            self._run_overtaken(queue, sync_round)

    def ended(self, queue: DirectoryQueue, sync_round: SyncRound) -> None:
        """The overtaken sync of the volume has ended. What was acknowledged since then was synced without it. But after
        an error nothing is written to the directory any more.
        """
        if queue.overtaken is not sync_round:
            return  # `close` has not waited for this callback
        queue.overtaken = None
        error = sync_round.volume_error
        if error is None:
            if queue.sync_round is sync_round:
                # Its files take even longer: the disk is slow either way, and a sync of the volume costs it less.
                queue.end_rest(self._clock.monotonic_ms())
            return
        self._metrics.sync_failures += 1
        queue.error = queue.error or error
        queue.mark_offline(error)
        if not queue.is_running:
            queue.fail_waiting(queue.error)
