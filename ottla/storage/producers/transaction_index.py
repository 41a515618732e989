"""The `.txnindex` of a segment: the transactions that the ABORT markers in it ended. Its bytes, and writing them.

34 bytes big-endian for each aborted transaction, in the order of the markers (Kafka's TransactionIndex and AbortedTxn):

    0  version int16 = 0 · 2  producer_id int64 · 10  first_offset int64 · 18  last_offset int64 (the marker's)
    26 last_stable_offset int64, as it was after the marker

Producer 1000 wrote from offset 5 on, and its marker is at 9:

    0000 00000000000003e8 0000000000000005 0000000000000009 000000000000000a

The file is derived from the batches, so an entry waits in memory until something relies on the file: a roll closes its
segment, a producer snapshot covers offsets after the marker, or the log is closed. The entries are on disk before any
of these is. A start always reads the batches after the newest snapshot, and so finds the markers whose entries were
lost in a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.storage.files.files import Files, write_all
from ottla.storage.formats import layout

ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0
ENTRIES_BEHIND: Final = 1024
"""The number of entries that may wait in memory: 34 KB of a file."""


class CorruptTransactionIndex(ValueError):
    """An invalid `.txnindex`; the message has the reason, in one line."""


class AbortedTransaction(NamedTuple):
    """An entry of a `.txnindex`. `last_offset` is the ABORT marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(data: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The entries of the `.txnindex` of a segment with the offsets from `base_offset` up to `end_offset`.

    Raises CorruptTransactionIndex, also for entries outside the segment: a bit has flipped, or the log became shorter.
    Zeros are no entry: a power cut leaves some if the length of the file was on disk before its bytes.
    """
    if len(data) % ENTRY.size:
        raise CorruptTransactionIndex(f"{len(data)} bytes are no multiple of an entry's {ENTRY.size}")
    entries: list[AbortedTransaction] = []
    previous = base_offset - 1
    for number, (version, *values) in enumerate(ENTRY.iter_unpack(data)):
        entry = AbortedTransaction(*values)
        if version != VERSION:
            raise CorruptTransactionIndex(f"entry {number} has version {version}, not {VERSION}")
        is_inside = base_offset <= entry.last_offset < end_offset
        if entry.producer_id < 0 or not 0 <= entry.first_offset < entry.last_offset or not is_inside:
            words = f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
            place = f"in a segment of offsets {base_offset} to {end_offset - 1}"
            raise CorruptTransactionIndex(f"entry {number} is none: {words}, {place}")
        if entry.last_offset <= previous:
            raise CorruptTransactionIndex(
                f"entry {number} ends at offset {entry.last_offset}, not after offset {previous}"
            )
        previous = entry.last_offset
        entries.append(entry)
    return entries


def encode_transaction_index(entries: Sequence[AbortedTransaction]) -> bytes:
    """The bytes of a `.txnindex`."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


class _Behind:
    """The part of one segment's `.txnindex` that may not be on disk."""

    __slots__ = ("entries", "is_rewritten", "length")

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []
        """The entries that are not in the file."""
        self.length = -1
        """The valid bytes of the file; -1 before the first write."""
        self.is_rewritten = False
        """Whether `entries` replace the whole content of the file."""


class IndexSync(NamedTuple):
    """A sync that brings written entries to the disk: call `run` in any thread, then `TransactionIndexes.end_sync` on
    the owner's thread.
    """

    files: Files
    paths: Sequence[Path]
    lengths: Sequence[tuple[int, int]]
    """By base offset, how many bytes of the file will be on disk."""

    def run(self) -> None:
        """Block until the content of the files is on disk; the caller syncs their names. Raises OSError.

        A missing file is of a segment that retention has deleted, or the cleaner replaced, since the sync began: it is
        not needed any more.
        """
        for path in self.paths:
            try:
                file = self.files.open(path, writable=True)
            except FileNotFoundError:
                continue
            try:
                file.fdatasync()
            finally:
                file.close()


class TransactionIndexes:
    """The `.txnindex` files of one log, written with delay. One thread owns it; see the module."""

    __slots__ = ("_behind", "_directory", "_files", "_on_new_name")

    def __init__(self, files: Files, directory: Path, on_new_name: Callable[[], None]) -> None:
        """`on_new_name` is called when a file was created, whose name has to be synced."""
        self._files = files
        self._directory = directory
        self._on_new_name = on_new_name
        self._behind: dict[int, _Behind] = {}

    def add(self, base_offset: int, entry: AbortedTransaction) -> bool:
        """Add the entry of the newest marker in the log; returns whether enough entries wait that `write` is due."""
        behind = self._behind.get(base_offset)
        if behind is None:
            behind = self._behind[base_offset] = _Behind()
        behind.entries.append(entry)
        return len(behind.entries) >= ENTRIES_BEHIND

    def rewrite(self, base_offset: int, entries: Sequence[AbortedTransaction]) -> None:
        """Let the next `write` replace the file that a start has found by one with these entries."""
        behind = self._behind[base_offset] = _Behind()
        behind.entries += entries
        behind.is_rewritten = True

    def has_unwritten(self, base_offset: int) -> bool:
        """Whether entries of the segment wait in memory."""
        behind = self._behind.get(base_offset)
        return behind is not None and bool(behind.entries)

    def write(self, base_offset: int | None = None) -> None:
        """Write the waiting entries of one segment or of all. Raises OSError; the next call then writes the rest."""
        for base, behind in list(self._behind.items()):
            if behind.entries and base_offset in (None, base):
                self._write(base, behind)

    def _write(self, base_offset: int, behind: _Behind) -> None:
        path = layout.txn_index_file(self._directory, base_offset)
        data = encode_transaction_index(behind.entries)
        if behind.is_rewritten:
            self._files.write_atomically(path, data)
            behind.length, behind.is_rewritten = len(data), False
            behind.entries.clear()
            return
        is_new = behind.length < 0 and not self._files.exists(path)
        file = self._files.open(path, create=True)
        try:
            if is_new:
                self._on_new_name()
            if behind.length < 0:
                behind.length = file.size() // ENTRY.size * ENTRY.size
            write_all(file, [data], behind.length)
        finally:
            file.close()
        behind.length += len(data)
        behind.entries.clear()

    def begin_sync(self, before_offset: int) -> IndexSync | None:
        """A sync of what is written of the files of all segments that begin below `before_offset`; None when all of
        that is on disk.
        """
        lengths = [(base, one.length) for base, one in self._behind.items() if base < before_offset and one.length >= 0]
        if not lengths:
            return None
        return IndexSync(self._files, [layout.txn_index_file(self._directory, base) for base, _ in lengths], lengths)

    def end_sync(self, sync: IndexSync) -> None:
        """Record a sync that ran, or that a sync of the volume covered."""
        for base_offset, length in sync.lengths:
            behind = self._behind.get(base_offset)
            if behind is not None and behind.length == length and not behind.entries:
                del self._behind[base_offset]

    def forget(self, base_offset: int) -> None:
        """Drop a segment that was deleted, or replaced by one that has its entries on disk."""
        self._behind.pop(base_offset, None)
