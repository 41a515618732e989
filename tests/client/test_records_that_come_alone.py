"""A record that a consumer waits for at the end of a log: few calls, and the next Fetch is written for it all the same.

As `test_records_alone.py` for producers: what it costs is counted in calls of the client's own functions.
`scripts/bench-client --bytecodes --only getone` counts bytecodes.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from kit import fake_broker
from kit.fake_broker import FakeCluster

import ottla
from ottla.client import ClientFailed, Consumer
from ottla.client.fetcher import Fetcher
from ottla.client_core.fetch_template import MOST_ALONE_BYTES
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.records.batch import Record, encode_batch

THE_CLIENTS = tuple(str(Path(ottla.__file__).parent / room) for room in ("client", "client_core"))
RECORDS = 40


@pytest.fixture
async def cluster():
    """Two topics with batches of one record. An answer has one batch of each partition."""
    async with FakeCluster() as running:
        for name in ("t", "u"):
            (partition,) = running.add_topic(name)
            partition.batches += [bytes(encode_batch([Record(n, n, None, b"%d" % n)])) for n in range(RECORDS)]
            partition.end = RECORDS
        yield running


def reader(cluster, **options):
    return Consumer(cluster.bootstrap, auto_offset_reset="earliest", **options)


def counted(monkeypatch, name):
    """The calls of a method of the fetcher."""
    calls = []
    method = getattr(Fetcher, name)
    monkeypatch.setattr(Fetcher, name, lambda fetcher, *some, **more: calls.append(1) or method(fetcher, *some, **more))
    return calls


async def test_a_record_costs_the_consumer_at_most_64_calls(cluster):
    calls = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(THE_CLIENTS):
            calls.append(frame.f_code)

    async with reader(cluster, max_partition_fetch_bytes=1) as consumer:  # which fetches the next when one is read
        consumer.assign([("t", 0)])
        for _ in range(10):
            await consumer.getone()
        sys.setprofile(note)
        try:
            for _ in range(20):
                await consumer.getone()
        finally:
            sys.setprofile(None)
    assert len(calls) / 20 <= 64


@pytest.mark.parametrize("write_bytes", [1, 3, 8, 60, 0])
async def test_answers_in_pieces_are_read(cluster, write_bytes):
    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        await consumer.getone()
        cluster.write_bytes = write_bytes
        assert [(await consumer.getone()).value for _ in range(5)] == [b"%d" % n for n in range(1, 6)]


@pytest.mark.parametrize("size_bytes", [100, MOST_ALONE_BYTES, 100_000])
async def test_records_stay_as_they_were_while_later_ones_are_received(cluster, size_bytes):
    (partition,) = cluster.add_topic("large")
    values = [b"%d" % n * (size_bytes // 2) for n in range(10, 30)]
    partition.batches += [bytes(encode_batch([Record(n, n, None, value)])) for n, value in enumerate(values)]
    partition.end = len(values)
    async with reader(cluster) as consumer:
        consumer.assign([("large", 0)])
        assert [(await consumer.getone()).value for _ in values] == values


async def test_an_answer_to_another_request_ends_the_connection_and_reading_goes_on(cluster, monkeypatch):
    right = fake_broker.response_header
    wrong = []

    def another(api_key, version, correlation_id):
        if wrong or api_key != FetchRequest.message_key:
            return right(api_key, version, correlation_id)
        wrong.append(correlation_id)
        return right(api_key, version, correlation_id + 1)

    async with reader(cluster, reconnect_backoff_ms=1, retry_backoff_ms=1, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([("t", 0)])
        await consumer.getone()
        monkeypatch.setattr(fake_broker, "response_header", another)
        assert [(await consumer.getone()).offset for _ in range(RECORDS - 1)] == [*range(1, RECORDS)]
    assert wrong


async def test_a_consumer_of_one_partition_repeats_its_fetch_without_looking_at_everything(cluster, monkeypatch):
    looked = counted(monkeypatch, "_ask")
    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        await consumer.getone()
        before = len(looked)
        assert [(await consumer.getone()).offset for _ in range(RECORDS - 1)] == [*range(1, RECORDS)]
        assert len(looked) <= before + 1  # one for the metadata of the topic


async def test_a_partition_that_is_added_is_fetched_beside_one_that_repeats(cluster):
    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        await consumer.getone()
        consumer.assign([("t", 0), ("u", 0)])
        read = [await consumer.getone() for _ in range(2 * RECORDS - 1)]
        for topic, first in (("t", 1), ("u", 0)):
            assert [record.offset for record in read if record.topic == topic] == [*range(first, RECORDS)]


@pytest.mark.parametrize("most_bytes", [1, 200, 1_000_000])
async def test_a_partition_that_was_full_is_fetched_again_when_there_is_room(cluster, most_bytes):
    async with reader(cluster, max_partition_fetch_bytes=most_bytes) as consumer:
        consumer.assign([("t", 0)])
        assert [(await consumer.getone()).offset for _ in range(RECORDS)] == [*range(RECORDS)]


async def test_a_repeated_fetch_follows_a_seek_and_a_pause(cluster):
    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        for _ in range(3):
            await consumer.getone()
        consumer.seek(("t", 0), 20)
        assert (await consumer.getone()).offset == 20
        consumer.pause(("t", 0))
        assert await consumer.getmany(timeout_ms=20) == {}
        consumer.resume(("t", 0))
        assert (await consumer.getone()).offset == 21


async def test_the_metrics_count_what_was_decoded(cluster):
    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        for _ in range(RECORDS):
            await consumer.getone()
        found = consumer.metrics()
        assert found["records-consumed-total"] == RECORDS
        assert found["bytes-consumed-total"] == found["fetch-size-avg"] * RECORDS


async def test_a_fetch_that_fails_where_it_is_repeated_is_raised_and_reading_goes_on(cluster, monkeypatch):
    def raising(*_):
        raise ZeroDivisionError("nothing expects this")

    async def read_all():
        for _ in range(RECORDS):
            await consumer.getone()

    async with reader(cluster) as consumer:
        consumer.assign([("t", 0)])
        for _ in range(3):
            await consumer.getone()
        with monkeypatch.context() as broken:
            broken.setattr(Fetcher, "_fetch_as_known", raising)
            with pytest.raises(ClientFailed):
                await asyncio.wait_for(read_all(), 20)
        consumer.seek(("t", 0), 3)
        assert [(await consumer.getone()).offset for _ in range(RECORDS - 3)] == [*range(3, RECORDS)]
