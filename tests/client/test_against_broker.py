"""The bundled client against a real broker: Ottla, or whatever OTTLA_TEST_BOOTSTRAP names (Apache Kafka for one)."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from ottla.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Admin,
    AdminError,
    ConfigResource,
    Consumer,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetOutOfRange,
    Producer,
    TopicPartition,
)

T0 = 1_700_000_000_000


async def create(broker, topic, partitions=1, **configs):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(
            topic, partitions=partitions, replication_factor=1, configs={"retention.ms": "-1", **configs}
        )


async def read_all(broker, topic, partitions=1, **options):
    """Everything in a topic, by partition."""
    every = [TopicPartition(topic, index) for index in range(partitions)]
    found = {partition: [] for partition in every}
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", **options) as consumer:
        ends = await consumer.end_offsets(every)
        consumer.assign(every)
        while any([await consumer.position(partition) < ends[partition] for partition in every]):
            for partition, records in (await consumer.getmany(timeout_ms=5000)).items():
                found[partition] += records
    return found


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_come_back_as_they_were_sent(broker, topic, compression):
    await create(broker, topic)
    headers = (("a", b"1"), ("a", None), ("ü", b""))
    sent = [(b"key %d" % n if n % 3 else None, b"value " * n if n % 7 else None, T0 + n) for n in range(500)]
    async with Producer(broker.bootstrap, compression_type=compression, batch_size=4000) as producer:
        deliveries = [await producer.send(topic, v, key=k, timestamp_ms=t, headers=headers) for k, v, t in sent]
        placed = [await delivery for delivery in deliveries]
    assert [place.offset for place in placed] == list(range(500))
    assert [place.timestamp_ms for place in placed] == [t for _, _, t in sent]
    records = (await read_all(broker, topic))[TopicPartition(topic, 0)]
    assert [(r.key, r.value, r.timestamp_ms) for r in records] == sent
    assert [r.offset for r in records] == list(range(500))
    assert {r.headers for r in records} == {headers}


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_every_acks_delivers(broker, topic, acks):
    await create(broker, topic)
    async with Producer(broker.bootstrap, acks=acks) as producer:
        await asyncio.gather(*[producer.send(topic, b"%d" % n) for n in range(100)])
        place = await producer.send_and_wait(topic, b"last")
        assert place.offset == (-1 if acks == 0 else 100)
        if acks == 0:  # nothing says when the broker has it, except a later request on the same connection
            async with Consumer(broker.bootstrap) as consumer:
                partition = TopicPartition(topic, 0)
                while (await consumer.end_offsets([partition]))[partition] < 101:
                    await asyncio.sleep(0)
    records = (await read_all(broker, topic))[TopicPartition(topic, 0)]
    assert [r.value for r in records] == [b"%d" % n for n in range(100)] + [b"last"]


async def test_order_holds_with_five_requests_in_flight_and_small_batches(broker, topic):
    await create(broker, topic, partitions=3)
    async with Producer(broker.bootstrap, batch_size=200, linger_ms=0) as producer:
        for n in range(3000):
            await producer.send(topic, b"%d" % n, partition=n % 3)
    found = await read_all(broker, topic, 3)
    for index in range(3):
        assert [int(r.value) for r in found[TopicPartition(topic, index)]] == list(range(index, 3000, 3))


async def test_a_topic_that_is_not_there_is_created_by_sending_to_it(broker, topic):
    async with Producer(broker.bootstrap) as producer:
        assert (await producer.send_and_wait(topic, b"first")).offset == 0


async def test_seek_by_offset_time_and_edges(broker, topic):
    await create(broker, topic)
    async with Producer(broker.bootstrap, batch_size=300) as producer:
        for n in range(100):
            await producer.send(topic, b"%d" % n, timestamp_ms=T0 + 10 * n)
    partition = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 100
        consumer.seek(partition, 42)
        assert (await consumer.getone()).value == b"42"
        assert await consumer.position(partition) == 43
        consumer.seek_to_beginning()
        assert (await consumer.getone()).value == b"0"
        found = await consumer.offsets_for_times({partition: T0 + 555})
        assert found[partition].offset == 56
        assert found[partition].timestamp_ms == T0 + 560
        await consumer.seek_to_times({partition: T0 + 555})
        assert (await consumer.getone()).offset == 56
        assert await consumer.offsets_for_times({partition: T0 + 10_000}) == {partition: None}
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 100}
        consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 100
        assert await consumer.getmany(timeout_ms=0) == {}


async def test_an_offset_out_of_range_is_reset_or_raised_as_asked(broker, topic):
    await create(broker, topic)
    partition = TopicPartition(topic, 0)
    async with Producer(broker.bootstrap) as producer:
        for n in range(10):
            await producer.send(topic, b"%d" % n)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        assert (await consumer.getone()).offset == 0
    async with Consumer(broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        with pytest.raises(KafkaError, match="no position"):
            await consumer.getone()
        consumer.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRange) as refused:
            await consumer.getone()
        assert (refused.value.partition, refused.value.offset) == (partition, 1000)
        consumer.seek(partition, 9)
        assert (await consumer.getone()).value == b"9"


async def test_paused_partitions_give_nothing_until_resumed(broker, topic):
    await create(broker, topic, partitions=2)
    async with Producer(broker.bootstrap) as producer:
        for n in range(20):
            await producer.send(topic, b"%d" % n, partition=n % 2)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        first, second = await consumer.assign_topics(topic)
        consumer.pause(first)
        seen = [await consumer.getone() for _ in range(10)]
        assert {record.partition for record in seen} == {1}
        assert consumer.paused() == [first]
        consumer.resume(first)
        assert [(await consumer.getone()).offset for _ in range(10)] == list(range(10))
        assert await consumer.position(second) == 10


async def test_getmany_respects_its_limits(broker, topic):
    await create(broker, topic)
    async with Producer(broker.bootstrap, batch_size=500) as producer:
        for n in range(200):
            await producer.send(topic, b"%d" % n)
    partition = TopicPartition(topic, 0)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest", max_poll_records=70) as consumer:
        consumer.assign([partition])
        values = []
        while len(values) < 200:
            records = (await consumer.getmany(timeout_ms=5000)).get(partition, [])
            assert len(records) <= 70
            values += [int(record.value) for record in records]
            few = (await consumer.getmany(partition, max_records=3)).get(partition, [])
            assert len(few) <= 3
            values += [int(record.value) for record in few]
        assert values == list(range(200))


async def test_a_waiting_reader_gets_a_record_that_comes_later(broker, topic):
    await create(broker, topic)
    async with Consumer(broker.bootstrap) as consumer, Producer(broker.bootstrap, linger_ms=0) as producer:
        (partition,) = await consumer.assign_topics(topic)
        assert await consumer.position(partition) == 0
        reading = asyncio.create_task(consumer.getone())
        await producer.send_and_wait(topic, b"late")
        assert (await reading).value == b"late"


async def test_large_records_and_large_answers(broker, topic):
    await create(broker, topic)
    big = [bytes([n]) * 900_000 for n in range(5)]
    async with Producer(broker.bootstrap) as producer:
        for value in big:
            await producer.send(topic, value)
    records = (await read_all(broker, topic, max_partition_fetch_bytes=8_000_000))[TopicPartition(topic, 0)]
    assert [record.value for record in records] == big


async def test_a_record_larger_than_a_fetch_is_still_read(broker, topic):
    await create(broker, topic)
    async with Producer(broker.bootstrap) as producer:
        await producer.send(topic, bytes(500_000))
        await producer.send(topic, b"small")
    limits = {"max_partition_fetch_bytes": 1000, "fetch_max_bytes": 1000}
    records = (await read_all(broker, topic, **limits))[TopicPartition(topic, 0)]
    assert [len(record.value) for record in records] == [500_000, 5]


async def test_a_batch_that_the_broker_refuses_fails_and_those_behind_it_arrive(broker, topic):
    await create(broker, topic, **{"max.message.bytes": "2000"})
    async with Producer(broker.bootstrap, batch_size=0, linger_ms=0) as producer:
        deliveries = [await producer.send(topic, bytes(5000) if n == 3 else b"%d" % n) for n in range(10)]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    refused = outcomes.pop(3)
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE
    assert [place.offset for place in outcomes] == list(range(9))
    records = (await read_all(broker, topic))[TopicPartition(topic, 0)]
    assert [record.value for record in records] == [b"%d" % n for n in range(10) if n != 3]


async def test_admin_creates_describes_grows_and_deletes(broker, topic):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "12345678"})])
        with pytest.raises(KafkaError) as refused:
            await admin.create_topic(topic, partitions=1, replication_factor=1)
        assert refused.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        while topic not in await admin.list_topics():  # Kafka's brokers hear of it a moment later
            pass
        described = (await admin.describe_topics([topic]))[topic]
        assert [partition.partition for partition in described.partitions] == [0, 1]
        assert all(partition.leader_id >= 0 for partition in described.partitions)
        await admin.create_partitions({topic: 4})
        while len((await admin.describe_topics([topic]))[topic].partitions) != 4:
            pass
        with pytest.raises(AdminError) as shrunk:
            await admin.create_partitions({topic: 3})
        assert shrunk.value.errors[topic].code is ErrorCode.INVALID_PARTITIONS
        resource = ConfigResource.topic(topic)
        configs = (await admin.describe_configs([resource], include_synonyms=True))[resource]
        assert configs["retention.ms"].value == "12345678"
        assert not configs["retention.ms"].is_default
        assert configs["segment.bytes"].is_default or configs["segment.bytes"].source == 4
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            pass
        with pytest.raises(AdminError) as gone:
            await admin.describe_topics([topic])
        assert gone.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_validate_only_creates_nothing(broker, topic):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)], validate_only=True)
        assert topic not in await admin.list_topics()
        with pytest.raises(AdminError) as refused:
            await admin.create_topics([NewTopic("bad name!", 1, 1), NewTopic(topic, 1, 1)])
        assert refused.value.errors.keys() == {"bad name!"}
        while topic not in await admin.list_topics():  # Kafka's brokers hear of it a moment later
            pass


async def test_admin_describes_the_cluster_and_its_brokers(broker):
    async with Admin(broker.bootstrap) as admin:
        cluster = await admin.describe_cluster()
        assert cluster.cluster_id
        node = next(node for node in cluster.brokers if f"{node.host}:{node.port}" == broker.bootstrap)
        resource = ConfigResource.broker(node.node_id)
        configs = (await admin.describe_configs([resource], keys=["num.partitions", "log.dirs"]))[resource]
        assert configs.keys() == {"num.partitions", "log.dirs"}


async def test_admin_lists_offsets_and_deletes_records(broker, topic):
    await create(broker, topic)
    partition = TopicPartition(topic, 0)
    async with Producer(broker.bootstrap, batch_size=0) as producer:
        for n, stamp in enumerate([T0, T0 + 50, T0 + 20]):
            await producer.send(topic, b"%d" % n, timestamp_ms=stamp)
    async with Admin(broker.bootstrap) as admin:

        async def at(spec):
            return (await admin.list_offsets({partition: spec}))[partition]

        assert (await at(EARLIEST)).offset == 0
        assert (await at(LATEST)).offset == 3
        assert (await at(MAX_TIMESTAMP))[:2] == (1, T0 + 50)
        assert (await at(T0 + 1))[:2] == (1, T0 + 50)
        assert await admin.delete_records({partition: 2}) == {partition: 2}
        assert (await at(EARLIEST)).offset == 2
        with pytest.raises(AdminError) as beyond:
            await admin.delete_records({partition: 1000})
        assert beyond.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    records = (await read_all(broker, topic))[partition]
    assert [record.offset for record in records] == [2]


async def test_a_producer_goes_on_when_its_topic_grows(broker, topic):
    await create(broker, topic)
    async with Producer(broker.bootstrap, metadata_max_age_ms=50, partitioner="roundrobin") as producer:
        await producer.send_and_wait(topic, b"one")
        async with Admin(broker.bootstrap) as admin:
            await admin.create_partitions({topic: 3})
        seen = set()
        while seen != {0, 1, 2}:
            seen.add((await producer.send_and_wait(topic, b"more")).partition)


def test_the_client_runs_on_uvloop_too(broker, topic):
    async def round_trip():
        await create(broker, topic)
        async with Producer(broker.bootstrap, compression_type="lz4") as producer:
            for n in range(5000):
                await producer.send(topic, b"%d" % n)
        records = (await read_all(broker, topic))[TopicPartition(topic, 0)]
        assert [int(record.value) for record in records] == list(range(5000))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(round_trip())
