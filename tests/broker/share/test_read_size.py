"""How much of a log a ShareFetch reads: what its records need, and not all that its limit of bytes allows."""

from __future__ import annotations

from typing import Any

import pytest
from kit.nodes import partition_of
from kit.share_nodes import Reader, ShareNode, acquired

from ottla.broker.partitions.partition import Partition
from ottla.broker.share.deliveries import Span
from ottla.broker.share.read_size import FIRST_BYTES, GUESSED_RECORD_BYTES, ReadSize
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.storage.segment.slice import LogSlice

ACCEPT = AcknowledgeType.ACCEPT
MANY = 50 << 20


@pytest.fixture
def broker() -> ShareNode:
    return ShareNode()


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each read of a partition has brought."""
    found: list[int] = []
    read = Partition.read

    def note(partition: Partition, *arguments: Any, **options: Any) -> LogSlice:
        piece = read(partition, *arguments, **options)
        found.append(piece.length)
        return piece

    monkeypatch.setattr(Partition, "read", note)
    return found


def records(response: Any, partition: int = 0) -> int:
    return sum(last - first + 1 for first, last, _ in acquired(response, partition))


def test_nothing_is_known_of_a_new_share_partition() -> None:
    assert ReadSize().bytes_for(1_000_000) == FIRST_BYTES
    assert ReadSize().records_in(10 * GUESSED_RECORD_BYTES) == 10


def test_the_batches_that_were_read_say_how_much_the_next_records_need() -> None:
    size = ReadSize()
    size.note([(Span(0, 9), 0, 50_000), (Span(10, 19), 50_000, 150_000)])
    assert size.bytes_for(100) == 100 * 7_500 + 100_000, "and the rest of the last batch"
    assert size.bytes_for(1) == 7_500 + 100_000
    assert size.records_in(75_000) == 10
    size.note([])
    assert size.records_in(75_000) == 10, "nothing was read"
    size.note([(Span(20, 29), 0, 100)])
    assert size.bytes_for(1) == FIRST_BYTES


def test_a_fetch_reads_what_its_records_need(broker: ShareNode, read_bytes: list[int]) -> None:
    broker.produce(*[10] * 400, value=bytes(1_000))
    log_bytes = partition_of(broker.node, "t").log.size_bytes
    reader = Reader(broker)
    assert records(reader.fetch(max_records=10, max_bytes=MANY)) == 10
    assert records(reader.fetch((0, 9, [ACCEPT]), max_records=300, max_bytes=MANY)) == 300
    assert read_bytes[0] <= FIRST_BYTES
    assert log_bytes * 300 / 4_000 < read_bytes[-1] < log_bytes * 350 / 4_000


def test_a_fetch_reads_as_much_as_it_must_have(broker: ShareNode, read_bytes: list[int]) -> None:
    broker.produce(*[10] * 400, value=bytes(1_000))
    reader = Reader(broker)
    pending = reader.begin_fetch(max_records=10, max_bytes=MANY, min_bytes=3_000_000, max_wait_ms=500)
    assert records(reader.answer(pending)) == 10
    assert max(read_bytes) >= 3_000_000
    assert read_bytes[0] <= FIRST_BYTES


def test_partitions_that_the_records_of_others_leave_no_room_for_are_not_read(
    broker: ShareNode, read_bytes: list[int]
) -> None:
    broker.produce(100)
    broker.produce(100, partition=1)
    reader = Reader(broker, partitions=(0, 1))
    for _ in range(2):
        reader.fetch(max_records=10)
    broker.produce(100)
    broker.produce(100, partition=1)
    read_bytes.clear()
    response = reader.fetch(max_records=10)
    assert sorted(records(response, partition) for partition in (0, 1)) == [0, 100]
    assert len(read_bytes) == 1
