"""`kill -9` of a process that writes and compacts: the last promised value of each key, or a newer one, is there."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path

import confluent_kafka
from kit.broker import BrokerProcess
from kit.command import run

KEYS = 40
KILLS = 4
WAIT_S = 60.0
GIVEN_UP_AFTER_MS = 10_000


class Load:
    """Writes ever newer numbers to the same keys; `acknowledged[key]` is the largest that was promised."""

    def __init__(self, broker: BrokerProcess, first: int, enough: int) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.next = first
        self.enough = threading.Event()
        self._until = first + enough
        self._stop = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 30,
                "queue.buffering.max.messages": 3_000,
                "message.timeout.ms": GIVEN_UP_AFTER_MS,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: object, message: confluent_kafka.Message) -> None:
        if error is None:
            number = int(message.value().split()[0])
            self.acknowledged[message.key()] = max(number, self.acknowledged.get(message.key(), -1))
            if number >= self._until:
                self.enough.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            value = b"%d " % self.next + b"x" * 100
            try:
                self._producer.produce("kept", value, b"key-%d" % (self.next % KEYS), 0, self._delivered)
                self.next += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def stop(self) -> None:
        """Give up what was not acknowledged; nothing of it may come to the next broker, where it would be newest."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._producer.purge()
        assert self._producer.flush(WAIT_S) == 0, "librdkafka keeps records that it could send later"


def newest(broker: BrokerProcess) -> dict[bytes, int]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "audit", "enable.partition.eof": True}
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        consumer.assign([confluent_kafka.TopicPartition("kept", 0, 0)])
        found: dict[bytes, int] = {}
        last_offset = -1
        while (message := consumer.poll(WAIT_S)) is not None:
            if message.error() is not None:
                if message.error().code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    continue  # librdkafka says so after ten answers with empty batches only, and goes on
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                return found
            assert message.offset() > last_offset
            last_offset = message.offset()
            found[message.key()] = int(message.value().split()[0])
        raise AssertionError("no end of the partition")


def test_no_newest_value_is_lost_however_often_the_cleaner_is_killed(tmp_path: Path) -> None:
    overrides = {
        "log.cleaner.backoff.ms": "5",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.bytes": "8192",
        "log.segment.delete.delay.ms": "50",
    }
    chance = random.Random(7)
    promised: dict[bytes, int] = {}
    first = 0
    with BrokerProcess(tmp_path / "data", overrides=overrides) as broker:
        run("topics", "create", "kept", "-c", "cleanup.policy=compact", "-b", broker.bootstrap)
        for _ in range(KILLS):
            load = Load(broker, first, 500 + chance.randrange(1_000))
            assert load.enough.wait(WAIT_S)
            broker.kill()
            load.stop()
            first = load.next
            promised |= load.acknowledged
            broker.start()
            found = newest(broker)
            assert {key: number for key, number in promised.items() if found.get(key, -1) < number} == {}
        assert broker.output.count("kept-0: cleaned offsets") >= KILLS
        broker.stop()
        assert run("log", "verify", str(tmp_path / "data")).status == 0
