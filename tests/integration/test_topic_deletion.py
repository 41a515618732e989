"""A deleted topic while clients read and write it: they get an error, others do not notice, its name begins again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kit.broker import BrokerProcess

PARTITIONS = 4
RECORDS = 200
"""Of each partition at first, of `PADDING` bytes each: far more than a reader holds before it is asked for more."""
PADDING = b"." * 10_000
DEADLINE_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    overrides = {
        "auto.create.topics.enable": "false",
        "log.segment.bytes": str(1 << 20),
        "log.segment.delete.delay.ms": "100",
    }
    with BrokerProcess(tmp_path, overrides) as process:
        yield process
    assert "Traceback" not in process.output
    assert "offline" not in process.output


def value(partition: int, number: int) -> bytes:
    return b"%d/%d " % (partition, number) + PADDING


class Writer:
    """Writes to all partitions until an answer says that the topic is gone; knows what was acknowledged."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged = [0] * PARTITIONS
        self.errors: list[int] = []
        self._writes = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "message.timeout.ms": 5_000,
                "topic.metadata.refresh.interval.ms": 500,
            }
        )
        self._next = [RECORDS] * PARTITIONS
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_until_it_writes(self) -> None:
        assert self._writes.wait(DEADLINE_S), self.errors

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "the writer never got an error"

    def _run(self) -> None:
        until = time.monotonic() + DEADLINE_S
        while not (self.errors and self._writes.is_set()) and time.monotonic() < until:
            for partition in range(PARTITIONS):
                number, self._next[partition] = self._next[partition], self._next[partition] + 1
                self._producer.produce(
                    "doomed", value(partition, number), partition=partition, on_delivery=self._delivered
                )
            self._producer.flush(10)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error.code())
        else:
            partition = message.partition()
            assert partition is not None
            self.acknowledged[partition] += 1
            if min(self.acknowledged) and not self._writes.is_set():
                self.errors.clear()  # a busy machine may have let records time out
                self._writes.set()


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(DEADLINE_S)


def fill(broker: BrokerProcess, topic: str, partitions: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, value(partition, number), partition=partition)
    assert producer.flush(DEADLINE_S) == 0


def directories(broker: BrokerProcess) -> list[str]:
    return sorted(path.name for path in broker.directory.iterdir() if path.name.startswith("doomed"))


def test_a_topic_that_is_read_and_written_is_deleted_and_its_name_begins_again(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    create(admin, "doomed", PARTITIONS)
    create(admin, "kept", 1)
    fill(broker, "doomed", PARTITIONS, RECORDS)
    fill(broker, "kept", 1, RECORDS)
    reader = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 64,
            "fetch.message.max.bytes": 20_000,
            "topic.metadata.refresh.interval.ms": 500,
            "check.crcs": True,
        }
    )
    reader.assign([TopicPartition("doomed", partition, 0) for partition in range(PARTITIONS)])
    others = KafkaConsumer(bootstrap_servers=broker.bootstrap, max_partition_fetch_bytes=20_000, max_poll_records=1)
    others.assign([KafkaPythonPartition("kept", 0)])
    others.seek_to_beginning()

    read = [0] * PARTITIONS
    kept: list[bytes] = []

    def read_some(until: float) -> None:
        """A record of each reader; of the doomed topic they must come in their order, and be its own."""
        while time.monotonic() < until:
            message = reader.poll(0.2)
            if message is not None and message.error() is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert (offset, message.value()) == (read[partition], value(partition, read[partition]))
                read[partition] += 1
            for records in others.poll(10).values():
                kept.extend(record.value for record in records)
            if sum(read) % 5 == 0 and sum(read) >= 20:
                return

    writer = Writer(broker)
    writer.wait_until_it_writes()
    read_some(time.monotonic() + DEADLINE_S)
    assert 20 <= sum(read) < PARTITIONS * RECORDS // 2, "it is in the middle of reading"
    admin.delete_topics(["doomed"])["doomed"].result(DEADLINE_S)
    assert "doomed" not in admin.list_topics(timeout=DEADLINE_S).topics
    assert not [name for name in directories(broker) if not name.endswith("-delete")]
    writer.join()
    assert writer.errors

    create(admin, "doomed", 1)
    fill(broker, "doomed", 1, 10)
    until = time.monotonic() + DEADLINE_S
    while len(kept) < RECORDS and time.monotonic() < until:
        for records in others.poll(200).values():
            kept.extend(record.value for record in records)
    assert kept == [value(0, number) for number in range(RECORDS)]
    reader.close()
    others.close()

    again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    again.assign([TopicPartition("doomed", 0, 0)])
    values: list[bytes | None] = []
    while len(values) < 10 and time.monotonic() < until:
        values += [message.value() for message in again.consume(10, 0.5) if message.error() is None]
    again.close()
    assert values == [value(0, number) for number in range(10)]
    while directories(broker) != ["doomed-0"] and time.monotonic() < until:
        time.sleep(0.05)  # a chore of another process unlinks them, and tells nobody
    assert directories(broker) == ["doomed-0"], "what was deleted is unlinked after its delay"
