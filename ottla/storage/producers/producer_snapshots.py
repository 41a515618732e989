"""Snapshots of a log's producers: taken at a roll, written later by a worker.

The owner of the log takes the producers' entries at the roll. Entries never change (an append makes new ones), so later
appends do not affect them, and taking 50,000 is a list of 50,000 pointers: 0.3 ms. Encoding them takes 20 to 90 ms, and
syncing them waits for the disk, so a worker does both, in pieces (`SnapshotWrite`).

- A snapshot is written only when the records that it covers, and their entries in the `.txnindex` files, are on disk.
  So after a power cut no snapshot covers missing records, and retention can rely on a snapshot that exists.
- A file gets its name when it is complete and synced (`.tmp`, then renamed, then the name synced). A stop before that
  leaves no `.snapshot`, and a start removes the temporary file.
- Nothing depends on when it is written: a start reads the batches after the newest one. Only retention waits
  (producer_keeping.py).
- At most two snapshots wait, in addition to the one that is being written: the first one, so that some are written even
  if rolls are faster than syncs, and the newest. For those skipped in between, a start reads more batches.
- One is written at a time, and a failed write is not tried again: the next roll takes the producers again.

The owner's thread calls everything except `SnapshotWrite.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.storage.files.files import Files, write_all
from ottla.storage.formats import layout
from ottla.storage.producers.snapshot_format import encode_snapshot
from ottla.storage.producers.transaction_index import IndexSync, TransactionIndexes

if TYPE_CHECKING:
    from ottla.storage.producers.producer_entry import ProducerEntry

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 2
"""Each keeps the entries of its time in memory: 0.3 to 0.9 KB for each producer that has written since (measured)."""

Pause = Callable[[], object]
"""Called between two pieces of work, in the thread that does it."""


def no_pause() -> None:
    """Do nothing: for callers that do not block other work."""


class SnapshotWrite:
    """One snapshot to be written, once.

    Attributes:
        offset: the offset up to which it covers the log.
        error: the reason why it is not on disk; known when `is_over`.
        is_abandoned: the log is gone: the snapshot is not needed, and its result does not matter.
    """

    __slots__ = (
        "_entries",
        "_files",
        "_indexes",
        "_path",
        "_pause",
        "_sync_names",
        "error",
        "is_abandoned",
        "is_over",
        "offset",
    )

    def __init__(
        self,
        files: Files,
        path: Path,
        offset: int,
        entries: Sequence[ProducerEntry],
        sync_names: Callable[[], None],
        pause: Pause,
        indexes: IndexSync | None = None,
    ) -> None:
        """`indexes`: the index files that must be on disk before the snapshot gets its name."""
        self.offset = offset
        self.error: OSError | None = None
        self.is_abandoned = False
        self.is_over = False
        self._files = files
        self._path = path
        self._entries = entries
        self._sync_names = sync_names
        self._pause = pause
        self._indexes = indexes

    def run(self) -> None:
        """Block until the snapshot is on disk, or `error` is set. Runs in any thread."""
        try:
            if self._indexes is not None:
                self._noting_errors(partial(self._sync_indexes, self._indexes))
            self.fill(is_synced=True)
            self.give_name(self._sync_names)
        finally:
            self.is_over = True

    def fill(self, *, is_synced: bool) -> None:
        """Write the temporary file; if it is not synced here, it must be on disk before `give_name`."""
        if self.error is None:
            self._noting_errors(partial(self._fill, is_synced=is_synced))

    def give_name(self, sync_names: Callable[[], None] | None = None) -> None:
        """Rename the temporary file. Without `sync_names` the caller makes the name durable."""
        if self.error is None and not self.is_abandoned:
            self._noting_errors(partial(self._rename, sync_names))
        self.is_over = True

    @property
    def _temporary(self) -> Path:
        return self._path.with_name(self._path.name + layout.TEMPORARY_SUFFIX)

    def _noting_errors(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self.error = error
            with suppress(OSError):  # otherwise a start removes it
                self._files.unlink(self._temporary)
        except Exception as error:  # a bug, but the thread that waits for the end must see it
            logger.exception("bug: a producer snapshot failed")
            self.error = OSError(f"a bug: {error}")

    def _sync_indexes(self, indexes: IndexSync) -> None:
        if not self.is_abandoned:
            indexes.run()
            self._sync_names()

    def _rename(self, sync_names: Callable[[], None] | None) -> None:
        self._files.rename(self._temporary, self._path)
        if sync_names is not None:
            sync_names()

    def _fill(self, *, is_synced: bool) -> None:
        file = self._files.open(self._temporary, create=True)
        try:
            if file.size():
                file.truncate(0)
            for position, piece in encode_snapshot(self._entries):
                if self.is_abandoned:
                    return
                write_all(file, [piece], position)
                self._pause()
            if is_synced:
                file.fdatasync()
        finally:
            file.close()


class ProducerSnapshots:
    """The snapshots of one log. See the module.

    Attributes:
        synced_offset: the offset of the newest one that is on disk; -1 when none is known to be.
        writing: the one that a thread is writing.
    """

    __slots__ = (
        *("_after", "_directory", "_files", "_indexes", "_indexes_of_writing", "_sync_names", "_waiting"),
        "synced_offset",
        "writing",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        sync_names: Callable[[], None],
        *,
        synced_offset: int = -1,
        transaction_indexes: TransactionIndexes | None = None,
    ) -> None:
        """`transaction_indexes`: those of the log, which must be on disk up to the snapshot's offset before its
        name.
        """
        self._indexes = transaction_indexes
        self._indexes_of_writing: IndexSync | None = None
        self._files = files
        self._directory = directory
        self._sync_names = sync_names
        self.synced_offset = synced_offset
        self.writing: SnapshotWrite | None = None
        self._waiting: list[tuple[int, list[ProducerEntry]]] = []
        self._after: list[Callable[[], None]] = []

    @property
    def waiting_offsets(self) -> list[int]:
        """The offsets of the snapshots that were taken but not begun, ascending."""
        return [offset for offset, _ in self._waiting]

    def take(self, offset: int, producers: Iterable[ProducerEntry]) -> None:
        """Take a snapshot of the producers as they are now, at the log end `offset`."""
        if offset <= self.synced_offset:
            return  # a start has found it, or retention has written it
        del self._waiting[MOST_WAITING - 1 :]
        self._waiting.append((offset, list(producers)))

    def is_due(self, synced_offset: int) -> bool:
        """Whether `begin` would return a snapshot."""
        return self.writing is None and bool(self._waiting) and self._waiting[0][0] <= synced_offset

    def begin(self, synced_offset: int, pause: Pause = no_pause) -> SnapshotWrite | None:
        """The newest waiting snapshot that covers nothing after `synced_offset`, up to which the log is on disk. None
        if there is none, or another one is being written.

        The caller must first write the waiting entries of the indexes of aborted transactions. It then runs the
        snapshot, in any thread, and passes it to `end`.
        """
        if not self.is_due(synced_offset):
            return None
        while len(self._waiting) > 1 and self._waiting[1][0] <= synced_offset:
            del self._waiting[0]
        offset, entries = self._waiting.pop(0)
        path = layout.snapshot_file(self._directory, offset)
        indexes = self._indexes_of_writing = self._indexes.begin_sync(offset) if self._indexes is not None else None
        self.writing = SnapshotWrite(self._files, path, offset, entries, self._sync_names, pause, indexes)
        return self.writing

    def end(self, write: SnapshotWrite) -> None:
        """Note the result of a snapshot that ran."""
        if write is not self.writing:
            return
        self.writing = None
        if write.error is None and not write.is_abandoned:
            self.synced_offset = max(self.synced_offset, write.offset)
            self._waiting = [one for one in self._waiting if one[0] > self.synced_offset]
            if self._indexes is not None and self._indexes_of_writing is not None:
                self._indexes.end_sync(self._indexes_of_writing)
        waiting, self._after = self._after, []
        for callback in waiting:
            callback()

    def abandon(self) -> None:
        """Drop the waiting snapshots of a closed log, and ignore the one that is being written."""
        self._waiting.clear()
        if self.writing is not None:
            self.writing.is_abandoned = True

    def call_after(self, callback: Callable[[], None]) -> None:
        """Call back when no thread writes a snapshot any more, immediately if none does: until then a file may appear
        under the former path of a closed log.
        """
        if self.writing is None:
            callback()
        else:
            self._after.append(callback)
