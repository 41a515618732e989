"""aiokafka as a judge: produce, consume by assignment, seek by offset and time, headers, each compression."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError
from kit.broker import BrokerProcess
from kit.samples import BASE_TIMESTAMP_MS, COMPRESSIONS, Sample, samples


async def send(broker: BrokerProcess, topic: str, records: list[Sample], **settings: object) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5, **settings) as producer:
        futures = [
            await producer.send(topic, r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp_ms, partition=0)
            for r in records
        ]
        return [(await future).offset for future in futures]


def as_sample(record: object) -> Sample:
    return Sample(record.key, record.value, record.timestamp, list(record.headers))  # type: ignore[attr-defined]


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_every_compression_comes_back_as_it_was_sent(broker: BrokerProcess, topic: str, compression: str) -> None:
    sent = samples()
    kind = None if compression == "none" else compression
    assert await send(broker, topic, sent, compression_type=kind) == list(range(len(sent)))
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        got = [await consumer.getone() for _ in sent]
    assert [as_sample(r) for r in got] == sent
    assert [r.offset for r in got] == list(range(len(sent)))


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_acks_all_with_and_without_idempotence(broker: BrokerProcess, topic: str, idempotent: bool) -> None:
    offsets = await send(broker, topic, samples(30), acks="all", enable_idempotence=idempotent)
    assert offsets == list(range(30))


async def test_seek_by_offset_and_by_time(broker: BrokerProcess, topic: str) -> None:
    await send(broker, topic, samples(), compression_type="gzip")
    place = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, enable_auto_commit=False) as consumer:
        consumer.assign([place])
        consumer.seek(place, 42)
        assert (await consumer.getone()).offset == 42
        found = await consumer.offsets_for_times({place: BASE_TIMESTAMP_MS + 500_001})
        assert found[place].offset == 51
        assert found[place].timestamp == BASE_TIMESTAMP_MS + 510_000
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: 100}


async def test_a_waiting_consumer_gets_a_record_as_soon_as_it_is_written(broker: BrokerProcess, topic: str) -> None:
    place = TopicPartition(topic, 0)
    await send(broker, topic, samples(1))
    async with AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, fetch_max_wait_ms=20_000
    ) as consumer:
        consumer.assign([place])
        consumer.seek(place, 1)
        waiting = consumer.getone()
        await send(broker, topic, samples(1))
        assert (await waiting).offset == 1


async def test_admin_lists_and_describes(broker: BrokerProcess, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


async def test_an_oversized_batch_is_refused(broker: BrokerProcess, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=10_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(3_000_000))
