"""What a log remembers of its idempotent producers: the last five batches of each, to refuse gaps and recognise
repeats.

`.snapshot` files are Kafka's ProducerStateManager snapshots, version 1, big-endian:

    0  version int16 = 1
    2  crc uint32            CRC-32C of everything from byte 6 on
    6  entries int32         their number, then per remembered batch of a producer 46 bytes:
       producer_id int64 · producer_epoch int16 · last_sequence int32 · last_offset int64 · offset_delta int32
       timestamp int64 · coordinator_epoch int32 · current_txn_first_offset int64 (-1: no open transaction)

Example: producer 1000, epoch 0, one batch of 3 records at offsets 0-2, stamped 5, as `00000000000000000003.snapshot`:

    0001 99f3220f 00000001
    00000000000003e8 0000 00000002 0000000000000002 00000002 0000000000000005 ffffffff ffffffffffffffff

The file's name is the offset up to which it speaks. Kafka writes one entry per producer, its last batch: with nothing
more, a producer that had several batches in flight when the broker stopped could not get the answer that they are
there. So all remembered batches are written, oldest first: Kafka keeps the last entry of a producer that it reads,
which is then the one that it would have written itself.

Rules (Kafka's ProducerAppendInfo; KIP-98): an unknown producer may begin anywhere; a known one continues by one (0
follows 2^31-1); a new epoch begins at 0; an older epoch is refused. Two differences: an unknown producer may not begin
behind a batch of its own that found no room (producer_beginnings.py); and a producer expires
`producer.id.expiration.ms` after its last *append*, where Kafka takes the batch's timestamp, by which producers of
old events would be forgotten at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import BatchHeader, CorruptBatch, crc_matches, parse_header
from ottla.protocol.records.checksum import crc32c
from ottla.storage.producers.producer_beginnings import ProducerBeginnings

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

REMEMBERED_BATCHES: Final = 5
"""As many as an idempotent producer may have in flight (KAFKA-5494)."""
MAX_PRODUCERS: Final = 200_000
"""Of one log, 0.4 to 1.2 KB each (measured); beyond it the producers that have been quiet longest are forgotten, a
thousandth at once.
"""
LOADED_GRACE_MS: Final = 3_600_000
"""A producer found at start is kept at least this long, however old its stamps, so that a retry across a restart is
seen.
"""
PRODUCERS_PER_PIECE: Final = 200
"""Encoded, or looked at, in one go: half a millisecond."""
NO_PRODUCER_ID: Final = -1
MAX_SEQUENCE: Final = 2**31 - 1
SNAPSHOT_VERSION: Final = 1

_PREFIX = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
_END_TRANSACTION_MARKER = struct.Struct(">hi")


class CorruptSnapshot(ValueError):
    """A `.snapshot` file that is not one: wrong version, checksum or length."""


class RememberedBatch(NamedTuple):
    """One batch of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """Offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        """Sequence of the batch's first record; sequences wrap."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE


BatchFields = tuple[int, int, int, int]
"""The fields of a `RememberedBatch`, in order."""


class ProducerEntry(NamedTuple):
    """One producer as of its last batch. Immutable: an append makes a new one, so that a failed write has nothing to
    undo.
    """

    producer_id: int
    epoch: int
    remembered: tuple[BatchFields, ...]
    """`batches` as plain tuples: each append leaves some, and few are checked."""
    last_seen_ms: int
    """Wall time of the last append, for expiry; never stored."""
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1

    @property
    def batches(self) -> tuple[RememberedBatch, ...]:
        """Oldest first, at most `REMEMBERED_BATCHES`; empty when only a transaction marker was seen in this epoch."""
        return tuple(map(RememberedBatch._make, self.remembered))

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record, -1 when none is known."""
        return self.remembered[-1][0] if self.remembered else -1


class SequenceRefusal(NamedTuple):
    """Why a batch may not be appended."""

    error_code: ErrorCode
    message: str


class ProducerStates:
    """The producers of one log, least recently seen first.

    Attributes:
        beginnings: of producers that are not known, where a batch of theirs found no room.
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
        """What is known of a producer, None when it is unknown."""
        return self._entries.get(producer_id)

    def publish(self, entry: ProducerEntry) -> None:
        """Take in what an append made of a producer; it becomes the most recently seen."""
        entries = self._entries
        if entries.pop(entry.producer_id, None) is None:
            self.beginnings.forget(entry.producer_id)
        entries[entry.producer_id] = entry
        if len(entries) > MAX_PRODUCERS:
            # Some at once: to find the first behind the many that have moved away from there takes 0.1 ms.
            for producer_id in list(islice(entries, 1 + MAX_PRODUCERS // 1000)):
                del entries[producer_id]

    def note_unstored(self, batches: Iterable[Buffer], now_ms: int) -> None:
        """These could not be stored and are worth sending again; what is no sound batch says nothing."""
        for batch in batches:
            try:
                header = parse_header(batch)
            except CorruptBatch:
                continue
            is_of_unknown = header.producer_id >= 0 and header.producer_id not in self._entries
            if is_of_unknown and header.size_bytes == len(batch) and crc_matches(batch, header):
                self.beginnings.note(header, now_ms)

    def replay(self, header: BatchHeader, now_ms: int, marker: bytes | None = None) -> None:
        """Take in a batch of the log's own past, unchecked. `marker` is the value of a control batch's record."""
        producer_id = header.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        known = self._entries.get(producer_id)
        if header.is_control:
            coordinator_epoch = -1
            if marker is not None and len(marker) >= _END_TRANSACTION_MARKER.size:
                coordinator_epoch = _END_TRANSACTION_MARKER.unpack_from(marker)[1]
            same_epoch = known is not None and known.epoch == header.producer_epoch
            remembered = known.remembered if known is not None and same_epoch else ()
            seen_ms = self._loaded_seen_ms(header.max_timestamp, now_ms)
            self.publish(ProducerEntry(producer_id, header.producer_epoch, remembered, seen_ms, coordinator_epoch))
            return
        entry = advance(known, header, header.base_offset, self._loaded_seen_ms(header.max_timestamp, now_ms))
        if header.is_transactional and entry.current_txn_first_offset < 0:
            entry = entry._replace(current_txn_first_offset=header.base_offset)
        self.publish(entry)

    def expire(self, now_ms: int, stamped_ms: Callable[[int], int] = int) -> Iterator[int]:
        """Forget producers that were quiet for `producer.id.expiration.ms` and have no open transaction, a piece at a
        time; how many were checked in each. Appends may come in between. `stamped_ms`: when one was seen, by the
        clock of then (clock_trust.py).
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
            CorruptSnapshot: the bytes are not a sound snapshot; the state is then as before.
        """
        entries = {}
        for producer_id, epoch, remembered, stamp_ms, coordinator_epoch, transaction in parse_snapshot(data):
            seen_ms = self._loaded_seen_ms(stamp_ms, now_ms)
            entries[producer_id] = ProducerEntry(
                producer_id, epoch, remembered, seen_ms, coordinator_epoch, transaction
            )
        self._entries = entries

    def _loaded_seen_ms(self, timestamp_ms: int, now_ms: int) -> int:
        grace_ms = min(LOADED_GRACE_MS, self.expiration_ms)
        return max(min(timestamp_ms, now_ms), now_ms - self.expiration_ms + grace_ms)


_NO_BATCHES: Final[tuple[BatchFields, ...]] = ((-1, -1, 0, -1),)
"""What stands for them in a snapshot."""


def encode_snapshot(entries: Sequence[ProducerEntry]) -> Iterator[tuple[int, bytes]]:
    """The bytes of a `.snapshot` file in pieces of `PRODUCERS_PER_PIECE` producers, each with its position in the file.
    The last one is the head, which has the checksum of the others.
    """
    count = sum(max(1, len(entry.remembered)) for entry in entries)
    crc = crc32c(_COUNT.pack(count))
    position = _PREFIX.size
    pack = _ENTRY.pack
    for first in range(0, len(entries), PRODUCERS_PER_PIECE):
        piece = b"".join([
            pack(producer_id, epoch, sequence, offset, delta, timestamp_ms, coordinator_epoch, transaction)
            for producer_id, epoch, remembered, _, coordinator_epoch, transaction in entries[
                first : first + PRODUCERS_PER_PIECE
            ]
            for sequence, offset, delta, timestamp_ms in remembered or _NO_BATCHES
        ])  # fmt: skip
        crc = crc32c(piece, crc)
        yield position, piece
        position += len(piece)
    yield 0, _PREFIX.pack(SNAPSHOT_VERSION, crc, count)


def parse_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers in a `.snapshot` file; `last_seen_ms` is the last batch's timestamp.

    Entries of one producer and epoch are its batches; an entry of another epoch, or one that does not continue where
    the one before ended, replaces what came before it.

    Raises:
        CorruptSnapshot: wrong version, checksum or length.
    """
    if len(data) < _PREFIX.size:
        raise CorruptSnapshot(f"{len(data)} bytes are fewer than a snapshot's first {_PREFIX.size}")
    version, crc, count = _PREFIX.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"version {version} is not {SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptSnapshot("the checksum does not match")
    if count < 0 or len(data) != _PREFIX.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries do not fit {len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, transaction in _ENTRY.iter_unpack(
        memoryview(data)[_PREFIX.size :]
    ):
        # (Plain tuples by their places: a start may have a million entries to go through.)
        remembered: tuple[BatchFields, ...] = ((sequence, offset, delta, timestamp),) if offset >= 0 else ()
        before = entries.pop(producer_id, None)
        if before is not None and remembered and before[1] == epoch and before[2]:
            earlier = before[2]
            if (sequence - delta) & MAX_SEQUENCE == (earlier[-1][0] + 1) & MAX_SEQUENCE:
                remembered = (*earlier[1 - REMEMBERED_BATCHES :], *remembered)
        entries[producer_id] = ProducerEntry(producer_id, epoch, remembered, timestamp, coordinator, transaction)
    return list(entries.values())


def find_duplicate(entry: ProducerEntry | None, header: BatchHeader) -> RememberedBatch | None:
    """The remembered batch that `header` repeats: same epoch, same first and last sequence."""
    if entry is None or entry.epoch != header.producer_epoch:
        return None
    last_sequence = header.last_sequence
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return batch
    return None


def check_sequence(entry: ProducerEntry | None, header: BatchHeader) -> SequenceRefusal | None:
    """Whether a batch may follow what is known of its producer, which it does not repeat; None when it may."""
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
    """The first sequence of what comes next of a producer in its epoch; -1 if unknown, or for another epoch.

    A batch that begins so is the common case, which needs neither of the two questions above, nor the batch's header as
    an object.
    """
    if entry is None:
        return -1
    _, known_epoch, remembered, _, _, _ = entry
    if epoch != known_epoch or not remembered:
        return -1
    return (remembered[-1][0] + 1) & MAX_SEQUENCE


def advance(entry: ProducerEntry | None, header: BatchHeader, base_offset: int, now_ms: int) -> ProducerEntry:
    """The producer after its batch got `base_offset`."""
    _, _, _, _, _, _, delta, _, timestamp_ms, producer_id, epoch, sequence, _ = header
    batch = (sequence + delta) & MAX_SEQUENCE, base_offset + delta, delta, timestamp_ms
    return advance_by(entry, producer_id, epoch, (batch,), now_ms)


def advance_by(
    entry: ProducerEntry | None, producer_id: int, epoch: int, batches: Sequence[BatchFields], now_ms: int
) -> ProducerEntry:
    """`advance` by some batches of that epoch, one after the other."""
    if entry is None or entry.epoch != epoch:
        transaction = -1 if entry is None else entry.current_txn_first_offset
        coordinator = -1 if entry is None else entry.coordinator_epoch
        return ProducerEntry(producer_id, epoch, tuple(batches[-REMEMBERED_BATCHES:]), now_ms, coordinator, transaction)
    _, _, remembered, _, coordinator, transaction = entry
    remembered = (*remembered, *batches)[-REMEMBERED_BATCHES:]
    # Made without the detour over its own constructor (a third of the time): one for each turn of the hot path.
    return tuple.__new__(ProducerEntry, (producer_id, epoch, remembered, now_ms, coordinator, transaction))
