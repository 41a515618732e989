"""A blocking share consumer that several threads read: each works on records of its own."""

from __future__ import annotations

import threading
import time

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_share_group import FakeShareGroup
from kit.threaded_cluster import LIMIT_S, threaded

from ottla.client import ClientClosed
from ottla.client.blocking import ShareConsumer
from ottla.protocol.api.share_fetch import ShareFetchRequest
from ottla.protocol.records.batch import Record, encode_batch

QUICK = {"group_id": "g", "retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "fetch_max_wait_ms": 20}


@pytest.fixture
def group():
    """A share group, with a topic of one partition with three records."""
    cluster = FakeCluster()
    (partition,) = cluster.add_topic("t")
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(3)])))
    partition.end = 3
    with threaded(cluster):
        yield FakeShareGroup(cluster, {"t": [0]})


@pytest.fixture
def consumer(group):
    with ShareConsumer(group.cluster.bootstrap, share_acknowledgement_mode="explicit", **QUICK) as consumer:
        consumer.subscribe(["t"])
        yield consumer


def in_thread(work):
    """What `work` returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(LIMIT_S)
    return found[0]


def wait_until(is_so):
    """The cluster and the consumer have threads of their own."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_poll_of_one_thread_leaves_the_records_of_another_one_alone(group, consumer):
    first = next(iter(consumer))
    other = in_thread(lambda: next(iter(consumer)))
    third = in_thread(lambda: next(iter(consumer)))
    consumer.acknowledge(first)
    consumer.acknowledge(third)
    assert consumer.getmany(timeout_ms=50) == {}
    consumer.acknowledge(other)
    assert consumer.commit() == {("t", 0): None}
    assert group.accepted("t", 0) == [0, 1, 2]


@pytest.mark.parametrize("timeout_ms", [-1, float("nan")])
def test_a_poll_whose_time_is_over_waits_for_nothing(consumer, timeout_ms):
    assert consumer.getmany(timeout_ms=timeout_ms) == {}


def test_a_thread_alone_must_acknowledge_before_its_next_poll(group, consumer):
    for _ in range(3):
        next(iter(consumer))
    with pytest.raises(RuntimeError, match="3 records of the last poll are not acknowledged"):
        consumer.getmany(timeout_ms=50)


def test_what_a_thread_acknowledges_is_sent_while_the_poll_of_another_one_waits(group, consumer):
    """It waited until that poll had records, and by then the locks might have ended."""
    records = [next(iter(consumer)) for _ in range(3)]

    def wait_for_more():
        with pytest.raises(ClientClosed):
            consumer.getone()
        return True

    ended = []
    waiting = threading.Thread(target=lambda: ended.append(wait_for_more()))
    sent = len(group.cluster.seen(ShareFetchRequest))
    waiting.start()
    wait_until(lambda: len(group.cluster.seen(ShareFetchRequest)) > sent)
    for record in records:
        consumer.acknowledge(record)
    wait_until(lambda: group.accepted("t", 0) == [0, 1, 2])
    consumer.close()
    waiting.join(LIMIT_S)
    assert ended == [True]
