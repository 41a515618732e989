"""A fake cluster with one topic of four partitions, ten records in each, and a coordinator that follows a script."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster
from kit.fake_group import FakeGroup

from ottla.client import Consumer
from ottla.protocol.records.batch import Record, encode_batch, set_offset_and_epoch

QUICK = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 2,
}


def fill(partition, count, epoch=0):
    batch = bytearray(encode_batch([Record(n, n, None, b"%d" % n) for n in range(count)]))
    set_offset_and_epoch(batch, partition.end, epoch)
    partition.batches.append(bytes(batch))
    partition.end += count


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        for partition in running.add_topic("t", 0, 0, 0, 0):
            fill(partition, 10)
        yield running


@pytest.fixture
def group(cluster):
    return FakeGroup(cluster)


@pytest.fixture
def consumer_of(cluster, group):
    def make(**options):
        given = {"group_id": "g", "auto_offset_reset": "earliest", **QUICK, **options}
        if given.get("group_protocol") != "consumer":
            given.setdefault("heartbeat_interval_ms", 5)
        return Consumer(cluster.bootstrap, **given)

    return make
