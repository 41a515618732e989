"""A batch above the topic's limit is split, in order; one record that is too large is refused to its sender."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import FakeCluster, Fault

from ottla.client import Admin, Consumer, ErrorCode, KafkaError, Producer, ProducerInterceptor, TopicPartition
from ottla.protocol.records.batch import parse_header

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest.mark.parametrize("acks", [1, "all"])
async def test_a_batch_that_is_too_large_arrives_in_parts_in_order(cluster, acks):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 400
    async with Producer(cluster.bootstrap, acks=acks, **QUICK) as producer:
        deliveries = [await producer.send("t", b"%03d" % n + bytes(30), timestamp_ms=1000 + n) for n in range(100)]
        places = [await delivery for delivery in deliveries]
        assert producer.metrics()["batch-split-total"] > 2
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]
    assert [int(value[:3]) for value in partition.values] == list(range(100))
    assert [(place.offset, place.timestamp_ms) for place in places] == [(n, 1000 + n) for n in range(100)]
    assert max(map(len, partition.batches)) <= 400


async def test_flush_waits_for_the_parts_of_a_batch_that_was_split(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 400
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        for n in range(30):
            await producer.send("t", b"%03d" % n + bytes(30))
        await producer.flush()
        assert producer.metrics()["batch-split-total"] > 0
        assert [int(value[:3]) for value in partition.values] == list(range(30))


async def test_sequences_go_on_after_a_split(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **QUICK, batch_size=2000, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"first")
        partition.max_message_bytes = 300
        for n in range(300):
            await producer.send("t", b"%03d" % n + bytes(20))
    assert [int(value[:3]) for value in partition.values[1:]] == list(range(300))
    headers = [parse_header(batch) for batch in partition.batches]
    assert {header.producer_epoch for header in headers} == {0}
    assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]


async def test_later_batches_are_made_smaller_from_the_start(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 1000
    async with Producer(cluster.bootstrap, **QUICK, batch_size=8000) as producer:
        for _ in range(100):
            await producer.send("t", bytes(100))
        await producer.flush()
        splits = producer.metrics()["batch-split-total"]
        for _ in range(100):
            await producer.send("t", bytes(100))
        await producer.flush()
        assert producer.metrics()["batch-split-total"] == splits
    assert len(partition.values) == 200


async def test_a_record_alone_that_is_too_large_fails_and_the_others_arrive(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 500
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        deliveries = [await producer.send("t", bytes(600 if n == 5 else 50)) for n in range(12)]
        outcomes = await asyncio.gather(*[_outcome(delivery) for delivery in deliveries])
    assert [outcome for outcome in outcomes if isinstance(outcome, KafkaError)] == [outcomes[5]]
    assert outcomes[5].code is ErrorCode.MESSAGE_TOO_LARGE
    assert len(partition.values) == 11


async def test_a_split_that_nobody_awaited_is_told_by_flush(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 200
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send("t", bytes(50))
        await producer.send("t", bytes(500))
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            await producer.flush()
        await producer.send("t", b"x")


async def test_each_record_of_a_split_batch_is_acknowledged_once(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 300
    heard = []

    class Listener(ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            heard.append((metadata.offset, error))

    async with Producer(cluster.bootstrap, **QUICK, interceptors=[Listener()]) as producer:
        for _ in range(40):
            await producer.send("t", bytes(30))
    assert heard == [(n, None) for n in range(40)]


async def test_a_split_among_passing_faults_keeps_order(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 300
    partition.faults += [None, Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER), None, Fault(is_appended=False, hangs_up=True)]
    partition.faults += [Fault(ErrorCode.NOT_ENOUGH_REPLICAS), None] * 5
    async with Producer(cluster.bootstrap, **QUICK, batch_size=1000, reconnect_backoff_ms=1) as producer:
        for n in range(120):
            await producer.send("t", b"%03d" % n + bytes(20))
    assert [int(value[:3]) for value in partition.values] == list(range(120))


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_a_broker_with_a_small_limit_gets_smaller_batches(broker, topic, compression):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1, configs={"max.message.bytes": "2000"})
    sent = [b"%05d" % n + bytes((n * 7919 * k) % 251 for k in range(60)) for n in range(2000)]
    async with Producer(broker.bootstrap, compression_type=compression) as producer:
        for value in sent:
            await producer.send(topic, value)
    async with Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [(await consumer.getone()).value for _ in sent] == sent


async def _outcome(delivery):
    try:
        return await delivery
    except KafkaError as failed:
        return failed
