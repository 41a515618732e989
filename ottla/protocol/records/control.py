"""Control records: records that brokers write for brokers, in batches with the control bit.

The key has the type: `version` int16, `type` int16, big-endian. Worked example: `00 00 00 02` is a LeaderChange of
version 0. The value of a transaction marker is `version` int16, `coordinator_epoch` int32; the values of the other
types are Kafka messages, declared in `ottla.protocol.stored`. Consumers skip control records, including unknown types.

The marker that ends a transaction is a batch of one such record. The batch names the producer and has both bits set,
transactional and control. COMMIT by coordinator epoch 9 for producer 1000 with epoch 5, at offset 7 and time 1::

    00 00 00 00 00 00 00 07  00 00 00 42  ff ff ff ff  02  75 a5 b2 80  00 30   offset 7, no leader epoch, crc, 0x30
    00 00 00 00  00 00 00 00 00 00 00 01  00 00 00 00 00 00 00 01              one record, at time 1
    00 00 00 00 00 00 03 e8  00 05  ff ff ff ff  00 00 00 01                   producer 1000, 5, no sequence
    20  00 00 00  08  00 00 00 01  0c  00 00 00 00 00 09  00                   key: COMMIT; value: epoch 9

Source: Kafka's ControlRecordType, EndTransactionMarker and MemoryRecords.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.records.batch import (
    CONTROL_BIT,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    decode_batch,
    parse_header,
    set_crc,
)
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.types import Buffer

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")
_MARKER_BATCH = struct.Struct(">qiibIhiqqqhii BBBB Bhh BhiB")
"""A whole marker, in which all lengths are fixed: the batch's header; the record's length, attributes and deltas; its
key; its value, and the header count 0. (Five times as fast as encoding a record and sealing its batch, and a
transaction has a marker in each partition.)
"""


class ControlType(IntEnum):
    """The kinds of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """The value of an ABORT or COMMIT record: the epoch of the transaction coordinator that wrote it."""

    coordinator_epoch: int


class TransactionEnd(NamedTuple):
    """The content of a marker about the transaction that it ends; the batch's header names the producer."""

    is_commit: bool
    coordinator_epoch: int


def encode_control_key(control_type: ControlType, version: int = 0) -> bytes:
    """Return the four bytes of a control record's key."""
    return _KEY.pack(version, control_type)


def decode_control_key(key: bytes | None) -> ControlType | None:
    """Return the type in a control record's key, None for a type of a newer Kafka.

    Raises CorruptBatch when the key is absent, too short or of a negative version. Bytes after the first four are
    fields of a newer version and are ignored, as in Kafka.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptBatch(f"a control record's key has {0 if key is None else len(key)} bytes, it needs {_KEY.size}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"a control record's key has version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return None


def encode_end_transaction_marker(marker: EndTransactionMarker) -> bytes:
    """Return the value of an ABORT or COMMIT record, version 0."""
    return _MARKER.pack(0, marker.coordinator_epoch)


def decode_end_transaction_marker(value: bytes | None) -> EndTransactionMarker:
    """Return the marker in the value of an ABORT or COMMIT record; raises CorruptBatch when it is broken."""
    if value is None or len(value) < _MARKER.size:
        raise CorruptBatch(
            f"a transaction marker has {0 if value is None else len(value)} bytes, it needs {_MARKER.size}"
        )
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptBatch(f"a transaction marker has version {version}")
    return EndTransactionMarker(coordinator_epoch)


def end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The batch that ends a producer's transaction in a partition, byte for byte Kafka's."""
    batch = bytearray(
        _MARKER_BATCH.pack(
            *(base_offset, _MARKER_BATCH.size - LENGTH_PREFIX_BYTES, leader_epoch, MAGIC, 0),
            *(TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp_ms, timestamp_ms),
            *(producer_id, producer_epoch, -1, 1),
            *(0x20, 0, 0, 0),
            *(0x08, 0, ControlType.COMMIT if is_commit else ControlType.ABORT),
            *(0x0C, 0, coordinator_epoch, 0),
        )
    )
    set_crc(batch)
    return batch


def decode_transaction_end(batch: Buffer) -> TransactionEnd | None:
    """The marker in a batch; None for a batch of records, or of another type of control record.

    Only the first record of a control batch counts, as in Kafka. Raises CorruptBatch for broken bytes.
    """
    if not parse_header(batch).is_control:
        return None
    records = decode_batch(batch)
    kind = decode_control_key(records[0].key) if records else None
    if kind is not ControlType.COMMIT and kind is not ControlType.ABORT:
        return None
    return TransactionEnd(kind is ControlType.COMMIT, decode_end_transaction_marker(records[0].value).coordinator_epoch)
