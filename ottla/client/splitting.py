"""Splitting of a batch that the topic refuses as too large, as in Kafka's producer (KIP-126).

The two parts hold the records in order, each with about half of the bytes, and take the batch's place in its queue.
Halving continues while a part is refused; a single record that is too large is given up.
"""

from __future__ import annotations

from ottla.client.accumulator import Batch
from ottla.protocol.records.batch import HEADER_BYTES, decode_batch


def split(batch: Batch, now: float) -> list[Batch]:
    """Return two new batches with the records of a closed one, each shorter and due at the same time; none for a batch
    of one record.
    """
    if batch.record_count == 1:
        return []
    records = decode_batch(memoryview(batch.builder.seal()), check_crc=False)
    half_bytes = len(batch.builder.body) / 2
    parts: list[Batch] = []
    for place, record in enumerate(records):
        is_half = len(parts) == 1 and len(parts[0].builder.body) >= half_bytes
        if not parts or is_half or (len(parts) == 1 and place == len(records) - 1):
            part = Batch(batch.queue, now, 0.0, batch.deadline - now)
            part.opened_at = batch.opened_at
            part.serial = (*batch.serial, len(parts))
            part.is_closed = True
            parts.append(part)
        builder = parts[-1].builder
        parts[-1].record_count = 1 + builder.append(record.timestamp, record.key, record.value, record.headers)
    for part in parts:
        part.reserved_bytes = len(part.builder.body)
    if batch.deliveries is not None:
        first = parts[0].record_count
        parts[0].deliveries, parts[1].deliveries = batch.deliveries[:first], batch.deliveries[first:]
    return parts


def size_after(batch: Batch) -> int:
    """Return the size in bytes up to which the next batches of the same partition should grow."""
    return HEADER_BYTES + len(batch.builder.body) // 2
