"""Batches of transactions and their markers, put into a partition as the broker puts them."""

from __future__ import annotations

from kit.logs import NOW_MS

from ottla.broker.partitions.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.control import ControlType
from ottla.protocol.records.record import Record
from ottla.storage.log.append import AppendEntry, AppendResult

PRODUCE_VERSION = 9


class Results:
    """Waits for batches, and for markers."""

    def __init__(self) -> None:
        self.stored: list[AppendResult] = []
        self.ended: list[BaseException | None] = []

    def appended(self, index: int, result: AppendResult) -> None:
        self.stored.append(result)


def transactional_batch(
    producer_id: int, sequence: int, count: int = 1, *, value: bytes = b"v", epoch: int = 0, key: bytes = b"k"
) -> bytearray:
    """Records of a transaction."""
    return encode_batch(
        [Record(number, NOW_MS, key, value, ()) for number in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )


def put_transactional(
    partition: Partition, producer_id: int, count: int = 1, *, value: bytes = b"v", key: bytes = b"k"
) -> None:
    """Records of a transaction of `producer_id`, which opens it if none is."""
    partition.settle()
    known = partition.log.producers.get(producer_id)
    sequence = 0 if known is None else known.last_sequence + 1
    results = Results()
    batch = transactional_batch(producer_id, sequence, count, value=value, key=key)
    partition.gather(AppendEntry(memoryview(batch), PRODUCE_VERSION, is_transactional=True), results, 0)
    partition.settle()
    assert [one.error_code for one in results.stored] == [ErrorCode.NONE]


def end_transaction(partition: Partition, producer_id: int, kind: ControlType = ControlType.ABORT) -> Results:
    """The marker that ends it."""
    results = Results()
    is_commit = kind is ControlType.COMMIT
    assert partition.end_transaction(producer_id, 0, is_commit, 0, results.ended.append, now_ms=NOW_MS) >= 0
    return results
