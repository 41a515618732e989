"""What a client measures: totals, averages of late, and Kafka's names for them."""

from __future__ import annotations

import math

import pytest
from kit.fake_broker import FakeCluster, Fault
from kit.fake_transactions import FakeTransactions

from ottla.client import (
    Admin,
    ClientClosed,
    Consumer,
    ErrorCode,
    GroupMetadata,
    KafkaError,
    Producer,
    TopicPartition,
)
from ottla.client.metrics import MOST_ROWS, ROWS_S, SAMPLE_S, Spread, SpreadRows


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def test_averages_and_maxima_forget_and_totals_do_not():
    spread = Spread(0)
    assert math.isnan(spread.average(0))
    assert math.isnan(spread.largest(0))
    spread.add(10, 1)
    spread.add(20, 2)
    assert (spread.average(3), spread.largest(3)) == (15, 20)
    spread.add(2, 31)  # the second sample
    assert (spread.average(31), spread.largest(31)) == (32 / 3, 20)
    spread.add(4, 62)  # the third: the first is forgotten
    assert (spread.average(62), spread.largest(62)) == (3, 4)
    assert math.isnan(spread.average(200))
    assert (spread.count, spread.total) == (4, 36)


def test_a_rate_is_of_the_time_that_was_watched():
    spread = Spread(100)
    for second in range(10):
        spread.add(5, 100 + second)
    assert spread.rate(110) == 1.0
    assert spread.sum_rate(110) == 5.0
    assert spread.rate(109.5) == 10 / 9.5
    assert spread.rate(131) == 10 / 31
    assert spread.rate(200) == 0


@pytest.mark.parametrize("step_s", [0.001, ROWS_S, 5, SAMPLE_S, 3 * SAMPLE_S])
def test_rows_are_counted_as_their_values_would_be_one_by_one(step_s):
    one_by_one, first, second = Spread(0), Spread(0), Spread(0)
    rows = SpreadRows(0, first, second)
    for number in range(2 * MOST_ROWS):
        now = number * step_s
        rows.add(now, number % 7, -number)
        one_by_one.add(number % 7, now)
    rows.add_up(now)
    assert first.lately(now) == one_by_one.lately(now)
    assert (first.count, first.total) == (one_by_one.count, one_by_one.total)
    assert second.total == -sum(range(2 * MOST_ROWS))


def test_few_rows_wait():
    spread = Spread(0)
    rows = SpreadRows(0, spread)
    counted = []
    for _ in range(MOST_ROWS + 1):
        rows.add(0, 1)
        counted.append(spread.count)
    assert counted == [0] * MOST_ROWS + [MOST_ROWS]
    rows.add(ROWS_S, 1)
    assert spread.count == MOST_ROWS + 1


async def test_a_producer_counts_records_batches_and_requests(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, retry_backoff_ms=1, compression_type="gzip") as producer:
        before = producer.metrics()
        assert before["record-send-total"] == 0
        assert math.isnan(before["batch-size-avg"])
        for _ in range(50):
            await producer.send("t", bytes(100))
        await producer.flush()
        partition.faults.append(Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        await producer.send_and_wait("t", b"x")
        partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused")
        found = producer.metrics()
        assert found["record-send-total"] == 52
        assert found["record-retry-total"] == 1
        assert found["record-error-total"] == 1
        assert found["byte-total"] > sum(map(len, partition.batches))  # the refused one was sent too
        assert found["batch-size-max"] == max(map(len, partition.batches))
        assert found["compression-rate-avg"] < 1.5
        assert found["records-per-request-avg"] == 53 / 4
        assert found["request-total"] - before["request-total"] >= 4
        assert found["outgoing-byte-total"] > found["byte-total"]
        assert found["incoming-byte-total"] > 0
        assert found["request-latency-max"] >= found["request-latency-avg"] > 0
        assert found["record-queue-time-max"] >= found["record-queue-time-avg"] >= 0
        assert found["buffer-available-bytes"] == found["buffer-total-bytes"] == 32 * 1024 * 1024
        assert found["connection-count"] == 2  # the bootstrap server's, and the broker's
        assert all(isinstance(value, (int, float)) for value in found.values())


async def test_a_transactional_producer_counts_the_time_of_the_calls_that_succeed(cluster):
    FakeTransactions(cluster, version=2).topic("t")
    names = [f"txn-{call}-time-ns-total" for call in ("init", "begin", "send-offsets", "commit", "abort")]
    async with Producer(cluster.bootstrap, transactional_id="mine", retry_backoff_ms=1) as producer:

        def spent() -> list[bool]:
            found = producer.metrics()
            return [found[name] > 0 for name in names]

        assert spent() == [True, False, False, False, False]
        with pytest.raises(RuntimeError):
            await producer.commit_transaction()
        assert spent() == [True, False, False, False, False]
        async with producer.transaction() as transaction:
            await transaction.send_offsets(GroupMetadata("g", -1, "", None), {TopicPartition("in", 0): 5})
        assert spent() == [True, True, True, True, False]
        async with producer.transaction() as transaction:
            await producer.send("t", b"a")
            await transaction.abort()
        assert spent() == [True] * 5
    async with Producer(cluster.bootstrap) as producer:
        assert not producer.metrics().keys() & names


async def test_a_consumer_counts_what_it_took_and_how_far_behind_it_is(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        for n in range(20):
            await producer.send("t", b"%d" % n)
    t0 = TopicPartition("t", 0)
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        assert math.isnan(consumer.metrics()["records-lag-max"])
        consumer.assign([t0])
        assert consumer.lag(t0) == -1
        for _ in range(5):
            await consumer.getone()
        found = consumer.metrics()
        assert consumer.lag(t0) == found["records-lag-max"] == found["records-lag{topic=t,partition=0}"] == 15
        assert found["records-consumed-total"] == 20  # counted by batch
        assert found["bytes-consumed-total"] == found["fetch-size-max"] == len(partition.batches[0])
        assert found["fetch-total"] == 1
        assert found["fetch-latency-max"] > 0
        assert found["assigned-partitions"] == 1


async def test_an_admin_counts_its_requests(cluster):
    cluster.add_topic("t")
    async with Admin(cluster.bootstrap) as admin:
        await admin.list_topics()  # which dials the broker by its own address
        before = admin.metrics()["request-total"]
        await admin.list_topics()
        assert admin.metrics()["request-total"] == before + 1


def test_a_client_that_was_not_started_has_no_metrics():
    for client in (Producer, Consumer, Admin):
        with pytest.raises(ClientClosed):
            client("localhost:1").metrics()
