"""Real clients of other projects beside an embedded broker, in the test's process: threads, an event loop, C code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from ottla.testing import EmbeddedBroker


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_confluent_kafka(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 10})
    fault = broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    errors: list[object] = []
    producer.produce("orders", b"tea", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors == [None]
    assert fault.hits == 1
    broker.fail("Produce", "TOPIC_AUTHORIZATION_FAILED", topic="orders", times=1)
    producer.produce("orders", b"coffee", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert isinstance(errors[1], KafkaError)
    assert errors[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "kitchen", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    record = consumer.poll(30)
    assert record is not None
    assert record.value() == b"tea"
    broker.wait_for_members("kitchen")
    broker.wait_for_readers("orders")
    broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED", group="kitchen", times=1)
    with pytest.raises(KafkaException):
        consumer.commit(asynchronous=False)
    consumer.commit(asynchronous=False)
    broker.wait_until_consumed("kitchen")
    consumer.close()
    broker.wait_for_members("kitchen", 0)


async def test_aiokafka(broker: EmbeddedBroker) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10) as producer:
        broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
        await producer.send_and_wait("orders", b"tea")
    async with AIOKafkaConsumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, group_id="kitchen", auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value == b"tea"
        await asyncio.to_thread(broker.wait_for_members, "kitchen")
        await consumer.commit()
        await asyncio.to_thread(broker.wait_until_consumed, "kitchen", "orders")


def test_kafka_python(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=10)
    broker.cut("Produce", handled=True, times=1)
    producer.send("orders", b"tea").get(timeout=30)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="kitchen",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    assert next(consumer).value == b"tea"
    consumer.commit()
    broker.wait_until_consumed("kitchen")
    consumer.close()
    broker.wait_for_members("kitchen", 0)


def test_a_client_survives_a_kill(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.ms": 10, "acks": "all"})
    producer.produce("orders", b"before")
    producer.flush(30)
    broker.kill()
    producer.produce("orders", b"while it is away")
    producer.poll(0.1)
    broker.start()
    assert producer.flush(30) == 0
    assert [record.value for record in broker.records("orders")] == [b"before", b"while it is away"]
