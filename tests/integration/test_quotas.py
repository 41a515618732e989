"""Quotas as librdkafka and kafka-python see them: answers have a throttle time, and what they send is stored."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Producer, ThrottleEvent
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kit.broker import BrokerProcess

from ottla import Admin

BYTES_PER_S = 10_000
BURST_BYTES = 105_000
"""Half a second more than is let through at once: ten seconds of the quota."""
WAIT_S = 30.0


@pytest.fixture
def client_id(broker: BrokerProcess, topic: str) -> str:
    """Of a client that may produce and fetch so much and no more."""
    quotas = {"producer_byte_rate": BYTES_PER_S, "consumer_byte_rate": BYTES_PER_S}
    with Admin(broker.bootstrap) as admin:
        admin.alter_quotas({(("client-id", topic),): quotas})
    return topic


def test_librdkafka_is_told_that_it_is_throttled(broker: BrokerProcess, topic: str, client_id: str) -> None:
    events: list[ThrottleEvent] = []
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "client.id": client_id,
        "throttle_cb": events.append,
    }
    producer = Producer(settings)
    stored: list[int] = []
    for _ in range(2):
        producer.produce(topic, b"x" * BURST_BYTES, on_delivery=lambda _, message: stored.append(message.offset()))
        assert producer.flush(WAIT_S) == 0
    assert stored == [0, 1]
    assert events
    assert max(event.throttle_time for event in events) > 0


def test_kafka_python_counts_how_long_it_waits_and_reads_all(broker: BrokerProcess, topic: str, client_id: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, client_id=client_id, acks="all")) as producer:
        for _ in range(2):
            producer.send(topic, b"x" * BURST_BYTES, partition=0).get(WAIT_S)
        throttled = [value for group in producer.metrics().values() for key, value in group.items() if is_throttle(key)]
        assert max(throttled) > 0
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        client_id=client_id,
        enable_auto_commit=False,
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    with closing(consumer):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        assert len(next(consumer).value) == BURST_BYTES, "a batch that is larger than the quota's window comes, too"


def is_throttle(key: str) -> bool:
    return "throttle-time-max" in key
