"""A record that cannot be written is refused alone, when it is sent: what else is in its batch arrives unharmed."""

from __future__ import annotations

import pytest
from kit.fake_broker import FakeCluster

from ottla.client import Producer

LARGEST_TIMESTAMP_MS = 2**63 - 1


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest.mark.parametrize("headers", [[("h", "text")], [("\ud800", b"v")], [(b"bytes", b"v")]])
async def test_headers_that_cannot_be_encoded_leave_the_batch_as_it_was(cluster, headers):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        before = await producer.send("t", b"before")
        with pytest.raises((TypeError, ValueError, AttributeError)):
            await producer.send("t", b"refused", headers=headers)
        after = await producer.send("t", b"after")
        await producer.flush()
        assert [(await before).offset, (await after).offset] == [0, 1]
    assert partition.values == [b"before", b"after"]


async def test_a_first_record_that_cannot_be_encoded_leaves_no_empty_batch(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        with pytest.raises(TypeError):
            await producer.send("t", b"refused", headers=[("h", "text")])
        await producer.flush()
        assert (await producer.send_and_wait("t", b"after")).offset == 0
    assert partition.values == [b"after"]


async def test_a_timestamp_beyond_64_bits_is_refused(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        with pytest.raises(ValueError, match="timestamp_ms"):
            await producer.send("t", b"refused", timestamp_ms=LARGEST_TIMESTAMP_MS + 1)
        await producer.send_and_wait("t", b"taken", timestamp_ms=LARGEST_TIMESTAMP_MS)
    assert partition.values == [b"taken"]
