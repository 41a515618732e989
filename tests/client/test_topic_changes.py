"""Topics that change while records are sent to them: rebuilt, grown, reported by a broker that lags."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster, Fault
from kit.inside_clients import cluster_view

from ottla.client import ErrorCode, Producer
from ottla.protocol.api.metadata import MetadataRequest

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
ONE_BY_ONE = {"batch_size": 0, "linger_ms": 0, **QUICK}


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def numbers(count):
    return [b"%d" % number for number in range(count)]


async def test_a_partition_that_a_broker_behind_the_others_did_not_tell_of_keeps_its_sequences(cluster):
    """To count from 0 again under the same producer id would make the broker take new records for old ones."""
    _, second = cluster.add_topic("t", 0, 0)
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        await producer.send_and_wait("t", b"before", partition=1)
        known = cluster.topics["t"]
        cluster.topics["t"] = known[:1]
        await cluster_view(producer).refresh()
        assert await producer.partitions_for("t") == [0]
        cluster.topics["t"] = known
        await cluster_view(producer).refresh()
        assert (await producer.send_and_wait("t", b"after", partition=1)).offset == 1
    assert second.values == [b"before", b"after"]


async def test_a_batch_for_a_partition_that_was_not_told_of_is_sent_when_it_is_again(cluster):
    _, second = cluster.add_topic("t", 0, 0)
    async with Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000, **QUICK) as producer:
        delivery = await producer.send("t", b"waits", partition=1)
        known = cluster.topics["t"]
        cluster.topics["t"] = known[:1]
        await cluster_view(producer).refresh()
        cluster.topics["t"] = known
        await cluster_view(producer).refresh()
        later = await producer.send("t", b"later", partition=1)
        await producer.flush()
        assert [(await delivery).offset, (await later).offset] == [0, 1]
    assert second.values == [b"waits", b"later"]


async def test_no_batch_overtakes_the_first_one_of_a_topic_that_was_made_anew(cluster):
    """Its broker knows no producer, lets it begin anywhere, and so would take a second before a refused first."""
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        for value in (b"a", b"b"):
            await producer.send_and_wait("t", value)
        (partition,) = cluster.create_again("t")
        partition.faults.append(Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for value in numbers(10):
            await producer.send("t", value)
        await producer.flush()
    assert partition.values == numbers(10)


async def test_a_topic_made_anew_takes_the_records_whose_first_try_was_refused(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await producer.send_and_wait("t", b"old")
        (partition,) = cluster.create_again("t")
        places = [await producer.send_and_wait("t", value) for value in numbers(3)]
        assert [place.offset for place in places] == [0, 1, 2]
    assert partition.values == numbers(3)
    assert cluster.seen(MetadataRequest)
