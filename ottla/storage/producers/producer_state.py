"""The state of a log's idempotent producers: the last five batches of each, to refuse gaps and detect duplicates, and
the first offset of its open transaction.

Rules (Kafka's ProducerAppendInfo; KIP-98): an unknown producer may begin anywhere, unless Produce has just added the
partition to its transaction (`BEGINS_AT_ZERO`); a known one continues with the next sequence (0 follows 2^31-1); a new
epoch begins at 0; an older epoch is refused. While a transaction is open, all batches of its producer belong to it, and
its marker ends it. There are two differences to Kafka. An unknown producer must not begin after a batch of its
own that was refused for a while (producer_beginnings.py). And a producer expires `producer.id.expiration.ms` after its
last *append*: Kafka counts from the batch's timestamp, which would immediately expire producers of old events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader, CorruptBatch, crc_matches, parse_header
from ottla.storage.producers.producer_beginnings import ProducerBeginnings
from ottla.storage.producers.producer_entry import (
    IN_TRANSACTION,
    MAX_EPOCH,
    MAX_SEQUENCE,
    NO_BATCH,
    NO_TRANSACTION,
    REMEMBERED_BATCHES,
    BatchFields,
    ProducerEntry,
    RememberedBatch,
)
from ottla.storage.producers.snapshot_format import PRODUCERS_PER_PIECE, parse_snapshot

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

MAX_PRODUCERS: Final = 200_000
"""The limit for one log, 0.3 to 0.9 KB each (measured). Beyond it the producers that have been idle longest are
forgotten, a thousandth at a time. Producers with an open transaction are kept: otherwise the next start would treat the
transaction as ended.
"""
MOST_LOOKED_AT: Final = 1_000
"""The idle producers that are checked when one more is added; those that must be kept are skipped."""
LOADED_GRACE_MS: Final = 3_600_000
"""A producer found at a start is kept at least this long, however old its timestamps, so that a retry after a restart
is recognised.
"""
NO_PRODUCER_ID: Final = -1


class SequenceRefusal(NamedTuple):
    """The reason why a batch must not be appended."""

    error_code: ErrorCode
    message: str


class ProducerStates:
    """The producers of one log, least recently seen first.

    Attributes:
        beginnings: for unknown producers, the batches that were refused and will be sent again.
        expiration_ms: `producer.id.expiration.ms`.
    """

    __slots__ = ("_entries", "beginnings", "expiration_ms")

    def __init__(self, expiration_ms: int) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.beginnings = ProducerBeginnings()
        self.expiration_ms = expiration_ms

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer, None when it is unknown."""
        return self._entries.get(producer_id)

    def publish(self, entry: ProducerEntry) -> None:
        """Store a producer's state after an append; it becomes the most recently seen."""
        entries = self._entries
        if entries.pop(entry.producer_id, None) is None:
            self.beginnings.forget(entry.producer_id)
        entries[entry.producer_id] = entry
        if len(entries) > MAX_PRODUCERS:
            # Several at a time: finding the first entry after many that have moved away from there takes 0.1 ms.
            surplus = min(len(entries) - MAX_PRODUCERS, MOST_LOOKED_AT) + MAX_PRODUCERS // 1000
            for producer_id in list(islice(entries, surplus)):
                quiet = entries.pop(producer_id)
                if quiet.current_txn_first_offset >= 0:
                    entries[producer_id] = quiet  # moved to the end: all others are checked before it again

    def note_unstored(self, batches: Iterable[Buffer], now_ms: int) -> None:
        """Note batches that could not be stored and that the producer will retry; invalid ones are ignored."""
        for batch in batches:
            try:
                header = parse_header(batch)
            except CorruptBatch:
                continue
            is_of_unknown = header.producer_id >= 0 and header.producer_id not in self._entries
            if is_of_unknown and header.size_bytes == len(batch) and crc_matches(batch, header):
                self.beginnings.note(header, now_ms)

    def replay(self, header: BatchHeader, now_ms: int, coordinator_epoch: int = -1) -> None:
        """Apply a batch that is already in the log, unchecked. `coordinator_epoch`: the one in a control batch."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        known = self._entries.get(producer_id)
        seen_ms = self._loaded_seen_ms(header.max_timestamp, now_ms)
        if not header.is_control:
            self.publish(advance(known, header, header.base_offset, seen_ms))
            return
        epoch, stamp_ms = header.producer_epoch, header.max_timestamp
        entry = after_marker(known, producer_id, epoch, coordinator_epoch, stamp_ms, seen_ms)
        if not header.record_count:  # the header that the cleaner left of a marker: only its epoch counts
            entry = entry._replace(transaction=NO_TRANSACTION if known is None else known.transaction)
        self.publish(entry)

    def expire(self, now_ms: int, stamped_ms: Callable[[int], int] = int) -> Iterator[int]:
        """Forget producers that were idle for `producer.id.expiration.ms` and have no open transaction, in steps;
        yields how many were checked in each. Appends may come in between. `stamped_ms` corrects the time at which one
        was seen for a clock that was wrong then (clock_trust.py).
        """
        entries = self._entries
        producer_ids = list(entries)
        for first in range(0, len(producer_ids), PRODUCERS_PER_PIECE):
            piece = producer_ids[first : first + PRODUCERS_PER_PIECE]
            for producer_id in piece:
                entry = entries.get(producer_id)
                if (
                    entry is not None
                    and now_ms - stamped_ms(entry.last_seen_ms) >= self.expiration_ms
                    and entry.current_txn_first_offset < 0
                ):
                    del entries[producer_id]
            yield len(piece)
        self.beginnings.expire(now_ms - self.expiration_ms)

    def load(self, data: bytes, now_ms: int) -> None:
        """Replace the state by that of a snapshot's bytes.

        Raises:
            CorruptSnapshot: the bytes are not a valid snapshot; the state has not changed.
        """
        entries = {}
        for entry in parse_snapshot(data):
            seen_ms = self._loaded_seen_ms(entry.last_seen_ms, now_ms)
            entries[entry.producer_id] = entry._replace(last_seen_ms=seen_ms)
        self._entries = entries

    def _loaded_seen_ms(self, timestamp_ms: int, now_ms: int) -> int:
        grace_ms = min(LOADED_GRACE_MS, self.expiration_ms)
        return max(min(timestamp_ms, now_ms), now_ms - self.expiration_ms + grace_ms)


def find_duplicate(entry: ProducerEntry | None, header: BatchHeader) -> RememberedBatch | None:
    """The remembered batch that `header` repeats: same epoch, same first and last sequence."""
    if entry is None or entry.epoch != header.producer_epoch:
        return None
    last_sequence = header.last_sequence
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return batch
    return None


def check_batch(entry: ProducerEntry | None, header: BatchHeader) -> SequenceRefusal | None:
    """The reason why a batch, which is no duplicate, must not follow its producer's state; None if it may."""
    if entry is None:
        return None
    refusal = check_sequence(entry, header)
    if refusal is None and entry.current_txn_first_offset >= 0 and not header.is_transactional:
        return SequenceRefusal(
            ErrorCode.INVALID_TXN_STATE,
            f"a transaction of producer {header.producer_id} is open since offset {entry.current_txn_first_offset},"
            " and the batch is of none",
        )
    return refusal


def check_marker(
    entry: ProducerEntry | None, producer_id: int, epoch: int, coordinator_epoch: int, *, bumps_epoch: bool = False
) -> SequenceRefusal | None:
    """The reason why a marker with these epochs must not end a producer's transaction; None if it may.

    With `bumps_epoch` the transaction's records have a lower epoch than its marker (KIP-890): one of the same epoch is
    late, and belongs to an earlier transaction (KIP-1228). After the last epoch there is none: Kafka before KAFKA-20090
    could begin a transaction with it, which is ended by a marker of the same epoch.
    """
    if entry is None:
        return None
    if bumps_epoch and entry.epoch == epoch < MAX_EPOCH and entry.current_txn_first_offset >= 0:
        return SequenceRefusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {producer_id} is that of the open transaction: its end has a higher one",
        )
    if epoch < entry.epoch:
        return SequenceRefusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {producer_id} is older than the last seen epoch {entry.epoch}",
        )
    if coordinator_epoch < entry.coordinator_epoch:
        return SequenceRefusal(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a coordinator of epoch {coordinator_epoch} ends no transaction of producer {producer_id}: one of epoch"
            f" {entry.coordinator_epoch} has done so",
        )
    return None


def check_sequence(entry: ProducerEntry | None, header: BatchHeader) -> SequenceRefusal | None:
    """The reason why the epoch and sequence of a batch, which is no duplicate, must not follow its producer's state;
    None if they may.
    """
    if entry is None or entry.epoch == -1:
        return None
    epoch = header.producer_epoch
    if epoch < entry.epoch:
        return SequenceRefusal(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {header.producer_id} is older than the last seen epoch {entry.epoch}",
        )
    if epoch > entry.epoch:
        if header.base_sequence == 0:
            return None
        return SequenceRefusal(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"the first sequence of producer {header.producer_id} in epoch {epoch} is {header.base_sequence}, not 0",
        )
    expected = (entry.last_sequence + 1) & MAX_SEQUENCE
    if header.base_sequence == expected:
        return None
    return SequenceRefusal(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id} does not follow {entry.last_sequence}",
    )


def due_sequence(entry: ProducerEntry | None, epoch: int) -> int:
    """The first sequence of the next batch of a producer in its epoch; -2 if unknown, or for another epoch.

    A batch that begins so is the common case: it needs neither of the two checks above, nor its header as an object.
    `epoch` may have `IN_TRANSACTION` added; without it, a producer that has had a transaction gets the full check.
    """
    if entry is None:
        return -2
    if (epoch != entry[1] or entry[3] is not NO_TRANSACTION) and epoch != entry[1] + IN_TRANSACTION:
        return -2
    return (entry[5] + 1) & MAX_SEQUENCE


def advance(entry: ProducerEntry | None, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerEntry:
    """The producer after its batch got `base_offset`."""
    _, _, _, _, _, attributes, delta, _, timestamp_ms, producer_id, epoch, sequence, _ = header
    last_sequence = (sequence + delta) & MAX_SEQUENCE if sequence >= 0 else -1
    if attributes & TRANSACTIONAL_BIT:
        epoch += IN_TRANSACTION
    return advance_by(entry, producer_id, epoch, ((last_sequence, base_offset + delta, delta, timestamp_ms),), now_ms)


def advance_by(
    entry: ProducerEntry | None, producer_id: int, epoch: int, batches: Sequence[BatchFields], now_ms: int
) -> ProducerEntry:
    """`advance` by several batches of that epoch in order. `epoch` may have `IN_TRANSACTION` added."""
    if epoch > MAX_EPOCH:
        return _advance_in_transaction(entry, producer_id, epoch, batches, now_ms)
    transaction = NO_TRANSACTION
    earlier: tuple[BatchFields, ...] = ()
    if entry is not None:
        _, known_epoch, _, transaction, earlier, sequence, offset, delta, timestamp_ms = entry
        if known_epoch != epoch or len(batches) >= REMEMBERED_BATCHES:
            earlier = ()
        elif offset >= 0:
            earlier = (*earlier[2 - REMEMBERED_BATCHES :], (sequence, offset, delta, timestamp_ms))
    if len(batches) > 1:
        earlier = (*earlier, *batches[-REMEMBERED_BATCHES:-1])[1 - REMEMBERED_BATCHES :]
    sequence, offset, delta, timestamp_ms = batches[-1]
    # Made without its own constructor (a third of the time), since the hot path makes one in each turn.
    fields = (producer_id, epoch, now_ms, transaction, earlier, sequence, offset, delta, timestamp_ms)
    return tuple.__new__(ProducerEntry, fields)


def _advance_in_transaction(
    entry: ProducerEntry | None, producer_id: int, epoch: int, batches: Sequence[BatchFields], now_ms: int
) -> ProducerEntry:
    """Advance by batches of a transaction; the first one opens it, if none is open."""
    if entry is not None and entry.last_offset < 0 and len(batches) == 1 and entry.transaction[1] < 0:
        # The first batch after a marker that has raised the epoch (KIP-890): all in one step.
        sequence, offset, delta, timestamp_ms = batches[0]
        transaction = (entry.transaction[0], offset - delta)
        fields = (producer_id, epoch - IN_TRANSACTION, now_ms, transaction, (), sequence, offset, delta, timestamp_ms)
        return tuple.__new__(ProducerEntry, fields)
    advanced = advance_by(entry, producer_id, epoch - IN_TRANSACTION, batches, now_ms)
    known_id, known_epoch, seen_ms, (coordinator_epoch, first_offset), *newest = advanced
    if first_offset >= 0:
        return advanced
    _, last_offset, delta, _ = batches[0]
    transaction = (coordinator_epoch, last_offset - delta)
    return tuple.__new__(ProducerEntry, (known_id, known_epoch, seen_ms, transaction, *newest))


def after_marker(
    entry: ProducerEntry | None, producer_id: int, epoch: int, coordinator_epoch: int, stamp_ms: int, now_ms: int
) -> ProducerEntry:
    """The producer after the marker that ends its transaction. The batches of an older epoch are forgotten.

    The newest batch gets the marker's timestamp, as in Kafka's snapshots: it is the producer's last one.
    """
    earlier: tuple[BatchFields, ...] = ()
    sequence, offset, delta, _ = NO_BATCH
    if entry is not None and entry.epoch == epoch:
        _, _, _, _, earlier, sequence, offset, delta, _ = entry
    fields = (producer_id, epoch, now_ms, (coordinator_epoch, -1), earlier, sequence, offset, delta, stamp_ms)
    return tuple.__new__(ProducerEntry, fields)
