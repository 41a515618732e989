"""What a broker tells of the cluster may be wrong, or of another moment: the client goes on, nothing stays behind."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.inside_clients import cluster_view

from ottla.client import Consumer, ErrorCode, KafkaError, Producer
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.records.batch import Record, encode_batch

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
NEVER_AGAIN = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
"""A pause beyond every timeout: the first failure is the last."""
T0 = ("t", 0)


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        yield running


def fill(partition, count):
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(count)])))
    partition.end = count


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("127.0.0.1", -1), ("a..b", 9092), ("a\0b", 9092)])
async def test_an_address_that_cannot_be_is_a_broker_that_cannot_be_reached(cluster, host, port):
    (partition,) = cluster.add_topic("t", 1)
    described = cluster.metadata

    def misled(request, _version):
        answer = described(request)
        answer.brokers[1].host, answer.brokers[1].port = host, port
        return answer

    cluster.handlers[MetadataRequest] = misled
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        delivery = await producer.send("t", b"x")
        asked = len(cluster.seen(MetadataRequest))
        while len(cluster.seen(MetadataRequest)) < asked + 3:
            await asyncio.sleep(0)
        del cluster.handlers[MetadataRequest]
        assert (await delivery).offset == 0
    assert partition.values == [b"x"]


async def test_a_question_about_a_topic_that_fails_does_not_end_the_reading_of_it(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 3)
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer:
        consumer.assign([T0])
        assert (await consumer.getone()).offset == 0
        known = cluster.topics.pop("t")
        await cluster_view(consumer).refresh()
        asking = asyncio.create_task(consumer.partitions_for("t"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        cluster.topics["t"] = known
        consumer.seek(T0, 1)
        assert (await consumer.getone()).offset == 1


async def test_a_topic_that_was_only_asked_about_is_not_asked_about_again(cluster):
    cluster.add_topic("t")
    async with Consumer(cluster.bootstrap, **NEVER_AGAIN) as consumer:
        with pytest.raises(KafkaError) as refused:
            await consumer.partitions_for("missing")
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for _ in range(2):  # the first may be one that was on its way
            await cluster_view(consumer).refresh()
        assert cluster.seen(MetadataRequest)[-1].topics == []


async def test_a_connection_that_comes_about_after_its_broker_has_left_is_closed(cluster):
    cluster.add_topic("t", 1)
    async with Consumer(cluster.bootstrap, **QUICK) as consumer:
        await consumer.end_offsets([T0])
        (old,) = [w for w in cluster.writers if w.get_extra_info("sockname")[1] == cluster.ports[1]]
        old.transport.abort()
        while cluster_view(consumer).open_connection(1) is not None:
            await asyncio.sleep(0)
        cluster.handlers[ApiVersionsRequest] = lambda _request, _version: SILENCE
        waiting = asyncio.create_task(consumer.end_offsets([T0]))
        before = len(cluster.seen(ApiVersionsRequest))
        while len(cluster.seen(ApiVersionsRequest)) == before:
            await asyncio.sleep(0)
        ports, cluster.ports = cluster.ports, cluster.ports[:1]
        await cluster_view(consumer).refresh()
        cluster.ports = ports
        (dialling,) = [t for t in asyncio.all_tasks() if t.get_name() == f"ottla-dial-127.0.0.1:{ports[1]}"]
        waiting.cancel()
    assert dialling.done()
