"""`kill -9` of the real process in the middle of producing: nothing that was acknowledged is lost, nothing is doubled.

librdkafka produces with acks=all; what it reported as delivered before the kill is what must be read after the restart.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from kit.broker import BrokerProcess

WAIT_S = 60.0
GIVEN_UP_AFTER_MS = 10_000
PARTITIONS = 3


class Load:
    """A producer thread that writes numbered records until it has to stop, and remembers what was acknowledged."""

    def __init__(self, broker: BrokerProcess, name: str, *, enough: int, compression: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self.enough = threading.Event()
        self._wanted = enough
        self._stop = threading.Event()
        self._name = name
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": compression,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 5_000,
                "message.timeout.ms": GIVEN_UP_AFTER_MS,
                "log_level": 0,  # librdkafka would print every lost connection; losing it is the point here
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[(message.partition(), message.offset())] = message.value()
            if len(self.acknowledged) >= self._wanted:
                self.enough.set()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(
                    "kept",
                    value=b"%s-%d" % (self._name.encode(), number),
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def stop(self) -> None:
        """Give up what was not acknowledged and end the thread."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._producer.purge()
        assert self._producer.flush(WAIT_S) == 0, "librdkafka keeps records that it could send later"


def read_all(broker: BrokerProcess) -> dict[tuple[int, int], bytes]:
    settings = {"group.id": "audit", "enable.auto.commit": False, "fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    try:
        got: dict[tuple[int, int], bytes] = {}
        for partition in range(PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition("kept", partition), WAIT_S)
            consumer.assign([TopicPartition("kept", partition, OFFSET_BEGINNING)])
            offset = -1
            while offset < end - 1:
                for message in consumer.consume(min(1000, end - 1 - offset), WAIT_S):
                    assert message.error() is None, message.error()
                    assert message.offset() == offset + 1, "offsets have a gap or go back"
                    offset = message.offset()
                    got[(partition, offset)] = message.value()
        return got
    finally:
        consumer.close()


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_nothing_acknowledged_is_lost_by_kill_minus_nine(tmp_path: Path, compression: str) -> None:
    chance = random.Random(compression)
    broker = BrokerProcess(
        tmp_path / "data",
        {
            "num.partitions": str(PARTITIONS),
            "log.segment.bytes": "65536",  # many rolls, so that kills fall beside them
            "log.flush.offset.checkpoint.interval.ms": "200",
        },
    )
    acknowledged: dict[tuple[int, int], bytes] = {}
    for round_number in range(5):
        broker.start()
        load = Load(broker, f"round{round_number}", enough=chance.randrange(200, 5000), compression=compression)
        assert load.enough.wait(WAIT_S), "the broker acknowledged too little"
        broker.kill()
        load.stop()
        assert not acknowledged.keys() & load.acknowledged.keys(), "an offset was acknowledged twice"
        acknowledged |= load.acknowledged
        with broker:
            found = read_all(broker)
            lost = {place for place in acknowledged if found.get(place) != acknowledged[place]}
            assert not lost, (
                f"{len(lost)} of {len(acknowledged)} acknowledged records lost or changed: {sorted(lost)[:5]}"
            )
            values = list(found.values())
            assert len(values) == len(set(values)), "an idempotent record was stored twice"
