"""What readers of committed records (`isolation.level=read_committed`) may not see of a log: transactions that were
aborted, and those that nobody has ended.

Transactions are written by Apache Kafka only, in a directory that it had before; here they are read. (Of those that the
broker itself appends, `LogTransactions.note` knows in memory only: what writes markers has to write their index, too.)
They are in two places, both Kafka's: the producers' state, where an open one began, and `.txnindex` beside the segment
in which an ABORT marker lies, 34 bytes big-endian for each aborted transaction, in the order of the markers:

    0  version int16 = 0 · 2  producer_id int64 · 10  first_offset int64 · 18  last_offset int64 (the marker's)
    26 last_stable_offset int64, as it was after the marker

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
from collections import deque
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


class _Ending(NamedTuple):
    """A transaction whose marker is in the log and may not be visible yet."""

    marker_offset: int
    producer_id: int
    first_offset: int
    is_aborted: bool


class LogTransactions:
    """The transactions of one log, as far as their markers are visible: `note` for each batch of one that is appended,
    `show` when the high watermark moves, `forget_before` when the log start does.

    A marker counts once it is visible and not when it is appended: in between its transaction is still the first open
    one, or readers would get records of which they cannot learn that they were aborted.

    Attributes:
        first_open_offset: where the first one begins whose end is not visible, NONE_OPEN without one.
        last_aborted_offset: the newest visible ABORT marker; -1 without one. A reader beyond it leaves nothing out.
    """

    __slots__ = (
        "_ending",
        "_first_offsets",
        "_last_offsets",
        "_least_from",
        "_open_offsets",
        "_producer_ids",
        "first_open_offset",
        "last_aborted_offset",
    )

    def __init__(
        self, aborted: Sequence[AbortedTransaction] = (), open_offsets: Mapping[int, int] | None = None
    ) -> None:
        """`open_offsets`: producer id → where its transaction began."""
        self._open_offsets = dict(open_offsets or {})
        self._ending: deque[_Ending] = deque()
        self.first_open_offset = min(self._open_offsets.values(), default=NONE_OPEN)
        self.last_aborted_offset = -1
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._least_from = array("q")
        """The least first offset from each entry on: where a look may end."""
        for one in sorted(aborted, key=lambda one: one.last_offset):
            self._add_aborted(one.producer_id, one.first_offset, one.last_offset)

    @property
    def has_aborted(self) -> bool:
        """Whether any of the aborted ones is still in the log."""
        return self.last_aborted_offset >= 0

    def note(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """A batch was appended; `read` gives its bytes, and is called for control batches."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        if header.is_control:
            first_offset = self._open_offsets.pop(producer_id, -1)
            if first_offset >= 0:
                is_aborted = _kind(read()) is ControlType.ABORT
                self._ending.append(_Ending(header.last_offset, producer_id, first_offset, is_aborted))
        elif header.is_transactional:
            self._open_offsets.setdefault(producer_id, header.base_offset)
            self.first_open_offset = min(self.first_open_offset, header.base_offset)

    def show(self, high_watermark: int) -> None:
        """All below `high_watermark` is visible: markers among it end their transactions."""
        ending = self._ending
        if not ending or ending[0].marker_offset >= high_watermark:
            return
        while ending and ending[0].marker_offset < high_watermark:
            one = ending.popleft()
            if one.is_aborted:
                self._add_aborted(one.producer_id, one.first_offset, one.marker_offset)
        open_offset = min(self._open_offsets.values(), default=NONE_OPEN)
        self.first_open_offset = min((one.first_offset for one in ending), default=open_offset)
        self.first_open_offset = min(self.first_open_offset, open_offset)

    def forget_before(self, log_start_offset: int) -> None:
        """The log begins there now: nobody reads what was aborted before."""
        count = bisect_left(self._last_offsets, log_start_offset)
        if count:
            for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._least_from):
                del column[:count]
            if not self._last_offsets:
                self.last_aborted_offset = -1

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

    def _add_aborted(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """One more, the newest by its marker."""
        self.last_aborted_offset = last_offset
        self._producer_ids.append(producer_id)
        self._first_offsets.append(first_offset)
        self._last_offsets.append(last_offset)
        self._least_from.append(first_offset)
        slot = len(self._least_from) - 2
        while slot >= 0 and self._least_from[slot] > first_offset:
            self._least_from[slot] = first_offset
            slot -= 1


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
        replayed: of the batches after the newest snapshot, with what that says is open.
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
        logger.warning("%s: %s; all batches of the log are searched for aborted transactions", path, error)
        aborted = {(one.producer_id, one.last_offset): one for one in scan().aborted}
    for one in replayed.aborted:
        aborted.setdefault((one.producer_id, one.last_offset), one)
    entries = sorted(aborted.values(), key=lambda one: one.last_offset)
    if entries or any(stored.values()):
        write_transaction_indexes(files, directory, bases, log_end_offset, entries, stored)
    return LogTransactions(entries, replayed.open_offsets)


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
