"""Before segments are deleted, the producers' state from their batches must be on disk elsewhere: in a snapshot.

A start restores the producers from the newest valid snapshot and the batches after it. A roll takes a snapshot, which a
worker writes soon (producer_snapshots.py); until then only the batches have this state. If their segments were deleted
first, a power cut in between would leave an older snapshot, or none: a producer could not continue, or its repeated
batches would be stored twice. So retention calls this first. Called on the log owner's thread; the caller runs each
yielded function in any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from ottla.storage.files.disk_errors import is_full, is_passing

if TYPE_CHECKING:
    from ottla.storage.log.log_state import LogState
    from ottla.storage.producers.producer_snapshots import Pause

logger = logging.getLogger(__name__)


def keep_producers(log: LogState, offset: int, pause: Pause) -> Generator[Callable[[], None], None, int]:
    """Write a snapshot that covers at least `offset`; returns the offset up to which segments may be deleted then.

    That is less than `offset` if a snapshot is being written, or waits for a sync: the next attempt finds it. If no
    snapshot can be written because the disk is full, segments are deleted nevertheless, because that frees space.

    Raises OSError: the disk failed, and so has the log; or the process lacks descriptors or memory, and may try later.
    """
    snapshots = log.producer_snapshots
    if not len(log.producers) or snapshots.synced_offset >= offset:
        return offset
    if snapshots.writing is not None:
        return min(offset, snapshots.synced_offset)
    limit = log.synced_offset
    if not any(offset <= at <= limit for at in snapshots.waiting_offsets) and log.is_shown_synced:
        # No snapshot was taken, or it could not be written. The log that it covers must be on disk, too.
        limit = log.log_end_offset
        snapshots.take(limit, log.producers)
    try:
        log.unsynced.transaction_indexes.write()
    except OSError as failure:
        return _without_snapshot(log, offset, failure)
    write = snapshots.begin(limit, pause)
    if write is not None:
        try:
            yield write.run
        finally:
            snapshots.end(write)
        if write.error is not None and not write.is_abandoned:
            return _without_snapshot(log, offset, write.error)
    return min(offset, snapshots.synced_offset)


def _without_snapshot(log: LogState, offset: int, error: OSError) -> int:
    """The result of `keep_producers` after this error, or its exception."""
    if is_full(error):
        logger.warning("%s: no room for a producer snapshot: %s", log.name, error)
        return offset
    if not is_passing(error):
        log.fail(error)
    raise error
