"""Who waits for room in `buffer_memory` gets it in the order of the calls, or sends nothing at all."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import SILENCE, FakeCluster

from ottla.client import Producer
from ottla.protocol.api.produce import ProduceRequest

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
SMALL = {"buffer_memory": 2000, "batch_size": 0, "linger_ms": 0, **QUICK}


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


async def full(cluster, producer):
    """Fill the memory with a record that stays until the broker answers again."""
    cluster.handlers[ProduceRequest] = lambda _request, _version: SILENCE
    await producer.send("t", b"f" * 1500)
    while not cluster.seen(ProduceRequest):
        await asyncio.sleep(0)


def answer_again(cluster):
    del cluster.handlers[ProduceRequest]
    cluster.drop_connections()


async def test_a_later_call_does_not_take_the_room_that_an_earlier_one_waits_for(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **SMALL) as producer:
        await full(cluster, producer)
        waiting = [asyncio.create_task(producer.send("t", b"%d" % n * 1000)) for n in range(3)]
        while producer.metrics()["waiting-threads"] < 3:
            await asyncio.sleep(0)
        last = asyncio.create_task(producer.send("t", b"last"))  # there would be room for this one
        await asyncio.sleep(0)
        answer_again(cluster)
        await asyncio.gather(*waiting, last)
    assert [value[:1] for value in partition.values] == [b"f", b"0", b"1", b"2", b"l"]


async def test_one_who_gives_up_waiting_lets_the_next_one_in(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **SMALL) as producer:
        await full(cluster, producer)
        large = asyncio.create_task(producer.send("t", b"l" * 1000))
        small = asyncio.create_task(producer.send("t", b"s"))
        while producer.metrics()["waiting-threads"] < 2:
            await asyncio.sleep(0)
        large.cancel()
        await small
        answer_again(cluster)
    assert [value[:1] for value in partition.values] == [b"f", b"s"]


async def test_a_send_that_is_cancelled_has_sent_nothing(cluster):
    """Wherever it waits: for a batch that is full it lets others run before the record is taken, not after."""
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, batch_size=0, linger_ms=0, **QUICK) as producer:
        await producer.send_and_wait("t", b"first")
        outcomes = []
        for rounds in range(4):
            sending = asyncio.create_task(producer.send("t", b"%d" % rounds))
            for _ in range(rounds):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                outcomes.append(b"%d" % rounds)
    assert partition.values == [b"first", *outcomes]
