"""A coordinator's records, encoded to and decoded from the batches of its internal topic.

A step of a state machine is in one batch, so that a crash keeps all of it or nothing. It is in more than one only where
its records take more than `max.message.bytes` (thousands of tombstones, the assignment of a very large group), which
Kafka refuses. Steps of one turn share a batch (`shard_log.py`). Batches carry no producer, unless they are part of a
transaction. The records' time is that of the step, or of the batch's first step.

Source: Kafka's `CoordinatorRecordSerde`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.compression import Compression

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord
    from ottla.protocol.message import Struct


EncodedRecord: TypeAlias = "tuple[bytes, bytes | None]"
"""The key and the value of a record, as they are in the log; a value of None is a tombstone."""


class RecordTooLarge(Exception):
    """A single record is larger than the `max.message.bytes` of its topic."""


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction a batch is written, and the sequence of its first record in the log."""

    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCodec:
    """Encodes and decodes a coordinator's records. A key begins with two bytes that name its type.

    `decode` raises MalformedMessage, and returns an `UnknownRecord` as the key of a record whose type it does not know;
    `encode_key` and `encode_value` raise UnencodableMessage.
    """

    encode_key: Callable[[Struct], bytes]
    encode_value: Callable[[Struct], bytes]
    decode: Callable[[bytes, bytes | None], tuple[Struct, Struct | None]]
    newest_only: Mapping[bytes, bytes] = field(default_factory=dict)
    """The types of keys, as their two bytes, of which a load uses only the newest record, each with the type that it is
    equal to: its own, or the one that replaced it. Their order among other records must not matter."""
    compression: Compression = Compression.NONE


def encode_records(records: Iterable[CoordinatorRecord], codec: RecordCodec) -> list[EncodedRecord]:
    """The bytes of records. Raises UnencodableMessage."""
    encode_key, encode_value = codec.encode_key, codec.encode_value
    return [(encode_key(key), None if value is None else encode_value(value)) for key, value in records]


def encode_batches(
    records: Iterable[EncodedRecord], *, now_ms: int, max_bytes: int, compression: Compression
) -> list[bytearray]:
    """The batches that hold `records`, in their order.

    The limit applies before compression, so that what is written never depends on how well it compresses.

    Raises RecordTooLarge, and then nothing may be written.
    """
    batches: list[bytearray] = []
    builder = BatchBuilder()
    for key, value in records:
        most = builder.upper_bound(key, value)
        if builder.record_count and builder.size_bytes + most > max_bytes:
            batches.append(builder.seal(compression=compression))
            builder = BatchBuilder()
        builder.append(now_ms, key, value)
        if builder.size_bytes > max_bytes:
            raise RecordTooLarge(
                f"{builder.size_bytes} bytes (a key of {len(key)}) are more than the {max_bytes} that its topic takes"
            )
    if builder.record_count:
        batches.append(builder.seal(compression=compression))
    return batches


def encode_transactional_batch(
    records: Iterable[CoordinatorRecord], codec: RecordCodec, producer: TransactionalProducer, *, now_ms: int
) -> bytearray:
    """One batch of a producer's transaction. Raises UnencodableMessage."""
    builder = BatchBuilder()
    for key, value in encode_records(records, codec):
        builder.append(now_ms, key, value)
    return builder.seal(
        compression=codec.compression,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=producer.sequence,
        is_transactional=True,
    )
