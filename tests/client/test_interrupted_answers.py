"""An interrupt or an exception while an answer is processed: no later record is acknowledged that the broker lacks, and
no call waits for ever.

A program whose event loop runs by `run_until_complete`, as in a notebook, continues with its producer after a Ctrl-C.
"""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import FakeCluster
from kit.threaded_cluster import threaded

from ottla.client import KafkaError, Producer
from ottla.client.accumulator import Batch
from ottla.client.sender import Sender
from ottla.client_core.partition_queue import PartitionQueue
from ottla.client_core.send_queues import SendQueues

LIMIT_S = 10
"""For what should end at once, or after the delivery timeout of these producers."""
QUICK = {"linger_ms": 0, "request_timeout_ms": 100, "delivery_timeout_ms": 300, "max_block_ms": 300}


@pytest.fixture
def cluster():
    with threaded(FakeCluster()) as running:
        running.add_topic("t")
        yield running


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def raising_once(monkeypatch, owner, name, error, *, is_after):
    """Let a method raise in its first call, before or after its work."""
    method, raised = getattr(owner, name), []

    def call(*arguments):
        if raised:
            return method(*arguments)
        raised.append(error)
        if is_after:
            method(*arguments)
        raise error

    monkeypatch.setattr(owner, name, call)
    return raised


def end_of(loop, task):
    """Return the offset that a call reports; None if it raises."""

    async def wait():
        await asyncio.wait([task], timeout=LIMIT_S)

    loop.run_until_complete(wait())
    assert task.done(), "the call waits for ever"
    try:
        return task.result().offset
    except (KafkaError, KeyboardInterrupt, MemoryError):
        return None


PLACES = [
    (Sender, "on_appended", False),
    (SendQueues, "appended", False),
    (PartitionQueue, "appended", True),
    (SendQueues, "appended", True),
    (Batch, "wake", False),
]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize(
    ("owner", "name", "is_after"),
    PLACES,
    ids=[f"{owner.__name__}.{name}-{'after' if is_after else 'before'}" for owner, name, is_after in PLACES],
)
def test_what_is_acknowledged_after_an_interrupted_answer_is_in_the_log(
    cluster, loop, monkeypatch, owner, name, is_after, error
):
    (partition,) = cluster.topics["t"]
    producer = Producer(cluster.bootstrap, **QUICK)
    loop.run_until_complete(producer.start())
    loop.run_until_complete(producer.send_and_wait("t", b"0"))
    with monkeypatch.context() as interrupting:
        raised = raising_once(interrupting, owner, name, error, is_after=is_after)
        waiting = loop.create_task(producer.send_and_wait("t", b"1"))
        try:
            end_of(loop, waiting)
        except KeyboardInterrupt:
            end_of(loop, waiting)
        assert raised
    for value in (b"2", b"3"):
        offset = end_of(loop, loop.create_task(producer.send_and_wait("t", value)))
        assert offset is None or partition.values[offset] == value
    loop.run_until_complete(asyncio.wait_for(producer.close(), LIMIT_S))


def test_an_answer_that_cannot_be_processed_does_not_stop_the_records_after_it(cluster, loop, monkeypatch):
    """They are sent, or raise what has ended the producer; they do not wait for the delivery timeout."""
    producer = Producer(cluster.bootstrap, max_in_flight_requests_per_connection=1, **QUICK)
    loop.run_until_complete(producer.start())
    loop.run_until_complete(producer.send_and_wait("t", b"0"))
    raising_once(monkeypatch, Sender, "on_appended", RuntimeError("injected"), is_after=False)
    end_of(loop, loop.create_task(producer.send_and_wait("t", b"1")))
    sending = loop.create_task(producer.send_and_wait("t", b"2"))
    end_of(loop, sending)
    assert "not delivered before the timeout" not in str(sending.exception())
    loop.run_until_complete(asyncio.wait_for(producer.close(), LIMIT_S))
