"""Clients read a compacted topic while it is written and cleaned, over and over: no newest value is ever missed."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kit.broker import BrokerProcess
from kit.command import run

KEYS = 50
UPDATES = 6_000
WAIT_S = 60


class Cleaning(NamedTuple):
    broker: BrokerProcess

    @property
    def http(self) -> str:
        """Where its HTTP port is, as it said when it last started."""
        return re.findall(r"health and metrics at http://(\S+) ", self.broker.output)[-1]


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cleaning]:
    """A broker whose cleaner hardly ever rests."""
    overrides = {
        "ottla.http.listener": "127.0.0.1:0",
        "log.cleaner.backoff.ms": "20",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes": "16384",
        "log.index.interval.bytes": "512",
        "log.segment.delete.delay.ms": "1000",
        "ottla.log.max.open.segments": "16",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "8192",
    }
    with BrokerProcess(tmp_path_factory.mktemp("cleaning"), overrides=overrides) as broker:
        yield Cleaning(broker)


def create(cleaning: Cleaning, topic: str) -> None:
    said = run("topics", "create", topic, "-c", "cleanup.policy=compact", "-b", cleaning.broker.bootstrap)
    assert said.status == 0, said.err


class Writer(threading.Thread):
    """Writes ever newer values of the same keys; `sent[key]` is the last one that was acknowledged."""

    def __init__(self, cleaning: Cleaning, topic: str, **settings: object) -> None:
        super().__init__()
        self.sent: dict[bytes, int] = {}
        self.error: Exception | None = None
        self._topic = topic
        self._settings = {"bootstrap_servers": cleaning.broker.bootstrap, "linger_ms": 2, **settings}

    def run(self) -> None:
        try:
            with closing(KafkaProducer(**self._settings)) as producer:
                for first in range(0, UPDATES, 100):
                    waiting = {}
                    for number in range(first, first + 100):
                        key = b"key-%d" % (number % KEYS)
                        value = b"%d " % number + b"x" * 60
                        waiting[number] = producer.send(self._topic, value, key=key, partition=0)
                    producer.flush(WAIT_S)
                    for number, future in waiting.items():
                        future.get(WAIT_S)
                        self.sent[b"key-%d" % (number % KEYS)] = number
        except Exception as error:
            self.error = error


def read_all(cleaning: Cleaning, topic: str, **settings: object) -> dict[bytes, int]:
    """The newest value of each key, read from the beginning to the end of now; offsets must ascend."""
    consumer = KafkaConsumer(bootstrap_servers=cleaning.broker.bootstrap, enable_auto_commit=False, **settings)
    with closing(consumer):
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end_offset = consumer.end_offsets([place])[place]
        found: dict[bytes, int] = {}
        last_offset = -1
        while consumer.position(place) < end_offset:
            for record in (one for batch in consumer.poll(1000).values() for one in batch):
                assert record.offset > last_offset
                last_offset = record.offset
                found[record.key] = int(record.value.split()[0])
        return found


@pytest.mark.parametrize("settings", [{"enable_idempotence": True}, {"compression_type": "zstd"}])
def test_a_reader_never_misses_a_newest_value_while_the_log_is_cleaned(
    cleaning: Cleaning, topic: str, settings: dict[str, object]
) -> None:
    create(cleaning, topic)
    writer = Writer(cleaning, topic, **settings)
    writer.start()
    passes = 0
    while writer.is_alive() or not passes:
        promised = dict(writer.sent)
        found = read_all(cleaning, topic, max_partition_fetch_bytes=20_000)
        assert all(found.get(key, -1) >= number for key, number in promised.items())
        passes += 1
    writer.join()
    assert writer.error is None
    assert read_all(cleaning, topic) == writer.sent
    run("log", "roll", f"{topic}-0", "--http", cleaning.http)
    said = run("log", "clean", topic, "--http", cleaning.http)
    assert said.status == 0, said.err
    assert read_all(cleaning, topic) == writer.sent
    assert sorted(read_with_ottla(cleaning, topic)) == sorted(writer.sent.items())
    assert read_with_confluent(cleaning, topic) == writer.sent


def read_with_ottla(cleaning: Cleaning, topic: str) -> list[tuple[bytes, int]]:
    said = run("consume", topic, "-B", "-e", "--format", "%k %s\n", "-b", cleaning.broker.bootstrap)
    assert said.status == 0, said.err
    lines = [line.split() for line in said.out.splitlines()]
    return [(line[0].encode(), int(line[1])) for line in lines]


def read_with_confluent(cleaning: Cleaning, topic: str) -> dict[bytes, int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cleaning.broker.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: dict[bytes, int] = {}
        while (message := consumer.poll(WAIT_S)) is not None:
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                return found
            found[message.key()] = int(message.value().split()[0])
        raise AssertionError("no end of the partition")


def test_nothing_of_it_is_damage_afterwards(cleaning: Cleaning, topic: str, tmp_path: Path) -> None:
    create(cleaning, topic)
    writer = Writer(cleaning, topic)
    writer.run()
    assert writer.error is None
    cleaning.broker.stop()
    said = run("log", "verify", str(cleaning.broker.directory))
    assert said.status == 0, said.out
    cleaning.broker.start()
    assert read_all(cleaning, topic) == writer.sent


def test_committed_offsets_outlive_their_compaction(cleaning: Cleaning, topic: str) -> None:
    settings = {"bootstrap.servers": cleaning.broker.bootstrap, "group.id": topic, "enable.auto.commit": False}
    run("topics", "create", topic, "-b", cleaning.broker.bootstrap)
    place = confluent_kafka.TopicPartition(topic, 0)
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        for offset in range(400):
            (reported,) = consumer.commit(
                offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False
            )
            assert reported.error is None
    said = run("log", "clean", "__consumer_offsets", "--json", "--http", cleaning.http)
    assert said.status == 0, said.err
    reported = run("log", "explain", "__consumer_offsets-0", "--compaction", "--json", "--http", cleaning.http)
    offsets = json.loads(reported.out)
    assert offsets["first_dirty_offset"] > 200
    assert sum(segment["size_bytes"] for segment in offsets["segments"]) < 3 * 8192
    for _ in range(2):
        with closing(confluent_kafka.Consumer(settings)) as consumer:
            assert [one.offset for one in consumer.committed([place], WAIT_S)] == [399]
        cleaning.broker.kill()
        cleaning.broker.start()
