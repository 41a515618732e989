"""Serializers and interceptors: a program's own code on a record's way, which never breaks the sending or reading."""

from __future__ import annotations

import json
import logging

import pytest
from kit.fake_broker import FakeCluster, Fault

from ottla.client import (
    Consumer,
    ConsumerInterceptor,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerInterceptor,
    RecordTooLarge,
    TopicPartition,
    UndecodableRecord,
)

T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def to_json(value):
    return json.dumps(value).encode()


class Broken(ProducerInterceptor, ConsumerInterceptor):
    """Raises wherever it can."""

    def on_send(self, record):
        raise RuntimeError("on_send is broken")

    def on_acknowledgement(self, metadata, error):
        raise RuntimeError("on_acknowledgement is broken")

    def on_consume(self, records):
        raise RuntimeError("on_consume is broken")

    def close(self):
        raise RuntimeError("close is broken")


async def test_serializers_make_bytes_and_deserializers_take_them_back(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, key_serializer=str.encode, value_serializer=to_json) as producer:
        await producer.send("t", {"n": 1}, key="ä")
        await producer.send("t", None, key="gone")
        await producer.send("t", [1, None])
    async with Consumer(
        cluster.bootstrap, key_deserializer=bytes.decode, value_deserializer=json.loads, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([T0])
        records = [await consumer.getone() for _ in range(3)]
    assert [(record.key, record.value) for record in records] == [("ä", {"n": 1}), ("gone", None), (None, [1, None])]


async def test_a_serializer_that_raises_is_heard_at_once_and_nothing_is_sent(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, value_serializer=to_json) as producer:
        with pytest.raises(TypeError, match="not JSON serializable"):
            await producer.send("t", object())
        await producer.send("t", 1)
    assert partition.values == [b"1"]


async def test_a_serializer_that_makes_no_bytes_is_a_type_error(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, value_serializer=str) as producer:
        with pytest.raises(TypeError, match="must be bytes"):
            await producer.send("t", 1)


@pytest.mark.parametrize("is_many", [False, True])
async def test_a_record_that_cannot_be_deserialized_is_named_and_can_be_passed(cluster, is_many):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        for value in (b"1", b"2", b"{broken", b"4"):
            await producer.send("t", value, key=b"k")

    async def take(consumer):
        if is_many:
            return [record.value for record in (await consumer.getmany(timeout_ms=5000))[T0]]
        return [(await consumer.getone()).value]

    async with Consumer(cluster.bootstrap, value_deserializer=json.loads, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        taken = []
        while len(taken) < 2:
            taken += await take(consumer)
        assert taken == [1, 2]
        for _ in range(2):
            with pytest.raises(UndecodableRecord) as caught:
                await take(consumer)
            assert (caught.value.partition, caught.value.offset, caught.value.value) == (T0, 2, b"{broken")
            assert isinstance(caught.value.__cause__, json.JSONDecodeError)
            assert await consumer.position(T0) == 2
        consumer.seek(T0, 3)
        assert await take(consumer) == [4]
    assert len(partition.values) == 4


async def test_interceptors_change_records_before_they_are_serialized_in_their_order(cluster):
    (partition,) = cluster.add_topic("t")

    class Adding(ProducerInterceptor):
        def __init__(self, text):
            self.text = text

        def on_send(self, record):
            return record._replace(value=record.value + self.text, headers=(*record.headers, (self.text, b"")))

    two = [Adding("1"), Adding("2")]
    async with Producer(cluster.bootstrap, value_serializer=str.encode, interceptors=two) as producer:
        await producer.send("t", "x")
    assert partition.values == [b"x12"]


async def test_interceptors_hear_what_became_of_each_record_before_the_program_does(cluster):
    (partition,) = cluster.add_topic("t")
    heard = []

    class Listening(ProducerInterceptor):
        def on_acknowledgement(self, metadata, error):
            heard.append((metadata.partition, metadata.offset, None if error is None else type(error)))

        def close(self):
            heard.append("closed")

    async with Producer(cluster.bootstrap, interceptors=[Listening()], max_request_size=1000) as producer:
        await producer.send_and_wait("t", b"a")
        assert heard == [(0, 0, None)]
        partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"b")
        with pytest.raises(RecordTooLarge):
            await producer.send("t", bytes(2000))
    assert heard[1:] == [(0, -1, KafkaError), (-1, -1, RecordTooLarge), "closed"]


async def test_a_broken_interceptor_is_logged_and_the_others_go_on(cluster, caplog):
    (partition,) = cluster.add_topic("t")
    heard = []

    class Counting(ProducerInterceptor, ConsumerInterceptor):
        def on_send(self, record):
            heard.append("sent")
            return record

        def on_consume(self, records):
            heard.append("consumed")
            return records

    with caplog.at_level(logging.ERROR):
        async with Producer(cluster.bootstrap, interceptors=[Broken, Counting]) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 0
        async with Consumer(
            cluster.bootstrap, interceptors=[Broken(), Counting()], auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([T0])
            assert (await consumer.getone()).value == b"x"
    assert heard == ["sent", "consumed"]
    assert partition.values == [b"x"]
    for name in ("on_send", "on_acknowledgement", "on_consume", "close"):
        assert f"Broken.{name} failed" in caplog.text


@pytest.mark.parametrize("is_many", [False, True])
async def test_consumer_interceptors_change_and_leave_out_records(cluster, is_many):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        for n in range(10):
            await producer.send("t", b"%d" % n)

    class Odd(ConsumerInterceptor):
        def on_consume(self, records):
            return {
                partition: [record._replace(value=int(record.value)) for record in some if int(record.value) % 2]
                for partition, some in records.items()
            }

    async with Consumer(cluster.bootstrap, interceptors=[Odd()], auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        taken = []
        while len(taken) < 5:
            if is_many:
                taken += [r.value for some in (await consumer.getmany(timeout_ms=5000)).values() for r in some]
            else:
                taken.append((await consumer.getone()).value)
        assert taken == [1, 3, 5, 7, 9]
        assert await consumer.position(T0) == 10
