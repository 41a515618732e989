"""Our consumer in one group with those of other clients: whoever leads, all partitions are shared, nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import Consumer as ConfluentConsumer
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kit.broker import BrokerProcess
from kit.consumers import reading, until

from ottla.client import Admin, Consumer, Producer

PARTITIONS = 4
TIMES = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 100}
AIOKAFKA = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}
KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Other:
    """A member of another client: what it owns and what it read."""

    def __init__(self) -> None:
        self.owned: set[int] = set()
        self.values: list[int] = []
        self.stops = False
        self.failure: BaseException | None = None


def confluent(other: Other, broker: BrokerProcess, topic: str, assignor: str) -> None:
    """Read in this thread until `stops`."""
    protocol: dict[str, Any] = {
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 100,
    }
    if assignor == "consumer":
        protocol = {"group.protocol": "consumer"}
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1_000,
            **protocol,
        }
    )
    consumer.subscribe([topic])
    while not other.stops:
        message = consumer.poll(0.05)
        other.owned = {one.partition for one in consumer.assignment()}
        if message is not None and message.error() is None:
            other.values.append(int(message.value()))
    consumer.close()


def kafka_python(other: Other, broker: BrokerProcess, topic: str, assignor: str) -> None:
    """Read in this thread until `stops`."""
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[KAFKA_PYTHON[assignor]],
        **TIMES,
    )
    while not other.stops:
        # Long: kafka-python 3.0 loses an assignment that arrives in the very moment in which a poll's time is over.
        for records in consumer.poll(timeout_ms=1_000).values():
            other.values += [int(record.value) for record in records]
        other.owned = {one.partition for one in consumer.assignment()}
    consumer.close()


@asynccontextmanager
async def in_thread(read: Callable[..., None], *arguments: Any) -> AsyncIterator[Other]:
    other = Other()

    def run() -> None:
        try:
            read(other, *arguments)
        except BaseException as failure:
            other.failure = failure
            raise

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield other
    finally:
        other.stops = True
        await asyncio.to_thread(thread.join, 60)
    assert other.failure is None


@asynccontextmanager
async def aiokafka(broker: BrokerProcess, topic: str, assignor: str) -> AsyncIterator[Other]:
    other = Other()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=[AIOKAFKA[assignor]],
        **TIMES,
    )

    async def read() -> None:
        while not other.stops:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                other.values += [int(record.value) for record in records]
            other.owned = {one.partition for one in consumer.assignment()}

    await consumer.start()
    task = asyncio.create_task(read())
    try:
        yield other
    finally:
        other.stops = True
        await task
        await consumer.stop()


def other_member(client: str, broker: BrokerProcess, topic: str, assignor: str) -> Any:
    if client == "aiokafka":
        return aiokafka(broker, topic, assignor)
    return in_thread({"confluent": confluent, "kafka-python": kafka_python}[client], broker, topic, assignor)


def ours(broker: BrokerProcess, topic: str, assignor: str) -> Consumer:
    if assignor == "consumer":
        return Consumer(broker.bootstrap, group_id=topic, auto_offset_reset="earliest", group_protocol="consumer")
    return Consumer(
        broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        partition_assignment_strategy=assignor,
        **TIMES,
    )


async def produce(broker: BrokerProcess, topic: str, numbers: range) -> None:
    async with Producer(broker.bootstrap) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


PAIRS = [
    *(("confluent", assignor) for assignor in ("range", "roundrobin", "cooperative-sticky", "consumer")),
    *(("kafka-python", assignor) for assignor in KAFKA_PYTHON),
    *(("aiokafka", assignor) for assignor in AIOKAFKA),
]


@pytest.mark.parametrize("who_is_first", ["ours", "theirs"])
@pytest.mark.parametrize(("client", "assignor"), PAIRS)
async def test_a_group_of_two_clients_shares_everything(
    broker: BrokerProcess, topic: str, client: str, assignor: str, who_is_first: str
) -> None:
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    await produce(broker, topic, range(40))
    consumer = ours(broker, topic, assignor)

    def our_share() -> set[int]:
        return {one.partition for one in consumer.assignment()}

    async with consumer, reading(consumer) as found:
        if who_is_first == "ours":
            consumer.subscribe([topic])
            await until(lambda: len(found.records) == 40)
        async with other_member(client, broker, topic, assignor) as other:
            if who_is_first == "theirs":
                await until(lambda: len(other.values) == 40)
                consumer.subscribe([topic])
            every = set(range(PARTITIONS))
            await until(lambda: len(our_share()) == len(other.owned) == 2 and our_share() | other.owned == every)
            await produce(broker, topic, range(40, 80))
            await until(lambda: len(found.records) + len(other.values) >= 80)
        if who_is_first == "theirs":  # the leader is gone
            await until(lambda: our_share() == every)
            await produce(broker, topic, range(80, 120))
            await until(lambda: len(found.records) + len(other.values) >= 120)
    read = [*other.values, *(int(record.value) for record in found.records)]
    assert sorted(set(read)) == list(range(120 if who_is_first == "theirs" else 80))
    assert found.failures == []
