"""Whoever waits for a client that somebody else closes hears ClientClosed: only a task that was cancelled is."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.inside_clients import cluster_view

from ottla.client import Admin, ClientClosed, ConnectionLost, Consumer, Producer
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.records.batch import Record, encode_batch

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
T0 = ("t", 0)


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        running.add_topic("t", 1)
        yield running


def silent(_request, _version):
    return SILENCE


async def asked(cluster, kind, count):
    """Wait until so many requests of a kind came."""
    while len(cluster.seen(kind)) < count:
        await asyncio.sleep(0)


async def end_of(waiting):
    """Return what a task ended in, waiting for it alone."""
    await asyncio.wait([waiting])
    return "cancelled" if waiting.cancelled() else type(waiting.exception())


async def test_who_waits_for_a_topic_of_a_consumer_hears_that_it_was_closed(cluster):
    async with Consumer(cluster.bootstrap, **QUICK) as consumer:
        cluster.handlers[MetadataRequest] = silent
        waiting = asyncio.create_task(consumer.partitions_for("t"))
        await asked(cluster, MetadataRequest, 2)
    assert await end_of(waiting) is ClientClosed


async def test_who_waits_for_a_connection_hears_that_the_client_was_closed(cluster):
    async with Consumer(cluster.bootstrap, **QUICK) as consumer:
        await consumer.partitions_for("t")
        cluster.handlers[ApiVersionsRequest] = silent
        before = len(cluster.seen(ApiVersionsRequest))
        waiting = asyncio.create_task(consumer.end_offsets([T0]))
        await asked(cluster, ApiVersionsRequest, before + 1)
    assert await end_of(waiting) is ClientClosed


async def test_who_waits_for_an_admin_hears_that_it_was_closed(cluster):
    async with Admin(cluster.bootstrap, **QUICK) as admin:
        cluster.handlers[MetadataRequest] = silent
        waiting = asyncio.create_task(admin.list_topics())
        await asked(cluster, MetadataRequest, 1)
    assert await end_of(waiting) in (ClientClosed, ConnectionLost)


async def test_who_sends_to_a_new_topic_hears_that_the_producer_was_closed(cluster):
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        cluster.handlers[MetadataRequest] = silent
        waiting = asyncio.create_task(producer.send("t", b"x"))
        await asked(cluster, MetadataRequest, 2)
    assert await end_of(waiting) is ClientClosed


async def test_a_task_that_is_cancelled_itself_is_cancelled(cluster):
    async with Consumer(cluster.bootstrap, **QUICK) as consumer:
        cluster.handlers[MetadataRequest] = silent
        waiting = asyncio.create_task(consumer.partitions_for("t"))
        await asked(cluster, MetadataRequest, 2)
        waiting.cancel()
        assert await end_of(waiting) == "cancelled"


async def test_a_closed_consumer_gives_no_records_that_it_had_at_hand(cluster):
    (partition,) = cluster.topics["t"]
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(3)])))
    partition.end = 3
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer:
        consumer.assign([T0])
        assert (await consumer.getone()).offset == 0
    with pytest.raises(ClientClosed):
        await consumer.getone()


@pytest.mark.parametrize("cancels", [1, 2])
async def test_a_close_that_is_cancelled_leaves_no_delivery_open(cluster, cancels):
    async with FakeCluster() as other:
        other.add_topic("t")
        producer = Producer(other.bootstrap, **QUICK)
        await producer.start()
        delivery = await producer.send("t", b"x")
        for partition in other.topics["t"]:
            partition.leader = -1
        await cluster_view(producer).refresh()
        closing = asyncio.create_task(producer.close())
        for _ in range(cancels):
            await asyncio.sleep(0)
            closing.cancel()
        assert await end_of(closing) == "cancelled"
        assert delivery.done()
        with pytest.raises(ClientClosed):
            delivery.result()


async def test_a_close_that_is_cancelled_leaves_no_task(cluster):
    before = asyncio.all_tasks()
    consumer = Consumer(cluster.bootstrap, group_id="g", **QUICK)
    await consumer.start()
    consumer.assign([T0])
    closing = asyncio.create_task(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    assert await end_of(closing) == "cancelled"
    for _ in range(20):
        await asyncio.sleep(0)
    assert {task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("ottla")} == set()
