"""The records of `__transaction_state`: what each transactional id is, and the transaction that it is in.

A key begins with its type, which is 0, a value with the version that it is written in; what follows is the message.
Transactional id ``t`` with producer id 1000, epoch 0 and a timeout of 60 s, Ongoing since time 1 with partition 0 of
topic ``x``::

    00 00  00 01 74                                                              type 0: "t"
    00 00  00 00 00 00 00 00 03 e8  00 00  00 00 ea 60  01                       version 0: 1000, 0, 60000, Ongoing
           00 00 00 01  00 01 78  00 00 00 01  00 00 00 00                       one topic: "x", one partition: 0
           00 00 00 00 00 00 00 01  00 00 00 00 00 00 00 01                      updated at 1, started at 1

Kafka writes version 0 while `transaction.version` is 0, and version 1 from 1 on; either reads both. A record without a
value (a tombstone) forgets the transactional id. Bytes after a message are ignored, as in Kafka.

Source: Kafka's `TransactionLog` and the schemas of release 4.1.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, Struct, decode, encode, tagged
from ottla.protocol.stored.unknown import UnknownRecord
from ottla.protocol.types import Buffer, Int8, Int16, Int32, Int64, String

KEY_TYPE = 0
"""What the keys begin with; the only one that there is."""

_PREFIX = struct.Struct(">h")


class TransactionStatus(IntEnum):
    """The states of a transactional id, by the numbers that stand in its records (Kafka's `TransactionState`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class TransactionLogKey(Message, key=KEY_TYPE, versions="0"):
    """A transactional id."""

    transactional_id: String


class TransactionLogValue(Message, key=KEY_TYPE, versions="0-1", flexible="1+"):
    """Its producer and its transaction; times are in ms, `transaction_status` is a `TransactionStatus`.

    `transaction_partitions` is null when Empty. With `client_transaction_version` 2 each transaction has an epoch of
    its own: while one is prepared, `next_producer_id` is what its producer gets, and afterwards `previous_producer_id`
    is what it had, where the epochs of that one were exhausted (KIP-890). Kafka 4.1 writes neither of the two, and
    nobody writes `next_producer_epoch` yet (KIP-939).
    """

    class PartitionsSchema(Struct):
        """A topic's partitions."""

        topic: String
        partition_ids: list[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, "1+", default=-1)
    next_producer_id: Int64 = tagged(1, "1+", default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = tagged(3, "1+", default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, "1+", default=0)


def encode_transaction_key(key: Struct) -> bytes:
    """The key of a record of `__transaction_state`.

    Raises TypeError for a struct that is no such key, and UnencodableMessage.
    """
    if not isinstance(key, TransactionLogKey):
        raise TypeError(f"{type(key).__name__} is not a key of __transaction_state")
    return _PREFIX.pack(KEY_TYPE) + encode(key, 0)


def encode_transaction_value(value: Struct, version: int) -> bytes:
    """The value of a record of `__transaction_state`: version 0 where `transaction.version` is 0, otherwise 1.

    Raises TypeError for a struct that is no such value, UnencodableMessage (also for what version 0 cannot say), and
    ValueError for a version that there is not.
    """
    if not isinstance(value, TransactionLogValue):
        raise TypeError(f"{type(value).__name__} is not a value of __transaction_state")
    return _PREFIX.pack(version) + encode(value, version)


def decode_transaction_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None]:
    """The key and the value of a record of `__transaction_state`; no value for a tombstone.

    A record whose key is of a newer type comes as an `UnknownRecord` and no value.
    Raises MalformedMessage for broken bytes, and for a version of a value or a status that is not known.
    """
    key_type = _prefix(key, "key")
    if key_type != KEY_TYPE:
        whole = None if value is None else bytes(value)
        return UnknownRecord(record_type=key_type, key=bytes(key), value=whole), None
    decoded_key = decode(TransactionLogKey, key, 0, _PREFIX.size)
    if value is None:
        return decoded_key, None
    version = _prefix(value, "value")
    if version not in TransactionLogValue.message_versions:
        raise MalformedMessage(f"TransactionLogValue of unknown version {version}")
    decoded_value = decode(TransactionLogValue, value, version, _PREFIX.size)
    if not 0 <= decoded_value.transaction_status < len(TransactionStatus):
        raise MalformedMessage(f"TransactionLogValue with unknown status {decoded_value.transaction_status}")
    return decoded_key, decoded_value


def _prefix(data: Buffer, what: str) -> int:
    """The type in front of a key, the version in front of a value."""
    if len(data) < _PREFIX.size:
        raise MalformedMessage(f"a {what} of {len(data)} bytes in __transaction_state says neither type nor version")
    number: int = _PREFIX.unpack_from(data)[0]
    return number
