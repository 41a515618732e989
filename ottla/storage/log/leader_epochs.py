"""The leader epochs of a log's offsets: the checkpoint's entries in memory, and look-ups in them.

Invariant: epochs and start offsets both increase from entry to entry. Changes by truncation are on disk when the
method returns (the file is replaced and synced). A new epoch (`note`) stays in memory until the first group sync of its
records, which writes it (sync.py): none of its records is acknowledged before that, and below the recovery point it is
on disk. So a start that begins a new epoch in 2,000 partitions writes none of their files. Kafka's
LeaderEpochFileCache, KIP-101 and KIP-320.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import Final

from ottla.storage.files.files import Files
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, write_leader_epochs

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    """The epochs of one log. `write` may run in any thread, everything else belongs to the log's owner."""

    __slots__ = ("_directory", "_files", "_guard", "in_memory", "latest", "on_disk")

    def __init__(self, files: Files, directory: Path, entries: list[EpochEntry]) -> None:
        self._files = files
        self._directory = directory
        self.in_memory = self.on_disk = entries
        """All entries, and those in the file: the same list if the file lacks none, which a sync can check cheaply."""
        self._guard = threading.Lock()
        self.latest = _latest(entries)
        """The newest epoch, -1 when there is none. Used by each append."""

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self.in_memory)

    @property
    def first_unwritten_offset(self) -> int | None:
        """The start offset of the first epoch that the file lacks; None when it lacks none."""
        if self.in_memory is self.on_disk:
            return None
        # Compared by epoch: if the log start has moved meanwhile, the first entry has another start offset.
        known = {entry.epoch for entry in self.on_disk}
        return next((entry.start_offset for entry in self.in_memory if entry.epoch not in known), None)

    def note(self, epoch: int, start_offset: int) -> None:
        """As `assign`, in memory: `write` brings it to the disk."""
        if epoch <= self.latest or epoch < 0:
            return
        kept = [entry for entry in self.in_memory if entry.start_offset < start_offset]
        self.in_memory = [*kept, EpochEntry(epoch, start_offset)]
        self.latest = epoch

    def forget_from(self, end_offset: int) -> None:
        """As `truncate_from_end`, in memory: `write` brings it to the disk."""
        kept = [entry for entry in self.in_memory if entry.start_offset < end_offset]
        if len(kept) != len(self.in_memory):
            self.in_memory = kept
            self.latest = _latest(kept)

    def write(self) -> None:
        """Write what was noted, durably. Raises OSError."""
        with self._guard:
            entries = self.in_memory
            if entries is not self.on_disk:
                write_leader_epochs(self._files, self._directory, entries)
                self.on_disk = entries

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; a no-op unless it is newer than the latest. Raises OSError."""
        if epoch <= self.latest or epoch < 0:
            return
        kept = [entry for entry in self.in_memory if entry.start_offset < start_offset]
        self._replace([*kept, EpochEntry(epoch, start_offset)])

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove epochs that begin at `end_offset` or later. Raises OSError."""
        kept = [entry for entry in self.in_memory if entry.start_offset < end_offset]
        if len(kept) != len(self.in_memory):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove epochs before `start_offset`: the one that covers it begins there.

        In memory only: entries for offsets before the log start are harmless and disappear with the next write, and
        DeleteRecords of 2,000 partitions would otherwise wait for as many syncs.
        """
        entries = _begun_at(self.in_memory, start_offset)
        is_written = self.in_memory is self.on_disk
        self.on_disk = entries if is_written else _begun_at(self.on_disk, start_offset)
        self.in_memory = entries

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to `epoch`; (-1, -1) when unknown (Kafka's endOffsetFor)."""
        if epoch == UNDEFINED_EPOCH or not self.in_memory:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        slot = bisect_right(self.in_memory, epoch, key=_epoch)
        if slot == len(self.in_memory):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        end_offset = self.in_memory[slot].start_offset
        return (self.in_memory[slot - 1].epoch if slot else epoch), end_offset

    def epoch_for(self, offset: int) -> int:
        """The epoch under which `offset` was written, -1 when unknown."""
        slot = bisect_right(self.in_memory, offset, key=_start_offset) - 1
        return self.in_memory[slot].epoch if slot >= 0 else UNDEFINED_EPOCH

    def _replace(self, entries: list[EpochEntry]) -> None:
        with self._guard:
            write_leader_epochs(self._files, self._directory, entries)
            self.in_memory = self.on_disk = entries
        self.latest = _latest(entries)


def _begun_at(entries: list[EpochEntry], start_offset: int) -> list[EpochEntry]:
    slot = bisect_right(entries, start_offset, key=_start_offset) - 1
    if slot < 0 or (slot == 0 and entries[0].start_offset == start_offset):
        return entries
    return [EpochEntry(entries[slot].epoch, start_offset), *entries[slot + 1 :]]


def _latest(entries: list[EpochEntry]) -> int:
    return entries[-1].epoch if entries else UNDEFINED_EPOCH


def _start_offset(entry: EpochEntry) -> int:
    return entry.start_offset


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch
