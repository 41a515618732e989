"""With acks=0 a record counts as sent when its connection has taken it, so what that holds leaves before it ends."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import FakeCluster
from kit.inside_clients import cluster_view

from ottla.client import Producer

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
LARGE = bytes(900_000)


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


async def test_what_the_socket_has_not_taken_yet_leaves_before_the_producer_is_closed(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, acks=0, send_buffer_bytes=4096, **QUICK) as producer:
        await producer.send("t", LARGE)
    while not partition.batches and cluster.is_read:
        await asyncio.sleep(0)
    assert partition.values == [LARGE]


async def test_a_batch_that_waits_for_a_full_connection_takes_another_when_that_ends(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, acks=0, request_timeout_ms=30_000, delivery_timeout_ms=30_100, **QUICK) as p:
        await p.send_and_wait("t", b"first")
        while partition.values != [b"first"]:
            await asyncio.sleep(0)
        connection = cluster_view(p).open_connection(0)
        connection.pause_writing()  # as the transport does when the broker does not read
        delivery = await p.send("t", b"second")
        while connection.on_writable is None:
            await asyncio.sleep(0)
        cluster.drop_connections()
        await delivery
        while partition.values != [b"first", b"second"]:
            await asyncio.sleep(0)
