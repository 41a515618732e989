"""Group records to and from the batches of `__consumer_offsets`.

A step of a machine becomes one batch, so that a crash keeps all of it or nothing; more than one only where the records
of a step take more than `max.message.bytes` (thousands of tombstones, the assignment of a very large group), which
Kafka refuses. What a key and a value are made of says `ottla.protocol.stored.group`. Batches carry no producer; the
records' time is the time of the step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.stored.group import encode_group_key, encode_group_value

if TYPE_CHECKING:
    from ottla.broker.groups.effects import GroupRecord
    from ottla.protocol.records.compression import Compression


class RecordTooLarge(Exception):
    """One record alone is larger than the `max.message.bytes` of its topic."""


def encode_batches(
    records: Iterable[GroupRecord], *, now_ms: int, max_bytes: int, compression: Compression
) -> list[bytearray]:
    """The batches that hold `records`, in their order. Raises RecordTooLarge, and then nothing is to be written.

    The limit counts before compression, so that what is written never depends on how well it compresses.
    """
    batches: list[bytearray] = []
    builder = BatchBuilder()
    for key, value in records:
        key_bytes = encode_group_key(key)
        value_bytes = None if value is None else encode_group_value(value)
        most = builder.upper_bound(key_bytes, value_bytes)
        if builder.record_count and builder.size_bytes + most > max_bytes:
            batches.append(builder.seal(compression=compression))
            builder = BatchBuilder()
        builder.append(now_ms, key_bytes, value_bytes)
        if builder.size_bytes > max_bytes:
            raise RecordTooLarge(
                f"{builder.size_bytes} bytes ({type(key).__name__}) are more than max.message.bytes of its topic"
            )
    if builder.record_count:
        batches.append(builder.seal(compression=compression))
    return batches
