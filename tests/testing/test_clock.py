"""A broker's clock that a test moves: sessions, transactions, waits and retention."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ottla import Consumer, Producer
from ottla.protocol.errors import KafkaError
from ottla.testing import EmbeddedBroker
from ottla.testing.movable_clock import MovableClock


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def test_a_member_that_sends_nothing_leaves_its_group(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    silent = Consumer(broker.bootstrap_servers, group_id="g", session_timeout_ms=45_000, heartbeat_interval_ms=40_000)
    with silent:
        silent.subscribe([topic])
        while not silent.assignment():  # a member joins while the program polls, and one short poll may be too short
            silent.getmany(timeout_ms=10)
        broker.wait_for_members("g")
        broker.advance(44)
        broker.wait_for_members("g")
        broker.advance(2)
        broker.wait_for_members("g", 0)


def test_an_open_transaction_is_aborted(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    with Producer(broker.bootstrap_servers, transactional_id="t", transaction_timeout_ms=60_000) as producer:
        producer.begin_transaction()
        producer.send(topic, b"never committed").result()
        broker.advance(timedelta(minutes=2))
        with Producer(broker.bootstrap_servers) as other:
            other.send(topic, b"after it").result()
        committed = broker.wait_for_records(topic, isolation_level="read_committed")
        assert [record.value for record in committed] == [b"after it"]
        with pytest.raises(KafkaError):
            producer.commit_transaction()


def test_old_records_are_deleted(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(configs={"retention.ms": "86400000", "segment.ms": "3600000"})
    broker.send(topic, b"old")
    broker.advance(7_200)
    # A client's clock is not moved.
    broker.send(topic, b"in another segment", timestamp_ms=int(time.time() * 1000) + 7_200_000)
    broker.advance(timedelta(hours=23))
    assert [record.value for record in broker.records(topic)] == [b"in another segment"]
    broker.advance(timedelta(days=1))
    assert broker.records(topic) == []


def test_a_wait_ends(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic()
    with Consumer(broker.bootstrap_servers, fetch_max_wait_ms=3_000_000, request_timeout_ms=4_000_000) as consumer:
        consumer.assign_topics(topic)
        consumer.getmany(timeout_ms=1)
        broker.wait_for_readers(topic)
        before = fetches(broker)
        broker.advance(3_001)
        deadline = time.monotonic() + 10
        while fetches(broker) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert fetches(broker) > before


def fetches(broker: EmbeddedBroker) -> int:
    """The answered Fetch requests; the broker's own clients send none here."""
    return broker.requests("Fetch")


def test_its_records_have_its_time(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    broker.advance(3_600)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"in an hour").result()
    (record,) = broker.records(topic)
    assert record.timestamp_ms - time.time() * 1000 > 3_500_000


def test_the_time_stays_over_a_restart(broker: EmbeddedBroker) -> None:
    topic = broker.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    broker.advance(3_600)
    broker.restart()
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"in an hour").result()
    assert broker.records(topic)[0].timestamp_ms - time.time() * 1000 > 3_500_000


def test_time_does_not_go_back(broker: EmbeddedBroker) -> None:
    with pytest.raises(ValueError, match="cannot go back: -1000 ms"):
        broker.advance(-1)
    broker.advance(timedelta(days=999 * 365))
    for far in (timedelta(days=500 * 365), 1e300, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"1,000 years ahead at most|cannot be moved by"):
            broker.advance(far)
    broker.advance(0)


def test_all_clocks_are_ahead_by_the_same_time() -> None:
    clock = MovableClock()
    assert abs(clock.wall_ms() - time.time_ns() // 1_000_000) < 60_000
    before = (clock.wall_ms(), clock.wall_ns(), clock.monotonic_ms(), clock.monotonic_ns(), clock.boot_ms())
    clock.advance(10**9)
    after = (clock.wall_ms(), clock.wall_ns(), clock.monotonic_ms(), clock.monotonic_ns(), clock.boot_ms())
    for (was, is_now), unit in zip(zip(before, after, strict=True), (1, 10**6, 1, 10**6, 1), strict=True):
        assert 0 <= (is_now - was) // unit - 10**9 < 60_000
    assert clock.ahead_ms == 10**9
    assert clock.boot_id() == ""
