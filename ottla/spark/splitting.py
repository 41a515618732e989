"""Splits encoded records that the topic refuses as one batch, as Kafka's producer does (KIP-126).

The pieces hold the records in their order and keep keys, values, headers and times. Records are decoded and encoded
one by one here: that is slow, and happens to the few batches that are refused before the next ones are made smaller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.arrow.encoder import Body
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.records.record import decode_records, encode_record

if TYPE_CHECKING:
    from collections.abc import Sequence


def smaller_batch_bytes(refused: Body) -> int:
    """Return how large a batch of the topic may be after this one was refused: half, as in Kafka's producer."""
    return HEADER_BYTES + len(refused.records) // 2


def split(body: Body, batch_bytes: int) -> list[Body]:
    """Return the records as batches of at most `batch_bytes` with their headers, if a record alone is not larger.

    These are two or more where `batch_bytes` is at most `smaller_batch_bytes`, and none for a single record.
    """
    if body.record_count == 1:
        return []
    base_timestamp = 0 if body.timestamps_ms is None else body.timestamps_ms[0]
    rows = decode_records(
        bytes(body.records),
        body.record_count,
        base_offset=0,
        base_timestamp=base_timestamp,
        last_offset_delta=body.record_count - 1,
    )
    pieces: list[Body] = []
    records = bytearray()
    times: list[int] = []
    for _, timestamp, key, value, headers in rows:
        encoded = encode_record(timestamp - (times or [timestamp])[0], len(times), key, value, headers)
        if times and HEADER_BYTES + len(records) + len(encoded) > batch_bytes:
            pieces.append(_body(body, records, times))
            records, times = bytearray(), []
            encoded = encode_record(0, 0, key, value, headers)
        records += encoded
        times.append(timestamp)
    pieces.append(_body(body, records, times))
    return pieces


def _body(whole: Body, records: bytearray, times: Sequence[int]) -> Body:
    span = None if whole.timestamps_ms is None else (times[0], max(times))
    return Body(whole.partition, memoryview(records), len(times), span)
