"""A Fetch of one partition that is made from the one before it: the bytes are those of one that is encoded."""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import FakeCluster

from ottla.client import Consumer, Producer
from ottla.client.connection import Connection
from ottla.client.fetcher import Fetcher
from ottla.protocol.api.fetch import FetchRequest

RECORDS = 4
FETCH = b"\0\1"
"""The API key, in front of a request."""


def fetched_offsets(cluster):
    return [request.topics[0].partitions[0].fetch_offset for request in cluster.seen(FetchRequest)]


class Recording:
    """A transport that keeps the Fetches that are written, without their correlation ids."""

    def __init__(self, transport, fetches):
        self.transport = transport
        self.fetches = fetches

    def write(self, data):
        if data[4:6] == FETCH:
            self.fetches.add(bytes(data[:8]) + bytes(data[12:]))
        self.transport.write(data)

    def writelines(self, buffers):
        self.write(b"".join(buffers))

    def __getattr__(self, name):
        return getattr(self.transport, name)


async def read_one_by_one(monkeypatch, version, isolation_level, *, is_known):
    """What Fetches a consumer writes that reads some batches, by one way or by the other."""
    fetches = set()
    made = Connection.connection_made
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "connection_made", lambda connection, to: made(connection, Recording(to, fetches)))
        if not is_known:
            patch.setattr(Fetcher, "_fetch_as_known", lambda *_: False)
        async with FakeCluster() as cluster:
            cluster.add_topic("t")
            cluster.versions[FetchRequest.message_key] = (0, version)
            async with (
                Producer(cluster.bootstrap) as producer,
                Consumer(
                    cluster.bootstrap, auto_offset_reset="earliest", isolation_level=isolation_level, client_id="reader"
                ) as consumer,
            ):
                for number in range(RECORDS):
                    await producer.send_and_wait("t", b"%d" % number)
                consumer.assign([("t", 0)])
                for number in range(RECORDS):  # each is a batch of its own, and an answer has one
                    record = await consumer.getone()
                    assert (record.offset, record.value) == (number, b"%d" % number)
                while fetched_offsets(cluster)[-1] != RECORDS:
                    await asyncio.sleep(0)
    return fetches


@pytest.mark.parametrize("version", [11, 12, 13, 18])
@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_a_fetch_made_from_the_one_before_has_the_bytes_of_one_that_is_encoded(
    monkeypatch, version, isolation_level
):
    encoded = await read_one_by_one(monkeypatch, version, isolation_level, is_known=False)
    assert len(encoded) == RECORDS + 1  # from each offset
    assert await read_one_by_one(monkeypatch, version, isolation_level, is_known=True) == encoded
