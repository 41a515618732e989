"""A partition that cannot be read holds up no other, is reported each time, and is not asked about in a circle."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster
from kit.inside_clients import cluster_view

from ottla.client import Consumer, ErrorCode, KafkaError, TopicPartition
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.records.batch import Record, encode_batch

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
NEVER_AGAIN = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
"""A pause beyond every timeout: the first failure is the last."""
SLOW_TO_RETRY = {**QUICK, "retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def fill(partition, count):
    partition.batches.append(bytes(encode_batch([Record(n, n, None, b"%d" % n) for n in range(count)])))
    partition.end = count


async def test_a_partition_without_a_leader_holds_up_no_other_whose_position_is_looked_up(cluster):
    _, second = cluster.add_topic("t", -1, 0)
    fill(second, 3)
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer:
        consumer.assign([T0, T1])
        assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]
        assert await consumer.position(T1) == 3


async def test_what_is_found_of_offsets_is_not_all_that_was_asked_for(cluster):
    cluster.add_topic("t", -1, 0)
    async with Consumer(cluster.bootstrap, **NEVER_AGAIN) as consumer:
        with pytest.raises(KafkaError) as refused:
            await consumer.end_offsets([T0, T1])
        assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_position_that_nobody_chose_is_told_by_every_poll(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 1)
    async with Consumer(cluster.bootstrap, auto_offset_reset="none", **QUICK) as consumer:
        consumer.assign([T0])
        for _ in range(2):
            with pytest.raises(KafkaError, match="no position was sought"):
                await consumer.getmany(timeout_ms=60_000)
        consumer.seek(T0, 0)
        assert (await consumer.getone()).offset == 0


async def test_bytes_that_are_no_batch_are_not_asked_for_again_while_sound_ones_wait_to_be_read(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 3)
    broken = bytearray(partition.batches[0])
    broken[8:12] = (-1).to_bytes(4, "big", signed=True)
    partition.batches[0] += bytes(broken)
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **SLOW_TO_RETRY) as consumer:
        consumer.assign([T0])
        assert (await consumer.getone()).offset == 0
        for _ in range(50):
            consumer._fetcher.wake()
            await cluster_view(consumer).refresh()  # a visit to the broker, which a Fetch would come before
        assert len(cluster.seen(FetchRequest)) == 1
        assert [(await consumer.getone()).offset for _ in range(2)] == [1, 2]
