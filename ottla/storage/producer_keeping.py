"""Before segments go, what their batches told of producers must be on disk elsewhere: in a snapshot.

A start learns who wrote what from the newest sound snapshot and the batches behind it. A roll writes a snapshot, and
the next sync of the log brings it to the disk; until then only the batches stand for it. Were their segments deleted
first, a power cut in between would leave an older snapshot, or none: a producer could not go on, or what it repeats
would be stored twice. So retention asks here first. Called on the log owner's thread; what is yielded is to be run in
any thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.storage import layout
from ottla.storage.disk_errors import is_full, is_passing
from ottla.storage.files import File

if TYPE_CHECKING:
    from ottla.storage.log_state import LogState

logger = logging.getLogger(__name__)


def keep_producers(log: LogState, offset: int) -> Generator[Callable[[], None], None, int]:
    """Have a snapshot on disk that speaks up to `offset` at least; up to which offset segments may go then.

    Less than `offset` where a sync is under way that the snapshot waits for: the next attempt finds it. On a full disk,
    which takes no snapshot, segments go all the same: they are what makes room.

    Raises OSError: the disk failed, and so has the log; or the process lacks descriptors or memory: another time.
    """
    unsynced = log.unsynced
    if not len(log.producers) or unsynced.snapshot_offset >= offset:
        return offset
    try:
        waiting = unsynced.take_snapshots(offset)
        if waiting:
            try:
                yield partial(_sync, log, [file for _, file in waiting])
            finally:
                for _, file in waiting:
                    file.close()
            unsynced.snapshot_synced(max(at for at, _ in waiting))
        elif log.is_shown_synced:
            # It could not be written at the roll, or did not survive. What it would speak of must be on disk, too.
            at, data = log.log_end_offset, log.producers.snapshot()
            yield partial(log.files.write_atomically, layout.snapshot_file(log.directory, at), data)
            unsynced.snapshot_synced(at)
    except OSError as error:
        if is_full(error):
            logger.warning("%s: no room for a producer snapshot: %s", log.name, error)
            return offset
        if not is_passing(error):
            log.fail(error)
        raise
    return min(offset, unsynced.snapshot_offset)


def _sync(log: LogState, files: Sequence[File]) -> None:
    for file in files:
        file.fdatasync()
    log.unsynced.sync_names()
