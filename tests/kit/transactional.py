"""Batches of transactions and their markers, put into a partition as a transaction coordinator would put them."""

from __future__ import annotations

from kit.logs import NOW_MS

from ottla.broker.partitions.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    encode_control_key,
    encode_end_transaction_marker,
)
from ottla.protocol.records.record import Record


def put_transactional(partition: Partition, producer_id: int, count: int = 1, *, value: bytes = b"v") -> None:
    """Records of a transaction of `producer_id`, which opens it if none is."""
    offset = _next_offset(partition)
    records = [Record(offset + number, NOW_MS, b"k", value, ()) for number in range(count)]
    _put(partition, records, producer_id)


def end_transaction(partition: Partition, producer_id: int, kind: ControlType = ControlType.ABORT) -> None:
    """The marker that ends it."""
    value = encode_end_transaction_marker(EndTransactionMarker(0))
    marker = Record(_next_offset(partition), NOW_MS, encode_control_key(kind), value, ())
    _put(partition, [marker], producer_id, is_control=True)


def _next_offset(partition: Partition) -> int:
    partition.settle()
    return partition.log.log_end_offset


def _put(partition: Partition, records: list[Record], producer_id: int, *, is_control: bool = False) -> None:
    batch = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=records[0].offset,
        leader_epoch=partition.log.leader_epoch,
        is_transactional=True,
        is_control=is_control,
    )
    assert partition.append_internal(batch, NOW_MS).error_code is ErrorCode.NONE
