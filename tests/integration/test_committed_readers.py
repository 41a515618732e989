"""Readers of committed records agree: confluent-kafka and the Spark reader over the wire, kafka-python over our files.

A node in this process writes random transactions, committed, aborted and left open, with records of nobody's
transaction between them, over several segments; then a broker process serves its directory.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.record import MemoryRecords
from kit.broker import BrokerProcess
from kit.topics import create
from kit.transaction_life import TransactionalProducer, TransactionLife

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.spark.cluster import Cluster
from ottla.spark.columns import arrow_schema_of
from ottla.spark.options import read_options
from ottla.spark.planner import plan
from ottla.spark.reading import read_range

STEPS = 150
ENTRY = struct.Struct(">hqqqq")
"""Of a `.txnindex`: version, producer id, first offset, last offset, last stable offset."""


class RealLife(TransactionLife):
    """A node on real files; `committed` is not asked of it."""

    def __init__(self, directory: Path) -> None:
        values = {"log.dirs": str(directory), "ottla.acks.all": "page-cache", "ottla.http.listener": ""}
        self.node = Node(BrokerConfig.of(values))
        self.node.start()
        self.clock = self.node.services.clock  # type: ignore[assignment]
        configs = [("segment.bytes", "4096")]
        create(self.node, NewTopic("t", partitions=1, replication_factor=1, configs=configs))


def write(directory: Path, seed: int) -> list[bytes]:
    """Random transactions on partition 0 of `t`; the values that a reader of committed records gets."""
    chance = random.Random(seed)
    life = RealLife(directory)
    producers = [TransactionalProducer(life, f"tx-{number}", version=chance.choice((0, 2))) for number in range(5)]
    for producer in producers:
        producer.init()
    written: list[tuple[bytes, TransactionalProducer | None]] = []
    committed: set[bytes] = set()
    pending: dict[TransactionalProducer, list[bytes]] = {producer: [] for producer in producers}
    for number in range(STEPS):
        value = b"%d %d" % (seed, number)
        producer = chance.choice(producers)
        match chance.randrange(6):
            case 0 if pending[producer]:
                commit = chance.random() < 0.6
                producer.end(commit=commit)
                committed.update(pending[producer] if commit else ())
                pending[producer] = []
            case 1:
                plain(life, value)
                written.append((value, None))
                committed.add(value)
            case _:
                producer.produce(value)
                pending[producer].append(value)
                written.append((value, producer))
    opened = producers[0] if seed % 2 else None
    for producer in producers:
        if pending[producer] and producer is not opened:
            producer.end(commit=False)
    if opened is not None:
        opened.produce(b"never ended")
        written.append((b"never ended", opened))
        pending[opened].append(b"never ended")
    life.node.stop()
    still_open = set(pending[opened]) if opened is not None else set()
    visible = next((place for place, (value, _) in enumerate(written) if value in still_open), len(written))
    return [value for value, _ in written[:visible] if value in committed]


def plain(life: TransactionLife, value: bytes) -> None:
    batch = memoryview(bytearray(encode_batch([Record(0, life.clock.wall_ms(), None, value, ())])))
    data = ProduceRequest.TopicProduceData(
        name="t", partition_data=[ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[data])
    life.ask(ProduceResponse, request, 12)


def by_confluent(bootstrap: str) -> list[bytes]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            error = message.error()
            if error is None:
                value = message.value()
                assert isinstance(value, bytes)
                values.append(value)
            elif error.name() == "_PARTITION_EOF":
                return values
    finally:
        consumer.close()


def by_spark(bootstrap: str) -> list[bytes]:
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = read_options(
        {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": "t",
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
        }
    )
    cluster = Cluster(options.client)
    try:
        parts = plan(options, cluster)
    finally:
        cluster.close()
    schema = arrow_schema_of(StructType([StructField("value", BinaryType())]))
    return [
        value for part in parts for batch in read_range(part, options, schema) for value in batch.column(0).to_pylist()
    ]


def by_files(partition: Path) -> list[bytes]:
    """What kafka-python reads in the segments, without what their indexes of aborted transactions name."""
    aborted: list[tuple[int, int, int]] = []
    for path in sorted(partition.glob("*.txnindex")):
        aborted += [(one[1], one[2], one[3]) for one in ENTRY.iter_unpack(path.read_bytes())]
    values: list[tuple[int, int, bytes]] = []
    opened: dict[int, int] = {}
    for batch in batches(partition):
        producer_id = batch.producer_id
        if batch.is_control_batch:
            opened.pop(producer_id, None)
            continue
        if batch.is_transactional:
            opened.setdefault(producer_id, batch.base_offset)
        for record in batch:
            values.append((record.offset, producer_id if batch.is_transactional else -1, record.value))
    stable = min(opened.values(), default=1 << 62)
    return [
        value
        for offset, producer_id, value in values
        if offset < stable and not any(producer_id == one and first <= offset <= last for one, first, last in aborted)
    ]


def batches(partition: Path) -> Iterator[Any]:
    for path in sorted(partition.glob("*.log")):
        records = MemoryRecords(path.read_bytes())
        while records.has_next():
            yield records.next_batch()


@pytest.mark.parametrize("seed", range(4))
def test_readers_of_committed_records_agree(tmp_path: Path, seed: int) -> None:
    expected = write(tmp_path, seed)
    assert len(list((tmp_path / "t-0").glob("*.log"))) > 2
    assert by_files(tmp_path / "t-0") == expected
    with BrokerProcess(tmp_path) as broker:
        assert by_confluent(broker.bootstrap) == expected
        assert by_spark(broker.bootstrap) == expected
