"""One group sync of one log: what it covers, and running it in a thread.

`Log.begin_sync` takes a ticket on the owner's thread, `SyncTicket.run` blocks in any thread while appends continue,
`Log.end_sync` publishes on the owner's thread. A ticket covers every byte below its end: the `.log` files with unsynced
bytes (several after a roll), what a roll finished (both indexes), a new leader epoch, the directory if names were added
or removed, and the other files of a new partition (`founding`). The active segment's indexes are not covered: recovery
rebuilds them. A failed sync is never tried again: the kernel may have marked the lost pages clean
(docs/decisions/a-failed-sync-is-final.md). A sync that could not begin, because no descriptor was free, does not count
as failed: `Log.postpone_sync` withdraws the ticket, and the next one covers it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from ottla.storage.files.disk_errors import is_full
from ottla.storage.files.files import File, Files, NotOpened
from ottla.storage.log.leader_epochs import LeaderEpochs
from ottla.storage.producers.transaction_index import IndexSync, TransactionIndexes
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

Place = tuple[int, int, int]
"""The fields of an `End`; a plain tuple, since each sync of each log makes one."""

Step = Callable[[bool], None]
"""A part of a sync besides the `.log` files; its argument is whether a sync of the volume has covered it."""


class SyncTicket:
    """A sync to be run once.

    Attributes:
        end: everything up to this place is on disk after `Log.end_sync`.
        files: the files to sync first, each by `sync_file`, in any order and any threads; or all of them by one sync of
            their volume. `finish` does the rest.
        steps: the steps of `finish`; rarely any.
    """

    __slots__ = (
        *("directory_changes", "dirty", "end", "end_offset", "files", "finished", "is_abandoned", "steps"),
        "transaction_indexes",
    )

    def __init__(
        self,
        end: Place,
        dirty: Sequence[tuple[Segment, int, int]],
        finished: Sequence[Segment],
        directory_changes: int,
        files: Sequence[File],
        steps: Sequence[Step],
        transaction_indexes: IndexSync | None = None,
    ) -> None:
        self.end = end
        self.end_offset = end[0]
        """The offset below which everything is covered."""
        self.files = files
        self.dirty = dirty
        self.finished = finished
        self.directory_changes = directory_changes
        self.transaction_indexes = transaction_indexes
        self.is_abandoned = False
        """Cancel: the topic was deleted, so neither the remaining work nor its result matters."""
        self.steps = steps

    def segments(self) -> set[Segment]:
        """The segments whose files it uses."""
        return {*(segment for segment, _, _ in self.dirty), *self.finished}

    def run(self) -> None:
        """Block until everything that the ticket covers is on disk. May run in any thread, during appends.

        Raises:
            NotOpened: a file could not be opened and was not synced; the caller passes the ticket to
                `Log.postpone_sync`.
            OSError: the sync failed; the caller passes it to `Log.fail`.
        """
        for file in self.files:
            self._do(file.fdatasync)
        if self.steps:
            self.finish()

    def sync_file(self, file: File) -> None:
        """Block until one of `files` is on disk. Raises as `run`."""
        self._do(file.fdatasync)

    def finish(self, *, is_covered: bool = False) -> None:
        """Do the remaining steps when all `files` are on disk: names, indexes, leader epochs. Raises as `run`.

        `is_covered`: a sync of their volume that began after the ticket has covered names and other files, too.
        """
        for step in self.steps:
            self._do(partial(step, is_covered))

    def _do(self, step: Callable[[], None]) -> None:
        if self.is_abandoned:
            return
        try:
            step()
        except (OSError, ValueError):  # ValueError: a closed file
            if not self.is_abandoned:
                raise


class UnsyncedState:
    """The parts of a log that are not on disk yet, except the bytes that its segments count. Owned by the log."""

    __slots__ = (
        "_directory",
        "_directory_changes",
        "_directory_synced",
        "_epochs",
        "_files",
        "_founding",
        "_has_renames",
        "_is_first_name_unsynced",
        "_names_error",
        "_unfinished",
        "is_plain",
        "is_staged",
        "ticket",
        "transaction_indexes",
        "was_on_disk",
    )

    def __init__(
        self, files: Files, directory: Path, epochs: LeaderEpochs, *, has_unsynced_names: bool, was_on_disk: bool
    ) -> None:
        self._files = files
        self._epochs = epochs
        self._is_first_name_unsynced = has_unsynced_names
        self._directory = directory
        self._directory_changes = int(has_unsynced_names)
        self._directory_synced = 0
        self._names_error: OSError | None = None
        self._has_renames = False
        self.was_on_disk = was_on_disk
        """Whether all files were on disk when the log was opened: after a clean stop of Ottla, or if it is new."""
        self._unfinished: list[Segment] = []
        self.transaction_indexes = TransactionIndexes(files, directory, self.name_changed)
        self._founding: Step | None = None
        """Syncs the existence of the partition itself; part of the first ticket."""
        self.is_plain = not has_unsynced_names
        """Whether a ticket would sync nothing but `.log` files and leader epochs. A field, since each log of a round is
        asked."""
        self.ticket: SyncTicket | None = None
        self.is_staged = False
        """Whether a round needs nothing but the parts that appends have staged for the redo log, so that the whole log
        is on disk: all other bytes are on disk or in an earlier round of the redo log."""

    def name_changed(self) -> None:
        """Note that a file was created in the log's directory, or unlinked by a failed append."""
        self._directory_changes += 1
        self.is_plain = self.is_staged = False

    def found(self, step: Step) -> None:
        """Have the first ticket run `step`, which syncs the existence of the partition itself."""
        self._founding = step
        self.is_plain = self.is_staged = False

    def note_renames(self) -> None:
        """Note that files are about to be renamed, by what syncs the names itself: retention, the cleaner."""
        self._has_renames = True

    def sync_last_names(self) -> None:
        """Sync the names for a stop, unless all are on disk since the last ticket. Raises as `sync_names`."""
        is_sure = self.was_on_disk and not self._has_renames and self._names_error is None
        if not is_sure or self._directory_changes != self._directory_synced:
            self.sync_names()

    def sync_names(self, is_covered: bool = False) -> None:
        """Sync the names in the log's directory; any thread may call. `is_covered`: a sync of the volume has done so.

        Raises OSError, and again in every later call: a second sync would not report what the first one lost.
        """
        if self._names_error is not None:
            raise OSError(self._names_error.errno, self._names_error.strerror, str(self._directory))
        if is_covered:
            return
        try:
            self._files.sync_directory(self._directory)
        except OSError as error:
            if not isinstance(error, NotOpened):
                self._names_error = error
            raise

    def sync_first_name(self) -> None:
        """Sync the first segment's name, before another segment is created. Without it a start would consider the
        second segment the beginning of the log, as if retention had deleted the first. Raises OSError.
        """
        if self._is_first_name_unsynced:
            if not self._directory_synced:
                self.sync_names()
            self._is_first_name_unsynced = False

    def rolled(self, segment: Segment) -> None:
        """Note that a segment is complete; the recovery point stays before it until its indexes are on disk, too."""
        self._unfinished.append(segment)
        self.is_plain = self.is_staged = False

    def segment_gone(self, segment: Segment) -> None:
        """Forget a deleted segment."""
        if segment in self._unfinished:
            self._unfinished.remove(segment)

    def begin(self, segments: list[Segment], end: Place, seal: Callable[[Segment], None]) -> SyncTicket | None:
        """A ticket for everything that is not on disk, None when there is nothing. `segments`: the log's, oldest first.
        `seal` retries to complete the indexes.

        Raises:
            RuntimeError: the last ticket was neither ended nor failed; two could end in the wrong order.
        """
        if self.ticket is not None:
            raise RuntimeError(f"{self._directory}: a sync is running already")
        self.is_staged = False
        dirty: tuple[tuple[Segment, int, int], ...] = ()
        files: tuple[File, ...] = ()
        # Segments with unsynced bytes are all at the end of the list, where the active one may still be empty.
        for segment in reversed(segments):
            size_bytes = segment.size_bytes
            if segment.synced_bytes < size_bytes:
                one = (segment, size_bytes, segment.cuts)
                dirty, files = ((one, *dirty), (segment.file, *files)) if files else ((one,), (segment.file,))
            elif size_bytes:
                break
        finished: Sequence[Segment] = ()
        steps: Sequence[Step] = ()
        indexes: IndexSync | None = None
        epochs = self._epochs
        if not self.is_plain or epochs.in_memory is not epochs.on_disk:
            finished, indexes, steps = self._other_steps(seal)
        if not files and not steps:
            return None
        if self._founding is not None:
            steps = [*steps, self._founding]
        # Positional arguments: keywords cost a quarter more, and each log of a round has a ticket.
        ticket = self.ticket = SyncTicket(end, dirty, finished, self._directory_changes, files, steps, indexes)
        return ticket

    def _other_steps(self, seal: Callable[[Segment], None]) -> tuple[list[Segment], IndexSync | None, list[Step]]:
        """Segments that a roll has finished, and the steps besides the `.log` files; rarely any."""
        steps: list[Step] = []
        finished: list[Segment] = []
        for segment in self._unfinished:
            seal(segment)
            if segment.is_sealed and not self.transaction_indexes.has_unwritten(segment.base_offset):
                finished.append(segment)
                steps.append(partial(_sync_indexes, segment))
        indexes = self.transaction_indexes.begin_sync(finished[-1].base_offset + 1) if finished else None
        if indexes is not None:
            steps.append(partial(_sync_transaction_indexes, indexes))
        if self._directory_changes != self._directory_synced:
            steps.append(self.sync_names)
        if self._epochs.first_unwritten_offset is not None:
            steps.append(self._write_epochs)
        return finished, indexes, steps

    def end(self, ticket: SyncTicket) -> int:
        """Record a ticket that ran; returns the new recovery point."""
        self.ticket = None
        self._founding = None  # part of this ticket or of an earlier one
        for segment, size_bytes, cuts in ticket.dirty:
            if segment.cuts == cuts:
                segment.synced_bytes = size_bytes
        for segment in ticket.finished:
            self.segment_gone(segment)
        if ticket.transaction_indexes is not None:
            self.transaction_indexes.end_sync(ticket.transaction_indexes)
        self._directory_synced = ticket.directory_changes
        self.is_plain = self._directory_changes == ticket.directory_changes and not self._unfinished
        epochs = self._epochs
        if epochs.in_memory is epochs.on_disk and not self._unfinished:
            return ticket.end_offset
        unwritten = epochs.first_unwritten_offset
        holding = [segment.base_offset for segment in self._unfinished] + ([] if unwritten is None else [unwritten])
        return min([ticket.end_offset, *holding])

    def postpone(self, ticket: SyncTicket) -> None:
        """Withdraw a ticket that met NotOpened. The next ticket syncs all of it again."""
        self.ticket = None

    def _write_epochs(self, is_covered: bool) -> None:
        """Write the leader epochs. The records are on disk already, and a start finds their epoch in them: on a full
        disk the file stays unchanged, and the recovery point before them, until the next ticket.
        """
        try:
            self._epochs.write()
        except OSError as error:
            if not is_full(error):
                raise
            logger.warning("%s: the leader epochs are written later: %s", self._directory, error)

    def abandon(self) -> None:
        """Note that the log is closed: a running sync may find its files missing."""
        if self.ticket is not None:
            self.ticket.is_abandoned = True
            self.ticket = None


def _sync_indexes(segment: Segment, is_covered: bool) -> None:
    """Sync the indexes of a sealed segment: all entries are in the files."""
    if not is_covered:
        segment.offset_index.sync()
        segment.time_index.sync()


def _sync_transaction_indexes(indexes: IndexSync, is_covered: bool) -> None:
    if not is_covered:
        indexes.run()
