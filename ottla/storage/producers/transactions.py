"""What readers of committed records (`isolation.level=read_committed`) may not see of a log: transactions that were
aborted, and those that nobody has ended.

Transactions are written by Apache Kafka only, in a directory that it had before; here they are read. Two things tell of
them, both Kafka's: the producers' state, where an open one began, and `.txnindex` beside the segment in which an ABORT
marker lies, 34 bytes big-endian for each aborted transaction, in the order of the markers:

    0  version int16 = 0 · 2  producer_id int64 · 10  first_offset int64 · 18  last_offset int64 (the marker's)
    26 last_stable_offset int64, as it was behind the marker

Producer 1000 wrote from offset 5 on, and its marker is at 9:

    0000 00000000000003e8 0000000000000005 0000000000000009 000000000000000a

Markers behind the newest snapshot of producers are checked by each start after a crash, as other batches are; what
an index does not say of them is added to it. One that cannot be read is made again from all batches of the log, as
Kafka does. The readers get the list with what they read (`between`) and leave out those records themselves; nothing
from the first open transaction on is given to them.
"""

from __future__ import annotations

import logging
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.batch import BatchHeader, CorruptBatch, decode_batch
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.layout import MAX_OFFSET

logger = logging.getLogger(__name__)

NONE_OPEN: Final = MAX_OFFSET
"""Where the first open transaction begins when there is none."""
ENTRY: Final = struct.Struct(">hqqqq")
VERSION: Final = 0


class CorruptTransactionIndex(ValueError):
    """A `.txnindex` that is not one: what is wrong with it, in a line."""


class AbortedTransaction(NamedTuple):
    """An entry of a `.txnindex`. `last_offset` is the ABORT marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class LogTransactions:
    """The transactions of one log; nothing changes them once it is open, because none are written here.

    Attributes:
        first_open_offset: where the first one begins that has no end, NONE_OPEN without one.
        has_aborted: whether there are aborted ones.
    """

    __slots__ = ("_first_offsets", "_last_offsets", "_least_from", "_producer_ids", "first_open_offset", "has_aborted")

    def __init__(self, aborted: Sequence[AbortedTransaction] = (), first_open_offset: int = NONE_OPEN) -> None:
        aborted = sorted(aborted, key=lambda one: one.last_offset)
        self.first_open_offset = first_open_offset
        self.has_aborted = bool(aborted)
        self._producer_ids = array("q", (one.producer_id for one in aborted))
        self._first_offsets = array("q", (one.first_offset for one in aborted))
        self._last_offsets = array("q", (one.last_offset for one in aborted))
        self._least_from = array("q", self._first_offsets)
        """The least first offset from each entry on: where a look may end."""
        for slot in range(len(aborted) - 2, -1, -1):
            self._least_from[slot] = min(self._least_from[slot], self._least_from[slot + 1])

    def between(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted ones that have to do with offsets from `first_offset` up to
        `end_offset`, which is not among them.
        """
        found: list[tuple[int, int]] = []
        for slot in range(bisect_left(self._last_offsets, first_offset), len(self._last_offsets)):
            if self._least_from[slot] >= end_offset:
                break
            if self._first_offsets[slot] < end_offset:
                found.append((self._producer_ids[slot], self._first_offsets[slot]))
        return found


class TransactionReplay:
    """Which transactions batches, seen in order, abort, and which they leave open."""

    def __init__(self, open_offsets: Mapping[int, int] | None = None) -> None:
        """`open_offsets`: producer id → where its transaction began that was open before."""
        self.open_offsets = dict(open_offsets or {})
        self.aborted: list[AbortedTransaction] = []

    def note(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """The next batch; `read` gives its bytes, and is called for control batches."""
        if header.producer_id < 0:
            return
        if header.is_control:
            first_offset = self.open_offsets.pop(header.producer_id, -1)
            if first_offset >= 0 and _kind(read()) is ControlType.ABORT:
                stable = min(self.open_offsets.values(), default=header.next_offset)
                self.aborted.append(
                    AbortedTransaction(
                        header.producer_id, first_offset, header.last_offset, min(stable, header.next_offset)
                    )
                )
        elif header.is_transactional:
            self.open_offsets.setdefault(header.producer_id, header.base_offset)


def _kind(batch: bytes) -> ControlType | None:
    try:
        records = decode_batch(batch)
        return decode_control_key(records[0].key) if records else None
    except CorruptBatch:
        return None


def parse_transaction_index(data: bytes, base_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """The entries of the `.txnindex` of a segment that holds the offsets from `base_offset` up to `end_offset`.

    Raises CorruptTransactionIndex, for entries that lie elsewhere, too: a bit has flipped, or the log became shorter.
    """
    if len(data) % ENTRY.size:
        raise CorruptTransactionIndex(f"{len(data)} bytes are no multiple of an entry's {ENTRY.size}")
    entries: list[AbortedTransaction] = []
    for number, (version, *values) in enumerate(ENTRY.iter_unpack(data)):
        entry = AbortedTransaction(*values)
        if version != VERSION:
            raise CorruptTransactionIndex(f"entry {number} has version {version}, not {VERSION}")
        is_inside = base_offset <= entry.last_offset < end_offset
        if entry.producer_id < 0 or not 0 <= entry.first_offset <= entry.last_offset or not is_inside:
            words = f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
            place = f"in a segment of offsets {base_offset} to {end_offset - 1}"
            raise CorruptTransactionIndex(f"entry {number} is none: {words}, {place}")
        entries.append(entry)
    return entries


def encode_transaction_index(entries: Sequence[AbortedTransaction]) -> bytes:
    """The bytes of a `.txnindex`."""
    return b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)


def load_transactions(
    files: Files,
    directory: Path,
    bases: Sequence[int],
    indexes: Sequence[int],
    *,
    log_end_offset: int,
    replayed: TransactionReplay,
    scan: Callable[[], TransactionReplay],
) -> LogTransactions:
    """The transactions of a log at its start; `.txnindex` files that do not say what its batches say are rewritten.

    Args:
        bases: base offsets of the segments, `indexes`: those with a `.txnindex`; both ascending.
        replayed: of the batches behind the newest snapshot, with what that says is open.
        scan: of all batches of the log.

    Raises OSError, and CorruptBatch where all batches have to be checked.
    """
    stored: dict[int, bytes] = {}
    aborted: dict[tuple[int, int], AbortedTransaction] = {}
    try:
        for base_offset, end_offset in _with_ends(bases, log_end_offset):
            if base_offset in indexes:
                path = layout.txn_index_file(directory, base_offset)
                stored[base_offset] = files.read_bytes(path)
                for entry in parse_transaction_index(stored[base_offset], base_offset, end_offset):
                    aborted[entry.producer_id, entry.last_offset] = entry
    except CorruptTransactionIndex as error:
        logger.warning("%s: %s; aborted transactions are looked for in all batches of the log", path, error)
        aborted = {(one.producer_id, one.last_offset): one for one in scan().aborted}
    for one in replayed.aborted:
        aborted.setdefault((one.producer_id, one.last_offset), one)
    entries = sorted(aborted.values(), key=lambda one: one.last_offset)
    if entries or any(stored.values()):
        write_transaction_indexes(files, directory, bases, log_end_offset, entries, stored)
    first_open_offset = min(replayed.open_offsets.values(), default=NONE_OPEN)
    return LogTransactions(entries, first_open_offset)


def write_transaction_indexes(
    files: Files,
    directory: Path,
    bases: Sequence[int],
    log_end_offset: int,
    entries: Sequence[AbortedTransaction],
    stored: Mapping[int, bytes],
) -> list[Path]:
    """Write each segment's `.txnindex` that does not hold its `entries` already (`stored`, by base offset), synced;
    those that were written. Raises OSError.
    """
    written = []
    for base_offset, end_offset in _with_ends(bases, log_end_offset):
        data = encode_transaction_index([one for one in entries if base_offset <= one.last_offset < end_offset])
        if data != stored.get(base_offset, b""):
            path = layout.txn_index_file(directory, base_offset)
            files.write_atomically(path, data)
            written.append(path)
    return written


def _with_ends(bases: Sequence[int], log_end_offset: int) -> Iterator[tuple[int, int]]:
    return zip(bases, [*bases[1:], log_end_offset], strict=True) if bases else iter(())
