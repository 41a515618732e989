"""Transactions in the cleaned part: which batches were aborted, and which markers are still needed.

Only decided transactions are cleaned, so every batch of one here is committed or aborted. Aborted batches are removed,
and their keys supersede nothing. A marker is needed while a batch of its transaction exists, even an empty one: without
the marker, a reader would take a later transaction of the producer for the aborted one. A marker that ends nothing any
more is removed like a tombstone, `delete.retention.ms` after a cleaning has first found it. Its entry in the
`.txnindex` is removed as soon as the marker is not needed (Kafka's CleanedTransactionMetadata).

The markers themselves show which transactions were aborted, not the `.txnindex`, which is derived: a wrong entry there
must not delete records. Only for markers after the cleaned part, the list for readers is used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.protocol.records.batch import BatchHeader
from ottla.protocol.records.control import decode_transaction_end
from ottla.storage.cleaner.cleaning_reads import reading
from ottla.storage.formats import layout
from ottla.storage.producers.producer_entry import NO_TRANSACTION
from ottla.storage.producers.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    parse_transaction_index,
)
from ottla.storage.producers.transactions import TransactionReplay
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.cleaner.cleanable import LogToAssess
    from ottla.storage.log.log import Log


class DecidedTransactions:
    """The transactions of one cleaning. First call `look` for every batch in order, then `decide`; then note each batch
    when it is copied, in the same order.
    """

    def __init__(self) -> None:
        self._replay = TransactionReplay()
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._stored: dict[tuple[int, int], AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers with a batch since their last marker."""
        self._entries: list[AbortedTransaction] = []

    def look(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """Process a batch that will be cleaned; `read` returns its bytes. Raises CorruptBatch."""
        self._replay.note(header, read)

    def decide(self, later: Iterable[AbortedTransaction], stored: Iterable[AbortedTransaction]) -> None:
        """Decide with `later`, the transactions with a marker after the cleaned part, and `stored`, the entries of the
        indexes on disk.
        """
        for one in self._replay.aborted:
            self._aborted.setdefault(one.producer_id, []).append(one)
        open_offsets = self._replay.open_offsets
        for one in sorted(later, key=lambda entry: entry.last_offset):
            if one.producer_id in open_offsets and one.first_offset <= open_offsets[one.producer_id]:
                self._aborted.setdefault(one.producer_id, []).append(one)
                del open_offsets[one.producer_id]
        self._stored = {(one.producer_id, one.last_offset): one for one in stored}

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an aborted transaction."""
        aborted = self._aborted.get(header.producer_id)
        if aborted is None or not header.is_transactional:
            return False
        slot = bisect_right(aborted, header.base_offset, key=lambda one: one.first_offset) - 1
        return slot >= 0 and header.base_offset < aborted[slot].last_offset

    def note_batch(self, header: BatchHeader) -> None:
        """Note that a batch of records is copied."""
        if header.is_transactional:
            self._with_batches.add(header.producer_id)

    def needs_marker(self, batch: bytes, header: BatchHeader) -> bool:
        """Note that a control batch is copied; returns whether its transaction has batches. Raises CorruptBatch."""
        if not header.record_count:
            return False
        end = decode_transaction_end(batch)
        if end is None:
            return True  # another type of control record
        if header.producer_id not in self._with_batches:
            return False
        self._with_batches.remove(header.producer_id)
        if not end.is_commit:
            self._entries += self._entry(header)
        return True

    def _entry(self, header: BatchHeader) -> list[AbortedTransaction]:
        """The index entry of an ABORT marker's transaction."""
        stored = self._stored.get((header.producer_id, header.last_offset))
        if stored is not None:
            return [stored]
        aborted = self._aborted.get(header.producer_id, [])
        return [one for one in aborted if one.last_offset == header.last_offset]

    def take_entries(self) -> list[AbortedTransaction]:
        """The entries of the markers that were needed since the last call: those of one cleaned segment."""
        entries, self._entries = self._entries, []
        return entries


def may_have_transactions(log: Log, sealed: Sequence[Segment]) -> bool:
    """Whether a log shows any sign of transactions; then all of it has to be read once more."""
    if log.transactions.has_aborted:
        return True
    return any(entry.transaction is not NO_TRANSACTION for entry in log.producers) or any(
        log.files.exists(layout.txn_index_file(log.directory, segment.base_offset)) for segment in sealed
    )


def look_at_all(transactions: DecidedTransactions, log: Log, state: LogToAssess, end_offset: int) -> Iterator[int]:
    """Find the end of each transaction with batches below `end_offset`; yields the bytes read in each step.

    The list for readers is taken immediately, on the log owner's thread; the steps are for a worker.
    """
    known = log.transactions.aborted_from(0)
    return _look_at(transactions, log, state, end_offset, known)


def _look_at(
    transactions: DecidedTransactions,
    log: Log,
    state: LogToAssess,
    end_offset: int,
    known: Sequence[AbortedTransaction],
) -> Iterator[int]:
    stored = list(known)
    for slot, segment in enumerate(state.segments[:-1]):
        if segment.base_offset >= end_offset:
            break
        with reading(segment):
            stored += _stored_entries(log, segment, state.segments[slot + 1].base_offset)
            for position, header in walk(segment.file.pread, 0, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
                transactions.look(header, partial(segment.file.pread, header.size_bytes, position))
                yield header.size_bytes
    transactions.decide([one for one in known if one.last_offset >= end_offset], stored)


def _stored_entries(log: Log, segment: Segment, end_offset: int) -> list[AbortedTransaction]:
    path = layout.txn_index_file(log.directory, segment.base_offset)
    if not log.files.exists(path):
        return []
    try:
        return parse_transaction_index(log.files.read_bytes(path), segment.base_offset, end_offset)
    except CorruptTransactionIndex:
        return []  # the cleaned segment gets a new one
