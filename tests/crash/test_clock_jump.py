"""A real broker whose wall clock jumps a month ahead deletes nothing, in life or at a start, until it is trusted."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from kit.broker import BrokerProcess
from kit.command import run
from kit.wrong_clock import WrongClock

MONTH_MS = 30 * 86_400_000
RECORDS = 100
WAIT_S = 30.0
CHECKS = {"log.retention.check.interval.ms": "50", "producer.id.expiration.check.interval.ms": "50"}


def bounds(broker: BrokerProcess) -> tuple[int, int]:
    """First and next offset of the topic's partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=WAIT_S)
        return low, high
    finally:
        consumer.close()


def wait_for(broker: BrokerProcess, words: str) -> None:
    """Until the broker says so."""
    deadline = time.monotonic() + WAIT_S
    while not re.search(words, broker.output):
        assert time.monotonic() < deadline, broker.output[-2000:]
        time.sleep(0.02)


def steps_of_retention(http: str) -> int:
    """How often retention has looked, as `/metrics` counts it."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=WAIT_S) as answer:
        found = re.search(rb'ottla_chore_steps_total\{chore="retention"\} (\S+)', answer.read())
    assert found is not None
    return int(float(found[1]))


def test_a_month_ahead_deletes_nothing_before_the_clock_is_trusted(tmp_path: Path) -> None:
    clock = WrongClock(tmp_path / "clock")
    overrides = {"ottla.http.listener": "127.0.0.1:0", "num.partitions": "1", **CHECKS}
    broker = BrokerProcess(tmp_path / "data", overrides, clock.environment)
    with broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(WAIT_S) == 0
        clock.set(MONTH_MS)
        wait_for(broker, "ERROR .* 30.0 days ahead")
        http = re.search(r"health and metrics at http://(\S+) ", broker.output)
        assert http is not None
        before = steps_of_retention(http[1])
        deadline = time.monotonic() + WAIT_S
        while steps_of_retention(http[1]) < before + 3:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert bounds(broker) == (0, RECORDS)
        broker.kill()
        broker.start()
        wait_for(broker, "(?s)ERROR .* 30.0 days ahead.*ERROR .* 30.0 days ahead")
        assert bounds(broker) == (0, RECORDS)
        https = re.findall(r"health and metrics at http://(\S+) ", broker.output)
        assert "30.0 days ahead" in run("log", "trust-clock", "--http", https[-1]).out
        wait_for(broker, "orders-0: retention deleted")
        assert bounds(broker) == (RECORDS, RECORDS)
