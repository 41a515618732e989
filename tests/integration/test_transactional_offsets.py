"""Offsets that real clients commit in transactions: committed, aborted, held back while open, and over a kill.

Every test also passes against Apache Kafka (`OTTLA_TEST_BOOTSTRAP`), except the one that kills the broker.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PyTopicPartition
from kafka.structs import OffsetAndMetadata
from kit.broker import BrokerProcess

WAIT_S = 30.0


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic with ten records."""
    return fill(broker, topic)


def fill(broker: BrokerProcess, topic: str) -> str:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    return topic


def transactional(broker: BrokerProcess, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(WAIT_S)
    return producer


def member(broker: BrokerProcess, topic: str, group: str, **settings: Any) -> Consumer:
    """A member of the group that has read the first record."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            **settings,
        }
    )
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    return consumer


def send_offset(producer: Producer, consumer: Consumer, topic: str, offset: int) -> None:
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, WAIT_S)


def committed(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
    return int(found.offset)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_confluent_kafka_commits_offsets_with_records(broker: BrokerProcess, filled: str, protocol: str) -> None:
    group = f"g-{uuid4()}"
    consumer = member(broker, filled, group, **{"group.protocol": protocol})
    producer = transactional(broker, f"tx-{uuid4()}")
    for offset, commits in ((3, True), (5, False), (7, True)):
        producer.begin_transaction()
        producer.produce(f"{filled}-out", b"%d" % offset)
        send_offset(producer, consumer, filled, offset)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
        assert committed(consumer, filled) == (offset if commits else 3)
    consumer.close()


def test_confluent_kafka_waits_for_stable_offsets(broker: BrokerProcess, filled: str) -> None:
    group = f"g-{uuid4()}"
    consumer = member(broker, filled, group)
    producer = transactional(broker, f"tx-{uuid4()}")
    producer.begin_transaction()
    send_offset(producer, consumer, filled, 4)
    with pytest.raises(KafkaException):  # librdkafka asks again until its time is over
        consumer.committed([TopicPartition(filled, 0)], 2.0)
    producer.commit_transaction(WAIT_S)
    assert committed(consumer, filled) == 4
    consumer.close()


def test_a_member_of_an_old_generation_cannot_commit(broker: BrokerProcess, filled: str) -> None:
    group = f"g-{uuid4()}"
    consumer = member(broker, filled, group)
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    other = member(broker, filled, group)
    producer = transactional(broker, f"tx-{uuid4()}")
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(filled, 0, 4)], metadata, WAIT_S)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S)
    assert committed(other, filled) == -1001
    other.close()


async def test_aiokafka_commits_offsets_with_records(broker: BrokerProcess, filled: str) -> None:
    group = f"g-{uuid4()}"
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{uuid4()}")
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        where = AioTopicPartition(filled, 0)
        consumer.assign([where])
        async with producer.transaction():
            await producer.send(f"{filled}-out", b"1")
            await producer.send_offsets_to_transaction({where: 6}, group)
        async with asyncio.timeout(WAIT_S):
            while await consumer.committed(where) != 6:  # Kafka's markers come after the answer
                await asyncio.sleep(0.05)
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({where: 8}, group)
        await producer.abort_transaction()
        assert await asyncio.wait_for(consumer.committed(where), WAIT_S) == 6
    finally:
        await consumer.stop()
        await producer.stop()


def test_kafka_python_commits_offsets_with_records(broker: BrokerProcess, filled: str) -> None:
    group = f"g-{uuid4()}"
    where = PyTopicPartition(filled, 0)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{uuid4()}")
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.assign([where])
    producer.init_transactions()
    for offset, commits in ((6, True), (8, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({where: OffsetAndMetadata(offset, "", -1)}, group)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        until = time.monotonic() + WAIT_S
        while consumer.committed(where) != 6 and time.monotonic() < until:
            time.sleep(0.05)  # Kafka's markers come after the answer
        assert consumer.committed(where) == 6
    consumer.close()
    producer.close()


def test_a_killed_broker_keeps_what_was_committed_and_ends_what_was_open(own_broker: BrokerProcess, topic: str) -> None:
    broker, filled = own_broker, fill(own_broker, topic)
    group = f"g-{uuid4()}"
    transactional_id = f"tx-{uuid4()}"
    consumer = member(broker, filled, group)
    producer = transactional(broker, transactional_id)
    producer.begin_transaction()
    send_offset(producer, consumer, filled, 3)
    producer.commit_transaction(WAIT_S)
    producer.begin_transaction()
    send_offset(producer, consumer, filled, 5)
    broker.kill()
    broker.start()
    transactional(broker, transactional_id)  # the next run of the program: the open one is aborted
    assert committed(consumer, filled) == 3
    consumer.close()
