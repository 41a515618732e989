"""Before segments go, what their batches told of producers must be on disk elsewhere: in a snapshot.

A start learns who wrote what from the newest sound snapshot and the batches behind it. A roll takes a snapshot, which a
worker writes soon (producer_snapshots.py); until then only the batches stand for it. Were their segments deleted first,
a power cut in between would leave an older snapshot, or none: a producer could not go on, or what it repeats would be
stored twice. So retention asks here first. Called on the log owner's thread; what is yielded is to be run in any
thread.
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
    """Have a snapshot on disk that speaks up to `offset` at least; up to which offset segments may go then.

    Less than `offset` where one is being written, or has to wait for a sync: the next attempt finds it. On a full disk,
    which takes no snapshot, segments go all the same: they are what makes room.

    Raises OSError: the disk failed, and so has the log; or the process lacks descriptors or memory: another time.
    """
    snapshots = log.producer_snapshots
    if not len(log.producers) or snapshots.synced_offset >= offset:
        return offset
    if snapshots.writing is not None:
        return min(offset, snapshots.synced_offset)
    limit = log.synced_offset
    if not any(offset <= at <= limit for at in snapshots.waiting_offsets) and log.is_shown_synced:
        # None was taken, or it could not be written. What it would speak of must be on disk, too.
        limit = log.log_end_offset
        snapshots.take(limit, log.producers)
    write = snapshots.begin(limit, pause)
    if write is not None:
        try:
            yield write.run
        finally:
            snapshots.end(write)
        error = write.error
        if error is not None and not write.is_abandoned:
            if is_full(error):
                logger.warning("%s: no room for a producer snapshot: %s", log.name, error)
                return offset
            if not is_passing(error):
                log.fail(error)
            raise error
    return min(offset, snapshots.synced_offset)
