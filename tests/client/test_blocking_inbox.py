"""The blocking producer's inbox: who waits for what was sent waits for nothing else, and no record stays in it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager, suppress

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.inside_clients import asyncio_client
from kit.threaded_cluster import threaded

from ottla.client import BufferExhausted, ClientClosed, KafkaError
from ottla.client.blocking import Producer
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.thread_waiter import ThreadWaiter
from ottla.protocol.api.metadata import MetadataRequest

RUN_LIMIT_S = 60
INBOX_BYTES = 256 * 1024
QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
TOO_MANY = 2000


@pytest.fixture
def cluster():
    with threaded(FakeCluster()) as running:
        yield running


def test_flush_does_not_wait_for_what_is_sent_after_it(cluster):
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, **QUICK) as producer:
        producer.send_and_wait("t", b"first")
        put, flush = asyncio_client(producer)._put_prepared, asyncio_client(producer).flush
        sent_until_flushed = []
        sent = 1

        async def put_and_send_another(record):
            nonlocal sent
            if not sent_until_flushed and sent < TOO_MANY:
                sent += 1
                producer.send("t", b"another")  # as another thread would that never stops
            await asyncio.sleep(0)
            return await put(record)

        async def flush_and_tell():
            sent_until_flushed.append(sent)
            await flush()

        asyncio_client(producer)._put_prepared, asyncio_client(producer).flush = put_and_send_another, flush_and_tell
        producer.send("t", b"one")
        producer.flush()
        assert sent_until_flushed[0] < TOO_MANY


def test_an_interrupt_while_the_loop_is_woken_leaves_no_record_behind(cluster, monkeypatch):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, **QUICK) as producer:
        producer.send_and_wait("t", b"first")
        with interrupted_posts(monkeypatch), pytest.raises(KeyboardInterrupt):
            producer.send("t", b"interrupted")
        delivery = producer.send("t", b"next")
        while not delivery.done():  # nothing but the sending may be what hands it over
            threading.Event().wait(0)
        assert delivery.result().offset == 1
    assert partition.values == [b"first", b"next"]


def test_an_interrupt_while_the_loop_is_woken_for_a_record_that_is_waited_for_leaves_nothing_behind(
    cluster, monkeypatch
):
    (partition,) = cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        producer.send_and_wait("t", b"first")
        with interrupted_posts(monkeypatch), pytest.raises(KeyboardInterrupt):
            producer.send_and_wait("t", b"interrupted")
        assert producer.send_and_wait("t", b"next").offset == 1
        producer.flush()
    assert partition.values == [b"first", b"next"]


def test_what_a_woken_thread_posts_is_done_before_the_loop_looks_again(cluster, monkeypatch):
    cluster.add_topic("t")
    order = []
    wake = ThreadWaiter.wake

    def wake_and_post(waiter):  # as a thread posts that continues at once
        asyncio.get_running_loop().call_soon(order.append, "the loop's next iteration")
        LoopThread.current.post(lambda: order.append("posted"))
        wake(waiter)

    with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        producer.send_and_wait("t", b"the way is known")
        with monkeypatch.context() as patch:
            patch.setattr(ThreadWaiter, "wake", wake_and_post)
            producer.send_and_wait("t", b"x")
        producer.flush()
    assert order == ["posted", "the loop's next iteration"]


@contextmanager
def interrupted_posts(monkeypatch):
    """What would wake the loop is interrupted before it has done anything."""

    def interrupted(_thread, _step):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "post", interrupted)
        yield


def test_where_there_is_no_eventfd_records_are_sent_all_the_same(cluster, monkeypatch):
    (partition,) = cluster.add_topic("t")
    monkeypatch.delattr("os.eventfd")
    monkeypatch.setattr(LoopThread, "current", None)  # that of this process has one
    with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        assert producer.send_and_wait("t", b"one").offset == 0
        assert producer.send("t", b"two").result().offset == 1
        thread = producer._thread
    thread.loop.call_soon_threadsafe(thread.loop.stop)
    assert partition.values == [b"one", b"two"]


def producer_that_looks_for_its_topic(cluster, **options):
    """A producer whose topic was not used for a while, at a broker that does not say where it is now."""
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, metadata_max_idle_ms=0, metadata_max_age_ms=1, **QUICK, **options)
    producer.start()
    producer.send_and_wait("t", b"first")
    while asyncio_client(producer)._queues:
        threading.Event().wait(0.001)
    cluster.handlers[MetadataRequest] = lambda _request, _version: SILENCE
    return producer


def test_a_record_for_a_topic_that_is_looked_for_again_hears_of_the_close(cluster):
    producer = producer_that_looks_for_its_topic(cluster)
    delivery = producer.send("t", b"second")
    with pytest.raises(ClientClosed):
        producer.close(timeout_ms=1)
    with pytest.raises(ClientClosed):
        delivery.result()


class Stop:
    """Where the loop's thread waits, after what was posted before."""

    def __init__(self):
        self.is_reached, self._goes_on = threading.Event(), threading.Event()
        LoopThread.current.post(self._wait)

    def _wait(self):
        self.is_reached.set()
        self._goes_on.wait(RUN_LIMIT_S)

    def go_on(self):
        self._goes_on.set()


def test_records_that_threads_wait_for_fill_the_inbox_by_their_size(cluster, monkeypatch):
    producer = producer_that_looks_for_its_topic(cluster, max_block_ms=200)
    post, has_posted = LoopThread.post, threading.Semaphore(0)

    def counted(thread, step):
        post(thread, step)
        has_posted.release()

    def send():
        with suppress(KafkaError):  # the topic is not found, or the producer is closed
            producer.send_and_wait("t", bytes(INBOX_BYTES // 2))

    senders = [threading.Thread(target=send) for _ in range(3)]  # the first is taken at once
    before = Stop()
    with monkeypatch.context() as patch:
        patch.setattr(LoopThread, "post", counted)
        for sender in senders:
            sender.start()
            assert has_posted.acquire(timeout=RUN_LIMIT_S)
    after = Stop()
    before.go_on()
    assert after.is_reached.wait(RUN_LIMIT_S)
    try:
        with pytest.raises(BufferExhausted):
            producer.send("t", b"no room")
    finally:
        after.go_on()
        with suppress(KafkaError):
            producer.close(timeout_ms=1)
    for sender in senders:
        sender.join(RUN_LIMIT_S)
