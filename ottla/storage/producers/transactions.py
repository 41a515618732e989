"""The transactions whose records `isolation.level=read_committed` must hide: those that were aborted, and those whose
end is not visible yet.

On disk they are in two places, both Kafka's: the producers' state has the start of open ones (`.snapshot`), and the
`.txnindex` of a segment the aborted ones with an ABORT marker in that segment (transaction_index.py).

After a crash a start reads the markers after the newest producer snapshot, with all other batches, and adds missing
ones to their index. An index that cannot be read is rebuilt from all batches of the log, as in Kafka. A reader gets the
list of aborted transactions with its records (`between`) and skips their records itself. It gets nothing from the first
open transaction on.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.batch import BatchHeader, CorruptBatch, decode_batch
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.storage.files.disk_errors import is_full
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.layout import MAX_OFFSET
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    encode_transaction_index,
    parse_transaction_index,
)

logger = logging.getLogger(__name__)

NONE_OPEN: Final = MAX_OFFSET
"""The value of the first open offset when no transaction is open."""


class _Ending(NamedTuple):
    """A transaction with a marker in the log that may not be visible yet."""

    marker_offset: int
    first_offset: int
    aborted: AbortedTransaction | None


class LogTransactions:
    """The transactions of one log, as far as their markers are visible: call `begin` and `end` when their batches were
    appended, `show` when the high watermark moves, `forget_before` when the log start does.

    A marker counts when it becomes visible, not when it is appended. Until then its transaction is still open: readers
    would otherwise get records without learning that they were aborted.

    Transactions begin in the order of their first offsets, so the first open one is the oldest entry: no operation
    takes longer with many open transactions.

    Attributes:
        first_open_offset: the first offset of the first transaction whose end is not visible, NONE_OPEN without one.
        last_aborted_offset: the newest visible ABORT marker; -1 without one. A reader after it has nothing to skip.
        last_marker_offset: the newest visible marker since the start, which has read the earlier ones from the disk; -1
            without one.
    """

    __slots__ = (
        "_ending",
        "_first_offsets",
        "_last_offsets",
        "_open",
        "_producer_ids",
        "_stable_offsets",
        "_unstable",
        "first_open_offset",
        "last_aborted_offset",
        "last_marker_offset",
    )

    def __init__(
        self, aborted: Sequence[AbortedTransaction] = (), open_offsets: Mapping[int, int] | None = None
    ) -> None:
        """`open_offsets`: producer id → first offset of its transaction."""
        self._open = in_order(open_offsets or {})
        self._unstable: OrderedDict[int, None] = OrderedDict.fromkeys(self._open.values())
        """The first offsets of transactions whose end is not visible, ascending."""
        self._ending: deque[_Ending] = deque()
        self.first_open_offset = next(iter(self._unstable), NONE_OPEN)
        self.last_aborted_offset = self.last_marker_offset = -1
        self._producer_ids = array("q")
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._stable_offsets = array("q")
        """The last stable offset after each marker; never more than that of a later one, nor than its first offset."""
        for one in _with_sound_stable_offsets(aborted):
            self._add_aborted(one)

    @property
    def has_aborted(self) -> bool:
        """Whether an aborted transaction is still in the log."""
        return self.last_aborted_offset >= 0

    @property
    def open_offsets(self) -> dict[int, int]:
        """Producer id → first offset of transactions without a marker in the log, oldest first."""
        return dict(self._open)

    @property
    def open_count(self) -> int:
        """The number of transactions without a marker in the log."""
        return len(self._open)

    def begin(self, producers: Sequence[ProducerEntry]) -> None:
        """Note appends of producers with an open transaction: opens those that were not open yet."""
        if len(producers) > 1:
            producers = sorted(producers, key=attrgetter("current_txn_first_offset"))
        for entry in producers:
            if entry.producer_id not in self._open:
                _, first_offset = entry.transaction
                self._open[entry.producer_id] = first_offset
                self._unstable[first_offset] = None
                if self.first_open_offset == NONE_OPEN:
                    self.first_open_offset = first_offset

    def end(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> AbortedTransaction | None:
        """Note the append of a producer's marker; returns its index entry, if it has one."""
        first_offset = self._open.pop(producer_id, -1)
        if first_offset < 0:
            return None
        aborted = None
        if is_aborted:
            aborted = AbortedTransaction(
                producer_id, first_offset, marker_offset, next(iter(self._open.values()), marker_offset + 1)
            )
        self._ending.append(_Ending(marker_offset, first_offset, aborted))
        return aborted

    def show(self, high_watermark: int) -> None:
        """Make everything below `high_watermark` visible: markers below it end their transactions."""
        ending = self._ending
        if not ending or ending[0].marker_offset >= high_watermark:
            return
        while ending and ending[0].marker_offset < high_watermark:
            one = ending.popleft()
            self._unstable.pop(one.first_offset, None)
            if one.aborted is not None:
                self._add_aborted(one.aborted)
        self.last_marker_offset = one.marker_offset
        self.first_open_offset = next(iter(self._unstable), NONE_OPEN)

    def forget_before(self, log_start_offset: int) -> None:
        """Forget the transactions that were aborted before the new log start."""
        count = bisect_left(self._last_offsets, log_start_offset)
        if count:
            for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets):
                del column[:count]
            if not self._last_offsets:
                self.last_aborted_offset = -1

    def aborted_from(self, offset: int) -> list[AbortedTransaction]:
        """The entries of the markers at `offset` and after it."""
        slot = bisect_left(self._last_offsets, offset)
        columns = (self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets)
        return list(map(AbortedTransaction._make, zip(*(column[slot:] for column in columns), strict=True)))

    def replace_aborted(self, base_offset: int, end_offset: int, kept: Sequence[AbortedTransaction]) -> None:
        """Remove the entries of markers from `base_offset` up to `end_offset` that the cleaner has not `kept`. No batch
        of those is left, and a reader that got them would skip later transactions of their producers.
        """
        first, end = bisect_left(self._last_offsets, base_offset), bisect_left(self._last_offsets, end_offset)
        last_offsets = {one.last_offset for one in kept}
        stays = [slot for slot in range(first, end) if self._last_offsets[slot] in last_offsets]
        if len(stays) == end - first:
            return
        for column in (self._producer_ids, self._first_offsets, self._last_offsets, self._stable_offsets):
            column[first:end] = array("q", [column[slot] for slot in stays])
        self.last_aborted_offset = self._last_offsets[-1] if self._last_offsets else -1

    def between(self, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that concern offsets from `first_offset` up to, but
        not including, `end_offset`.
        """
        firsts, slot = self._first_offsets, bisect_left(self._last_offsets, first_offset)
        # A transaction that ended after the last stable offset had passed `end_offset` began after it.
        stop = bisect_left(self._stable_offsets, end_offset, slot) + 1
        producer_ids = self._producer_ids
        return [
            (producer_ids[slot], firsts[slot])
            for slot in range(slot, min(stop, len(firsts)))
            if firsts[slot] < end_offset
        ]

    def _add_aborted(self, one: AbortedTransaction) -> None:
        """Add an aborted transaction, the newest by its marker."""
        self.last_aborted_offset = one.last_offset
        self._producer_ids.append(one.producer_id)
        self._first_offsets.append(one.first_offset)
        self._last_offsets.append(one.last_offset)
        self._stable_offsets.append(one.last_stable_offset)


def in_order(open_offsets: Mapping[int, int]) -> OrderedDict[int, int]:
    """Open transactions by their producers, in the order in which they began."""
    return OrderedDict(sorted(open_offsets.items(), key=lambda one: one[1]))


def _with_sound_stable_offsets(aborted: Sequence[AbortedTransaction]) -> list[AbortedTransaction]:
    """The entries in the order of their markers, with last stable offsets that no later entry contradicts. A wrong one
    would hide an aborted transaction from a reader.
    """
    entries = sorted(aborted, key=lambda one: one.last_offset, reverse=True)
    least = NONE_OPEN
    for slot, one in enumerate(entries):
        stable_offset = min(one.last_stable_offset, least)
        entries[slot] = one._replace(last_stable_offset=stable_offset)
        least = min(stable_offset, one.first_offset)
    return entries[::-1]


class TransactionReplay:
    """The transactions that a sequence of batches aborts, and those that it leaves open."""

    def __init__(self, open_offsets: Mapping[int, int] | None = None) -> None:
        """`open_offsets`: producer id → first offset of its transaction that was open before."""
        self.open_offsets = in_order(open_offsets or {})
        self.aborted: list[AbortedTransaction] = []

    def note(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """Process the next batch; `read` returns its bytes, and is called for control batches only."""
        if header.producer_id < 0:
            return
        if header.is_control:
            if header.record_count:  # Kafka's cleaner leaves only the headers of some, which have no meaning any more
                self._end(header, read)
        elif header.is_transactional:
            self.open_offsets.setdefault(header.producer_id, header.base_offset)

    def _end(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        first_offset = self.open_offsets.pop(header.producer_id, -1)
        if first_offset >= 0 and _kind(read()) is ControlType.ABORT:
            stable_offset = next(iter(self.open_offsets.values()), header.next_offset)
            self.aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable_offset))


def _kind(batch: bytes) -> ControlType | None:
    try:
        records = decode_batch(batch)
        return decode_control_key(records[0].key) if records else None
    except CorruptBatch:
        return None


def load_transactions(
    files: Files,
    directory: Path,
    bases: Sequence[int],
    indexes: Sequence[int],
    *,
    lost: Sequence[Path] = (),
    log_end_offset: int,
    replayed: TransactionReplay,
    scan: Callable[[], TransactionReplay],
    unwritten: Callable[[int, Sequence[AbortedTransaction]], None],
) -> LogTransactions:
    """The transactions of a log at its start; `.txnindex` files that contradict its batches are rewritten.

    Args:
        bases: base offsets of the segments, `indexes`: those with a `.txnindex`; both ascending.
        lost: what is left of `.txnindex` files that segments should have.
        replayed: the transactions of the batches after the newest snapshot, and those open in it.
        scan: returns the transactions of all batches of the log.
        unwritten: called with a segment and its entries if the disk is too full for its `.txnindex`.

    Raises OSError, and CorruptBatch if all batches have to be checked.
    """
    stored: dict[int, bytes] = {}
    aborted: dict[tuple[int, int], AbortedTransaction] = {}
    try:
        if lost:
            path = lost[0]
            raise CorruptTransactionIndex("its segment is there")
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
        write_transaction_indexes(files, directory, bases, log_end_offset, entries, stored, unwritten)
    return LogTransactions(entries, replayed.open_offsets)


def write_transaction_indexes(
    files: Files,
    directory: Path,
    bases: Sequence[int],
    log_end_offset: int,
    entries: Sequence[AbortedTransaction],
    stored: Mapping[int, bytes],
    unwritten: Callable[[int, Sequence[AbortedTransaction]], None] | None = None,
) -> list[Path]:
    """Write and sync each segment's `.txnindex` that does not have its `entries` already (`stored`, by base offset);
    returns those that were written. Raises OSError; if the disk is full, `unwritten` is called instead if it is given.
    """
    written = []
    for base_offset, end_offset in _with_ends(bases, log_end_offset):
        of_segment = [one for one in entries if base_offset <= one.last_offset < end_offset]
        data = encode_transaction_index(of_segment)
        if data != stored.get(base_offset, b""):
            path = layout.txn_index_file(directory, base_offset)
            try:
                files.write_atomically(path, data)
                written.append(path)
            except OSError as error:
                if unwritten is None or not is_full(error):
                    raise
                logger.warning("%s is written later: %s", path, error)
                unwritten(base_offset, of_segment)
    return written


def sync_transaction_indexes(files: Files, directory: Path, bases: Iterable[int]) -> bool:
    """Sync the existing `.txnindex` files of these segments; returns whether there is one. The caller syncs their
    names. Raises OSError.
    """
    paths = [layout.txn_index_file(directory, base_offset) for base_offset in sorted(bases)]
    found = [path for path in paths if files.exists(path)]
    for path in found:
        file = files.open(path, writable=True)
        try:
            file.fdatasync()
        finally:
            file.close()
    return bool(found)


def _with_ends(bases: Sequence[int], log_end_offset: int) -> Iterator[tuple[int, int]]:
    return zip(bases, [*bases[1:], log_end_offset], strict=True) if bases else iter(())
