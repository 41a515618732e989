"""kafka-python as a judge: produce, consume by assignment, seek by offset and time, headers, compressions, admin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kit.broker import BrokerProcess
from kit.samples import BASE_TIMESTAMP_MS, COMPRESSIONS, Sample, samples

WAIT_S = 30


def send(broker: BrokerProcess, topic: str, records: list[Sample], **settings: object) -> list[int]:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=5, **settings)) as producer:
        futures = [
            producer.send(topic, r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp_ms, partition=0)
            for r in records
        ]
        producer.flush(WAIT_S)
        return [future.get(WAIT_S).offset for future in futures]


@contextmanager
def reader(broker: BrokerProcess, topic: str) -> Iterator[tuple[KafkaConsumer, TopicPartition]]:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, enable_auto_commit=False, consumer_timeout_ms=WAIT_S * 1000
    )
    with closing(consumer):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        yield consumer, place


def take(consumer: KafkaConsumer, count: int) -> list[object]:
    got = []
    for record in consumer:
        got.append(record)
        if len(got) == count:
            break
    assert len(got) == count
    return got


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_comes_back_as_it_was_sent(broker: BrokerProcess, topic: str, compression: str) -> None:
    sent = samples()
    kind = None if compression == "none" else compression
    assert send(broker, topic, sent, compression_type=kind) == list(range(len(sent)))
    with reader(broker, topic) as (consumer, place):
        consumer.seek_to_beginning(place)
        got = take(consumer, len(sent))
    assert [Sample(r.key, r.value, r.timestamp, list(r.headers)) for r in got] == sent  # type: ignore[attr-defined]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_level_of_acknowledgement_delivers(broker: BrokerProcess, topic: str, acks: int | str) -> None:
    send(broker, topic, samples(20), acks=acks, enable_idempotence=acks == "all")
    with reader(broker, topic) as (consumer, place):
        consumer.seek_to_beginning(place)
        assert [r.offset for r in take(consumer, 20)] == list(range(20))  # type: ignore[attr-defined]


def test_seek_by_offset_and_by_time(broker: BrokerProcess, topic: str) -> None:
    send(broker, topic, samples(), compression_type="zstd")
    with reader(broker, topic) as (consumer, place):
        consumer.seek(place, 42)
        assert take(consumer, 1)[0].offset == 42  # type: ignore[attr-defined]
        found = consumer.offsets_for_times({place: BASE_TIMESTAMP_MS + 500_001})
        assert found[place].offset == 51
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: 100}


def test_admin_makes_describes_and_deletes_a_topic(broker: BrokerProcess, topic: str) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
        assert topic in admin.list_topics()
        (described,) = admin.describe_topics([topic])
        assert len(described["partitions"]) == 2
        admin.delete_topics([topic])
        assert topic not in admin.list_topics()
