"""What only the redo log has on the disk, with a real client and the real process: a start after a power cut writes it.

librdkafka produces with acks=all to many partitions, `kill -9` ends the broker, and the test takes away from the logs'
files what a power cut may take: what the redo log has, and the files have not synced. A clean stop leaves none of it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess
from kit.seeds import seed_of

from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.layout import CLEAN_SHUTDOWN_FILE, REDO_LOG_FILE, log_file
from ottla.storage.formats.redo_format import RedoEntry
from ottla.storage.recovery.redo import read_redo_log

WAIT_S = 60.0
TOPIC = "spread"
PARTITIONS = 12
ROUNDS = 4
ATTEMPTS = 10
"""A checkpoint may come right before the kill, each 10 s: then nothing is in the redo log alone."""


class Producing:
    """Numbered records to all partitions, each round flushed before the next; what was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._number = 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        assert (partition, offset) not in self.acknowledged, "an offset was acknowledged twice"
        self.acknowledged[partition, offset] = value

    def rounds(self, broker: BrokerProcess) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 5})
        for _ in range(ROUNDS):
            for partition in range(PARTITIONS):
                self._number += 1
                value = b"%d " % self._number * 20
                producer.produce(TOPIC, value=value, partition=partition, on_delivery=self._delivered)
            assert producer.flush(WAIT_S) == 0


def make_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(WAIT_S)


def read_all(broker: BrokerProcess) -> dict[tuple[int, int], bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "audit", "enable.auto.commit": False})
    try:
        found: dict[tuple[int, int], bytes | None] = {}
        places = [TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)]
        ends = [consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places]
        consumer.assign(places)
        following = [0] * PARTITIONS
        while following != ends:
            messages = consumer.consume(min(1000, sum(ends) - sum(following)), WAIT_S)
            assert messages, f"nothing comes after {following}, and the logs end at {ends}"
            for message in messages:
                assert message.error() is None, message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset == following[partition], "offsets have a gap or go back"
                following[partition] += 1
                found[partition, offset] = message.value()
        return found
    finally:
        consumer.close()


def lose_what_was_not_synced(data: Path, entries: dict[str, list[RedoEntry]], chance: random.Random) -> None:
    """Of each log that the redo log has bytes of: end it anywhere from their beginning on, or tear what is there."""
    for name, its in entries.items():
        path = log_file(data / name, its[0].base_offset)
        first = min(entry.position for entry in its)
        content = path.read_bytes()
        start = chance.randrange(first, len(content))
        how = chance.randrange(3)
        if how == 0:
            content = content[:start]
        elif how == 1:  # the length is on the disk, and no page of it
            content = content[:start] + bytes(len(content) - start)
        else:  # later pages are on the disk, and an earlier one is not
            end = chance.randrange(start, len(content)) + 1
            content = content[:start] + bytes(end - start) + content[end:]
        path.write_bytes(content)


def test_what_only_the_redo_log_has_after_a_power_cut_is_there_after_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    if OsFiles().lives_in_memory(tmp_path):
        pytest.skip("a directory in memory has no redo log")
    chance = random.Random(seed_of("what a power cut takes from the logs"))
    broker, producing = BrokerProcess(data), Producing()
    with broker:
        make_topic(broker)
        for _ in range(ATTEMPTS):
            producing.rounds(broker)
            broker.kill()
            entries = read_redo_log(OsFiles(), data).entries
            if entries:
                break
            broker.restart()
        assert entries, "no round was synced by the redo log"
        lose_what_was_not_synced(data, entries, chance)
        broker.start()
        assert read_all(broker) == producing.acknowledged
        producing.rounds(broker)
        assert read_all(broker) == producing.acknowledged


def test_after_a_clean_stop_the_file_is_gone_and_the_logs_hold_all_records_as_kafka_reads_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker, producing = BrokerProcess(data), Producing()
    with broker:
        make_topic(broker)
        producing.rounds(broker)
        assert (data / REDO_LOG_FILE).exists()
        assert broker.stop() == 0
    assert not (data / REDO_LOG_FILE).exists()
    assert (data / CLEAN_SHUTDOWN_FILE).exists()
    found: dict[tuple[int, int], bytes | None] = {}
    for partition in range(PARTITIONS):
        content = log_file(data / f"{TOPIC}-{partition}", 0).read_bytes()
        for at, header in iter_batches(content):
            for record in decode_batch(content[at : at + header.size_bytes]):
                found[partition, record.offset] = record.value
    assert found == producing.acknowledged
