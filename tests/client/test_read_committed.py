"""Readers with `read_committed`, over real transactions: ours and confluent-kafka's see the same, and nothing else."""

from __future__ import annotations

import asyncio

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition
from kit.mixed_transactions import mixed_transactions

from ottla import Consumer as BlockingConsumer
from ottla.client import Admin, Consumer, TopicPartition


@pytest.fixture
async def mixed(broker, topic):
    async with mixed_transactions(broker.bootstrap, topic) as written:
        yield written


def reader(broker, isolation_level="read_committed", **options):
    return Consumer(broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level, **options)


async def values_of(consumer, partition):
    """What there is to read, up to the end that the consumer sees."""
    ends = await consumer.end_offsets([partition])
    found = []
    while not await consumer.has_reached(partition, ends[partition]):
        for records in (await consumer.getmany(timeout_ms=5000)).values():
            found += [record.value for record in records]
    return found


@pytest.mark.parametrize("max_bytes", [1, 1_000_000])
async def test_only_what_is_committed_is_read(broker, mixed, max_bytes):
    async with reader(broker, fetch_max_bytes=max_bytes) as consumer:
        consumer.assign([mixed.partition])
        assert await values_of(consumer, mixed.partition) == mixed.committed
    async with reader(broker, "read_uncommitted") as consumer:
        consumer.assign([mixed.partition])
        assert await values_of(consumer, mixed.partition) == mixed.every


async def test_columns_have_the_same(broker, mixed):
    pytest.importorskip("pyarrow")
    async with reader(broker) as consumer:
        consumer.assign([mixed.partition])
        found = []
        async for columns in consumer.arrow(columns=["value"]):
            found += columns.column("value").to_pylist()
            if len(found) >= len(mixed.committed):
                break
    assert found == mixed.committed


async def test_reading_may_begin_within_an_aborted_transaction(broker, mixed):
    places = {}
    async with reader(broker, "read_uncommitted") as consumer:
        consumer.assign([mixed.partition])
        while len(places) < len(mixed.every):
            record = await consumer.getone()
            places[record.value] = record.offset
    async with reader(broker) as consumer:
        consumer.assign([mixed.partition])
        for value, offset in places.items():
            consumer.seek(mixed.partition, offset)
            expected = [one for one in mixed.committed if places[one] >= offset]
            assert await values_of(consumer, mixed.partition) == expected, value


async def test_the_lag_is_that_to_the_last_stable_offset(broker, mixed):
    async with reader(broker) as consumer:
        assert await consumer.end_offsets([mixed.partition]) == {mixed.partition: mixed.first_open}
        consumer.assign([mixed.partition])
        assert await values_of(consumer, mixed.partition) == mixed.committed
        assert consumer.lag(mixed.partition) == 0
        assert consumer.high_watermark(mixed.partition) == mixed.first_open + 2
    async with Admin(broker.bootstrap) as admin:
        found = [await admin.list_offsets({mixed.partition: -1}, read_committed=level) for level in (True, False)]
    assert [one[mixed.partition].offset for one in found] == [mixed.first_open, mixed.first_open + 2]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_reader_that_waits_goes_on_when_the_transaction_ends(broker, mixed, is_commit):
    async with reader(broker) as consumer:
        consumer.assign([mixed.partition])
        assert await values_of(consumer, mixed.partition) == mixed.committed
        waiting = asyncio.create_task(consumer.getone())
        await (mixed.writer.commit_transaction() if is_commit else mixed.writer.abort_transaction())
        expected = mixed.every[-2:] if is_commit else mixed.every[-1:]
        assert (await waiting).value == expected[0]
        assert [(await consumer.getone()).value for _ in expected[1:]] == expected[1:]


async def test_the_blocking_consumer_has_the_same(broker, mixed):
    def work():
        options = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        with BlockingConsumer(broker.bootstrap, **options) as consumer:
            consumer.assign([mixed.partition])
            return [next(consumer).value for _ in mixed.committed]

    assert await asyncio.to_thread(work) == mixed.committed


async def test_confluent_kafka_reads_the_same(broker, mixed):
    def work():
        options = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
        consumer = ConfluentConsumer({**options, "auto.offset.reset": "earliest", "enable.partition.eof": True})
        try:
            consumer.assign([ConfluentPartition(*mixed.partition, 0)])
            found = []
            while (message := consumer.poll(30)) is not None and not message.error():
                found.append(message.value())
            return found
        finally:
            consumer.close()

    assert await asyncio.to_thread(work) == mixed.committed


async def test_transactions_of_confluent_kafka_are_read(broker, topic):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)

    def work():
        producer = ConfluentProducer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
        producer.init_transactions(30)
        for number in range(10):
            producer.begin_transaction()
            for place in range(3):
                producer.produce(topic, b"%d-%d" % (number, place))
            producer.flush(30)
            if number % 4:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

    await asyncio.to_thread(work)
    async with reader(broker) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        expected = [b"%d-%d" % (number, place) for number in range(10) if number % 4 for place in range(3)]
        assert await values_of(consumer, partition) == expected
