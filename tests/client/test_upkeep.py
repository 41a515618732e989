"""What clients do without being asked: metadata that is refreshed and forgotten, idle connections, retries that end."""

from __future__ import annotations

import asyncio
import importlib.metadata

import pytest
from kit.fake_broker import HANG_UP, FakeCluster

import ottla
from ottla.client import Admin, Consumer, KafkaError, Producer, TopicPartition
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.metadata import MetadataRequest

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


async def test_an_idle_connection_is_closed_and_made_again_when_it_is_needed(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, connections_max_idle_ms=20, **QUICK) as producer:
        for number in range(2):
            await producer.send_and_wait("t", b"%d" % number)
            while producer.metrics()["connection-count"]:
                await asyncio.sleep(0)
        assert producer.metrics()["connection-close-total"] >= 2
    assert partition.values == [b"0", b"1"]


async def test_a_connection_on_which_an_answer_is_awaited_is_not_idle(cluster):
    cluster.add_topic("t")
    async with Consumer(
        cluster.bootstrap, connections_max_idle_ms=300, auto_offset_reset="earliest", **QUICK
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.position(("t", 0))
        while not cluster.seen(FetchRequest):
            assert await consumer.getmany(timeout_ms=10) == {}
        # Longer than that: the fake broker parks the Fetch for ever.
        assert await consumer.getmany(timeout_ms=500) == {}
        created = consumer.metrics()["connection-creation-total"]
        assert await consumer.getmany(timeout_ms=500) == {}
        assert consumer.metrics()["connection-creation-total"] == created


async def test_idle_connections_may_stay_for_ever(cluster):
    cluster.add_topic("t")
    async with Admin(cluster.bootstrap, connections_max_idle_ms=-1) as admin:
        await admin.list_topics()
        assert admin.metrics()["connection-close-total"] == 0


async def test_a_topic_that_is_not_sent_to_is_forgotten_and_learned_again(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, metadata_max_idle_ms=0, metadata_max_age_ms=1, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        while (last := cluster.seen(MetadataRequest)[-1].topics) is None or last:
            await asyncio.sleep(0.001)  # metadata_max_age_ms is of the real clock
        await producer.send_and_wait("t", b"1")
    assert partition.values == [b"0", b"1"]


async def test_partitions_that_are_added_are_used(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, metadata_max_age_ms=1, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        _, second = cluster.add_topic("t", 0, 0)
        while await producer.partitions_for("t") != [0, 1]:
            await asyncio.sleep(0.001)
        await producer.send_and_wait("t", b"1", partition=1)
    assert second.values == [b"1"]


async def test_an_admin_tries_as_often_as_it_may(cluster):
    async with Admin(cluster.bootstrap, retries=2, **QUICK) as admin:
        before = len(cluster.seen(MetadataRequest))
        cluster.handlers[MetadataRequest] = lambda request, version: HANG_UP
        with pytest.raises(KafkaError):
            await admin.list_topics()
        assert len(cluster.seen(MetadataRequest)) <= before + 3


async def test_a_broker_is_told_the_packages_version(cluster):
    async with Admin(cluster.bootstrap):
        (asked, *_) = cluster.seen(ApiVersionsRequest)
    assert asked.client_software_name == "ottla"
    assert asked.client_software_version == ottla.__version__ == importlib.metadata.version("ottla")


async def test_socket_buffers_are_sized_on_demand(cluster):
    async with Admin(cluster.bootstrap, send_buffer_bytes=20_000, receive_buffer_bytes="30000") as admin:
        assert await admin.list_topics() == []
