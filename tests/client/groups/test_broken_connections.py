"""Connections that break, at any moment of a member's life, lose no record and leave nobody stuck."""

from __future__ import annotations

import asyncio

import pytest
from kit.consumers import Heard, reading, until

from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.api.heartbeat import HeartbeatRequest
from ottla.protocol.api.join_group import JoinGroupRequest
from ottla.protocol.api.offset_commit import OffsetCommitRequest
from ottla.protocol.api.offset_fetch import OffsetFetchRequest
from ottla.protocol.api.sync_group import SyncGroupRequest
from ottla.protocol.records.batch import Record, encode_batch, set_offset_and_epoch

ALL = [0, 1, 2, 3]
BATCHES = 30
PROTOCOLS = {
    "range": {"partition_assignment_strategy": "range"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
def much(group):
    """300 more records in each partition, and a target for the consumer protocol."""
    group.target = {"t": ALL}
    for partition in group.cluster.topics["t"]:
        for _ in range(BATCHES):
            batch = bytearray(encode_batch([Record(n, n, None, b"x") for n in range(10)]))
            set_offset_and_epoch(batch, partition.end, 0)
            partition.batches.append(bytes(batch))
            partition.end += 10
    return group


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_member_reads_everything_through_broken_connections(much, consumer_of, protocol):
    heard = Heard()
    async with consumer_of(**PROTOCOLS[protocol], auto_commit_interval_ms=5) as consumer:
        async with reading(consumer) as found:
            consumer.subscribe(["t"], listener=heard)
            for _ in range(40):
                much.cluster.drop_connections()
                await asyncio.sleep(0.003)
            end = 10 + 10 * BATCHES
            await until(lambda: {(one.partition, one.offset) for one in found.records} >= {(p, end - 1) for p in ALL})
        assert found.failures == []
    read = {(one.partition, one.offset) for one in found.records}
    assert read == {(partition, offset) for partition in ALL for offset in range(end)}
    assert much.committed == {("t", partition): (end, "", 0) for partition in ALL}


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("range", JoinGroupRequest),
        ("range", SyncGroupRequest),
        ("range", HeartbeatRequest),
        ("range", OffsetFetchRequest),
        ("range", OffsetCommitRequest),
        ("consumer", ConsumerGroupHeartbeatRequest),
        ("consumer", OffsetFetchRequest),
    ],
)
async def test_an_answer_that_never_comes_is_asked_for_again(much, consumer_of, protocol, kind, monkeypatch):
    monkeypatch.setattr("ottla.client.groups.classic._JOIN_GRACE_MS", 10)
    heard = Heard()
    timeouts = {"request_timeout_ms": 100, "rebalance_timeout_ms": 100}
    async with consumer_of(**PROTOCOLS[protocol], **timeouts, auto_commit_interval_ms=5) as consumer:
        async with reading(consumer) as found:
            if kind is not HeartbeatRequest:
                much.silent.add(kind)
            consumer.subscribe(["t"], listener=heard)
            await until(lambda: much.count(kind))
            much.silent.add(kind)
            seen = much.count(kind)
            await until(lambda: much.count(kind) > seen)
            much.silent.clear()
            await until(lambda: len(found.records) >= 4 * (10 + 10 * BATCHES))
        assert found.failures == []
