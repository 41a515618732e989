"""A real client on a closed segment that a disk has damaged: it receives an error, and nothing of the damage.

The consumers are processes of their own: bytes that are no batch have aborted librdkafka.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kit.broker import BrokerProcess

RECORDS, AT_ONCE, VALUE_BYTES = 900, 10, 1000
PAGE_BYTES = 4096
CONSUMER = """
import json, sys, time
from confluent_kafka import Consumer, KafkaError, TopicPartition
bootstrap, wait_s = sys.argv[1], float(sys.argv[2])
consumer = Consumer({
    "bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "fetch.error.backoff.ms": 20,
})
consumer.assign([TopicPartition("spoilt", 0, 0), TopicPartition("whole", 0, 0)])
offsets, errors, ended = {"spoilt": [], "whole": []}, [], set()
end_s = time.monotonic() + wait_s
while time.monotonic() < end_s and not (errors and "whole" in ended) and len(ended) < 2:
    message = consumer.poll(0.2)
    if message is None:
        continue
    if message.error() is None:
        assert message.value() == b"%04d" % message.offset() * 250, message.offset()
        offsets[message.topic()].append(message.offset())
    elif message.error().code() == KafkaError._PARTITION_EOF:
        ended.add(message.topic())
    else:
        errors.append([message.topic(), message.error().name()])
consumer.close()
print(json.dumps([offsets, errors]))
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that was stopped, with two topics of several closed segments each."""
    broker = BrokerProcess(tmp_path / "data", {"log.segment.bytes": "262144", "log.index.interval.bytes": "4096"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for answer in admin.create_topics([NewTopic("spoilt", 1), NewTopic("whole", 1)]).values():
            answer.result(30)
        settings = {"bootstrap.servers": broker.bootstrap, "batch.num.messages": AT_ONCE, "linger.ms": 1_000}
        producer = confluent_kafka.Producer(settings)
        for number in range(RECORDS):
            for topic in ("spoilt", "whole"):
                producer.produce(topic, b"%04d" % number * (VALUE_BYTES // 4), partition=0)
        assert producer.flush(30) == 0
        broker.stop()
        yield broker


def closed_segment(broker: BrokerProcess) -> Path:
    _, path, *_ = sorted((broker.directory / "spoilt-0").glob("*.log"))
    return path


def consumed(broker: BrokerProcess, wait_s: float = 30) -> tuple[list[int], list[int], list[list[str]]]:
    """What a consumer with the defaults (no `check.crcs`) is handed of both topics, and which errors it receives."""
    command = [sys.executable, "-c", CONSUMER, broker.bootstrap, str(wait_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=wait_s + 30, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    offsets, errors = json.loads(done.stdout)
    return offsets["spoilt"], offsets["whole"], errors


def check(broker: BrokerProcess, spoilt_from: range) -> None:
    spoilt, whole, errors = consumed(broker)
    assert whole == list(range(RECORDS))
    assert errors
    assert all(error == ["spoilt", "INVALID_MSG"] for error in errors)
    assert spoilt == list(range(len(spoilt)))
    assert len(spoilt) in spoilt_from
    lines = [line for line in broker.output.splitlines() if "damaged" in line]
    assert len(lines) == 1, lines
    assert "ERROR" in lines[0]
    assert "spoilt-0: damaged: a read of offset" in lines[0]


@pytest.mark.parametrize("page", [0, 1, 7, 20, 40])
def test_a_zeroed_page_is_a_corrupt_message_and_what_lies_before_it_is_read(broker: BrokerProcess, page: int) -> None:
    path = closed_segment(broker)
    with path.open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(bytes(PAGE_BYTES))
    broker.start()
    first = int(path.stem) + page * PAGE_BYTES // (VALUE_BYTES + 20)
    check(broker, range(first - AT_ONCE, first + 1))


@pytest.mark.parametrize("is_served", [False, True])
def test_a_closed_segment_that_lost_its_end_is_a_corrupt_message_and_what_lies_before_is_read(
    broker: BrokerProcess, is_served: bool
) -> None:
    path = closed_segment(broker)
    if is_served:
        broker.start()
        assert consumed(broker) == (list(range(RECORDS)), list(range(RECORDS)), [])
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 100)
    if not is_served:
        broker.start()
    end = int(sorted(path.parent.glob("*.log"))[2].stem)
    check(broker, range(end - AT_ONCE, end))
