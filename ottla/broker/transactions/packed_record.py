"""A fast encoder for the record of a transaction, of which each transaction writes three. Its bytes are the same as
those of the messages' encoder for `to_record` (layout: `protocol/stored/transaction.py`), in a tenth of the time.

Only in the form of `transaction.version` 1 and later. Records that cannot be packed are left to the encoder, which
raises the error.

`packed_in_batch` packs a record in its form within a batch, with all lengths before it, if it looks like the records of
most transactions. Parts that do not change between the transactions of an id are cached.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ottla.broker.transactions.state import NO_PRODUCER_ID
from ottla.protocol.primitives import encode_unsigned_varint
from ottla.protocol.records.record import encode_varint
from ottla.protocol.stored.transaction import KEY_TYPE, TransactionStatus

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.coordination.records import EncodedRecord
    from ottla.broker.transactions.state import TopicPartition, Transaction

_VERSION: Final = 1
_KEY = struct.Struct(">hh")
_HEAD = struct.Struct(">hqhib")
_INDEX = struct.Struct(">i")
_TIMES = struct.Struct(">qq")
_ID_TAG = struct.Struct(">BBq")
_VERSION_TAG = struct.Struct(">BBh")
_USUAL_TAIL = struct.Struct(">qqBBBqBBh")
"""The two times, and two tagged fields."""
_NULL = b"\x00"
_NO_TOPICS = b"\x01"
_NO_TAGS = b"\x00"
_NO_ATTRIBUTES_AND_TIME = b"\x00\x00"
_NO_HEADERS = b"\x00"


MOST_PLACES: Final = 64
"""Up to this many records in a batch, the number of a record takes one byte."""
_MOST_ID_CHARACTERS: Final = 255
"""Parts with a longer id are not cached."""
_PLACES: Final = [encode_varint(place) for place in range(MOST_PLACES)]


def packed_in_batch(transaction: Transaction, place: int) -> bytes | None:
    """The complete record within a batch, at this place (from 0) and with the time of the first record; None if
    `packed_record` has to encode it.
    """
    (
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        status,
        partitions,
        start_ms,
        update_ms,
        previous_id,
        next_id,
        _,
        client_version,
    ) = transaction
    if (
        next_id != NO_PRODUCER_ID
        or previous_id == NO_PRODUCER_ID
        or not client_version
        or place >= MOST_PLACES
        or len(partitions) > 1
        or status is TransactionStatus.EMPTY
        or len(transactional_id) > _MOST_ID_CHARACTERS
    ):
        return None
    try:
        front, key, topics = _unchanging(transactional_id, partitions)
        head = _HEAD.pack(_VERSION, producer_id, epoch, timeout_ms, status)
        tail = _USUAL_TAIL.pack(update_ms, start_ms, 2, 0, 8, previous_id, 2, 2, client_version)
    except (struct.error, UnicodeEncodeError):
        return None
    return b"".join((front, _PLACES[place], key, head, topics, tail, _NO_HEADERS))


@lru_cache(maxsize=4096)
def _unchanging(transactional_id: str, partitions: frozenset[TopicPartition]) -> tuple[bytes, bytes, bytes]:
    """The bytes before the place, between the place and the head of the value, and after the head."""
    name = transactional_id.encode()
    key = _KEY.pack(KEY_TYPE, len(name)) + name
    topics = _topics(partitions)
    value_bytes = _HEAD.size + len(topics) + _USUAL_TAIL.size
    behind_place = encode_varint(len(key)) + key + encode_varint(value_bytes)
    size_bytes = len(_NO_ATTRIBUTES_AND_TIME) + 1 + len(behind_place) + value_bytes + len(_NO_HEADERS)
    return encode_varint(size_bytes) + _NO_ATTRIBUTES_AND_TIME, behind_place, topics


def packed_record(transaction: Transaction) -> EncodedRecord | None:
    """The key and the value of its record; None if they are invalid, and the encoder has to raise the error."""
    (
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        status,
        partitions,
        start_ms,
        update_ms,
        previous_id,
        next_id,
        _,
        client_version,
    ) = transaction
    try:
        name = transactional_id.encode()
        key = _KEY.pack(KEY_TYPE, len(name)) + name
        head = _HEAD.pack(_VERSION, producer_id, epoch, timeout_ms, status)
        topics = _NULL if status is TransactionStatus.EMPTY else _topics(partitions)
        if next_id == NO_PRODUCER_ID != previous_id and client_version:
            tail = _USUAL_TAIL.pack(update_ms, start_ms, 2, 0, 8, previous_id, 2, 2, client_version)
        else:
            tail = _TIMES.pack(update_ms, start_ms) + _tags(previous_id, next_id, client_version)
        return key, head + topics + tail
    except (struct.error, UnicodeEncodeError):
        return None


def _topics(partitions: Collection[TopicPartition]) -> bytes:
    """The array of topics with their partitions."""
    if not partitions:
        return _NO_TOPICS
    if len(partitions) == 1:
        ((topic, index),) = partitions
        return _one_partition(topic, index)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return encode_unsigned_varint(len(topics) + 1) + b"".join(map(_topic, topics, topics.values()))


@lru_cache(maxsize=4096)
def _one_partition(topic: str, index: int) -> bytes:
    return b"\x02" + _topic(topic, [index])


def _topic(topic: str, indexes: list[int]) -> bytes:
    name = topic.encode()
    packed = b"".join(map(_INDEX.pack, indexes))
    return b"".join(
        (encode_unsigned_varint(len(name) + 1), name, encode_unsigned_varint(len(indexes) + 1), packed, _NO_TAGS)
    )


def _tags(previous_id: int, next_id: int, client_version: int) -> bytes:
    """The tagged fields, without those that have their default."""
    tags = []
    if previous_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG.pack(0, 8, previous_id))
    if next_id != NO_PRODUCER_ID:
        tags.append(_ID_TAG.pack(1, 8, next_id))
    if client_version:
        tags.append(_VERSION_TAG.pack(2, 2, client_version))
    return encode_unsigned_varint(len(tags)) + b"".join(tags)
