"""Transactions among what is cleaned: which batches were aborted, and which markers are still needed.

Only what is decided is cleaned, so every batch of a transaction here is committed or aborted. Aborted batches are
removed, and their keys supersede nothing. A marker is needed as long as a batch of its transaction is there, if only
an empty one: without it a reader would take a later transaction of the producer for the aborted one. What ends nothing
any more is removed as a tombstone is, `delete.retention.ms` after a cleaning has met it first. The entry of the
`.txnindex` is removed as soon as the marker is not needed (Kafka's CleanedTransactionMetadata).

Which transactions were aborted is found in the markers themselves, and not in the `.txnindex`, which is derived: a
wrong entry there must not delete records. Only markers beyond what is cleaned are taken from the list that readers get.
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
    """The transactions of one cleaning. First `look` at every batch that is cleaned, in order, and `decide`; then the
    batches are copied in the same order, and each is noted.
    """

    def __init__(self) -> None:
        self._replay = TransactionReplay()
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._stored: dict[tuple[int, int], AbortedTransaction] = {}
        self._with_batches: set[int] = set()
        """Producers of which a batch was met since their last marker."""
        self._entries: list[AbortedTransaction] = []

    def look(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """A batch that will be cleaned; `read` gives its bytes. Raises CorruptBatch."""
        self._replay.note(header, read)

    def decide(self, later: Iterable[AbortedTransaction], stored: Iterable[AbortedTransaction]) -> None:
        """`later`: those whose marker is beyond what is cleaned; `stored`: the entries of the indexes, as they are
        on disk.
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
        """A batch of records is copied."""
        if header.is_transactional:
            self._with_batches.add(header.producer_id)

    def needs_marker(self, batch: bytes, header: BatchHeader) -> bool:
        """A control batch is copied: whether there are batches that it is for. Raises CorruptBatch."""
        if not header.record_count:
            return False
        end = decode_transaction_end(batch)
        if end is None:
            return True  # of another kind
        if header.producer_id not in self._with_batches:
            return False
        self._with_batches.remove(header.producer_id)
        if not end.is_commit:
            self._entries += self._entry(header)
        return True

    def _entry(self, header: BatchHeader) -> list[AbortedTransaction]:
        """That of an ABORT marker's transaction."""
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
    """Whether there is any sign of transactions in a log, for which all of it would have to be read once more."""
    if log.transactions.has_aborted:
        return True
    return any(entry.transaction is not NO_TRANSACTION for entry in log.producers) or any(
        log.files.exists(layout.txn_index_file(log.directory, segment.base_offset)) for segment in sealed
    )


def look_at_all(transactions: DecidedTransactions, log: Log, state: LogToAssess, end_offset: int) -> Iterator[int]:
    """Find out what became of each transaction with batches below `end_offset`; how many bytes were read in each step.

    What readers know is taken now, on the log owner's thread; the steps are for a worker.
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
