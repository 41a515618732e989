"""The records of `__transaction_state`: the state of each transactional id and of its transaction.

A key begins with its type, which is 0, a value with its version; the message follows. Transactional id ``t`` with
producer id 1000, epoch 0 and a timeout of 60 s, Ongoing since time 1 with partition 0 of topic ``x``::

    00 00  00 01 74                                                              type 0: "t"
    00 00  00 00 00 00 00 00 03 e8  00 00  00 00 ea 60  01                       version 0: 1000, 0, 60000, Ongoing
           00 00 00 01  00 01 78  00 00 00 01  00 00 00 00                       one topic: "x", one partition: 0
           00 00 00 00 00 00 00 01  00 00 00 00 00 00 00 01                      updated at 1, started at 1

Kafka writes version 0 while `transaction.version` is 0, otherwise version 1; both are always read. A record without a
value (a tombstone) deletes the transactional id. Bytes after a message are ignored, as in Kafka.

Source: Kafka's `TransactionLog` and the schemas of release 4.1.
"""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, Struct, tagged
from ottla.protocol.stored.versioned import decode_versioned_record, encode_numbered
from ottla.protocol.types import Buffer, Int8, Int16, Int32, Int64, String

KEY_TYPE = 0
"""The first field of a key; there is only this type."""


class TransactionStatus(IntEnum):
    """The states of a transactional id, with the numbers in its records (Kafka's `TransactionState`)."""

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

    `transaction_partitions` is null when Empty. With `client_transaction_version` 2 each transaction has its own epoch.
    If the epochs of a producer id are exhausted (KIP-890), `next_producer_id` is the new id while the transaction is
    prepared, and `previous_producer_id` the old one afterwards. Kafka 4.1 writes neither of the two, and no release
    writes `next_producer_epoch` yet (KIP-939).
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


_RECORDS = {KEY_TYPE: (TransactionLogKey, TransactionLogValue)}


def encode_transaction_key(key: Struct) -> bytes:
    """The key of a record of `__transaction_state`.

    Raises TypeError for a struct that is not such a key, and UnencodableMessage.
    """
    if not isinstance(key, TransactionLogKey):
        raise TypeError(f"{type(key).__name__} is not a key of __transaction_state")
    return encode_numbered(KEY_TYPE, key, 0)


def encode_transaction_value(value: Struct, version: int) -> bytes:
    """The value of a record of `__transaction_state`: version 0 if `transaction.version` is 0, otherwise 1.

    Raises TypeError for a struct that is not such a value, UnencodableMessage (also for a field that version 0 lacks),
    and ValueError for an unknown version.
    """
    if not isinstance(value, TransactionLogValue):
        raise TypeError(f"{type(value).__name__} is not a value of __transaction_state")
    return encode_numbered(version, value, version)


def decode_transaction_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None]:
    """The key and the value of a record of `__transaction_state`; no value for a tombstone.

    A record with a key of a newer type is returned as an `UnknownRecord` and no value.
    Raises MalformedMessage for broken bytes, and for an unknown status or version of a value.
    """
    decoded_key, decoded_value = decode_versioned_record("__transaction_state", _RECORDS, key, value)
    if decoded_value is not None and not 0 <= decoded_value.transaction_status < len(TransactionStatus):
        raise MalformedMessage(f"TransactionLogValue with unknown status {decoded_value.transaction_status}")
    return decoded_key, decoded_value
