"""The bytes of a `.snapshot` file: the producers of a log, in the format of Kafka's ProducerStateManager.

Version 1, big-endian:

    0  version int16 = 1
    2  crc uint32            CRC-32C of everything from byte 6 on
    6  entries int32         their number, then per remembered batch of a producer 46 bytes:
       producer_id int64 · producer_epoch int16 · last_sequence int32 · last_offset int64 · offset_delta int32
       timestamp int64 · coordinator_epoch int32 · current_txn_first_offset int64 (-1: no open transaction)

Example: producer 1000, epoch 0, one batch of 3 records at offsets 0-2, stamped 5, as `00000000000000000003.snapshot`:

    0001 99f3220f 00000001
    00000000000003e8 0000 00000002 0000000000000002 00000002 0000000000000005 ffffffff ffffffffffffffff

The file's name is the offset up to which it covers the log. Kafka writes one entry per producer, its last batch. Then a
producer with several batches in flight when the broker stopped could not learn that they are stored. So Ottla writes
all remembered batches, oldest first: Kafka keeps the last entry that it reads of a producer, which is the one that it
would have written itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.checksum import crc32c
from ottla.storage.producers.producer_entry import (
    MAX_SEQUENCE,
    NO_TRANSACTION,
    REMEMBERED_BATCHES,
    BatchFields,
    ProducerEntry,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PRODUCERS_PER_PIECE: Final = 200
"""The number that is encoded, or checked, in one step: half a millisecond."""
SNAPSHOT_VERSION: Final = 1

_PREFIX = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6


class CorruptSnapshot(ValueError):
    """An invalid `.snapshot` file: wrong version, checksum or length."""


def encode_snapshot(entries: Sequence[ProducerEntry]) -> Iterator[tuple[int, bytes]]:
    """The bytes of a `.snapshot` file in pieces of `PRODUCERS_PER_PIECE` producers, each with its position in the file.
    The last one is the head, with the checksum of the other pieces.
    """
    count = sum(1 + len(entry.earlier) for entry in entries)
    crc = crc32c(_COUNT.pack(count))
    position = _PREFIX.size
    pack = _ENTRY.pack
    for first in range(0, len(entries), PRODUCERS_PER_PIECE):
        piece = b"".join([
            pack(producer_id, epoch, sequence, offset, delta, timestamp_ms, *transaction)
            for producer_id, epoch, _, transaction, earlier, *newest in entries[first : first + PRODUCERS_PER_PIECE]
            for sequence, offset, delta, timestamp_ms in (*earlier, newest)
        ])  # fmt: skip
        crc = crc32c(piece, crc)
        yield position, piece
        position += len(piece)
    yield 0, _PREFIX.pack(SNAPSHOT_VERSION, crc, count)


def parse_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers in a `.snapshot` file; `last_seen_ms` is the last batch's timestamp.

    Entries of one producer and epoch are its batches; an entry of another epoch, or one that does not continue where
    the one before ended, replaces the earlier ones.

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
        batch = (sequence, offset, delta, timestamp)
        before = entries.pop(producer_id, None)
        earlier: tuple[BatchFields, ...] = ()
        if (
            before is not None
            and offset >= 0
            and before.epoch == epoch
            and before.last_offset >= 0
            and (sequence - delta) & MAX_SEQUENCE == (before.last_sequence + 1) & MAX_SEQUENCE
        ):
            earlier = (*before.earlier, before[5:])[1 - REMEMBERED_BATCHES :]
        is_known = coordinator != -1 or transaction != -1
        fields = (producer_id, epoch, timestamp, (coordinator, transaction) if is_known else NO_TRANSACTION, earlier)
        entries[producer_id] = ProducerEntry(*fields, *batch)
    return list(entries.values())
