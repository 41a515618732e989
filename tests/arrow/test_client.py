"""The client's records as columns: the same as one by one, with the same positions, errors and transactions."""

from __future__ import annotations

import asyncio
import struct

import numpy as np
import pyarrow as pa
import pytest
from kit.fake_broker import FakeCluster
from kit.threaded_cluster import threaded

from ottla.client import Consumer, ConsumerInterceptor, CorruptRecords, Producer, TopicPartition
from ottla.client.arrow_reading import ArrowReading
from ottla.client.blocking import Consumer as BlockingConsumer
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.records.batch import Record, decode_batch, encode_batch, set_offset_and_epoch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.control import ControlType, encode_control_key

HERE = TopicPartition("t", 0)
NAMES = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def record(n):
    key, value = None if n % 3 else b"k%d" % n, b"v%d" % n if n % 7 else None
    return Record(n, 1000 + n, key, value, (("h", b"%d" % n),) * (n % 2))


def fill(partition, batches, size=10, **options):
    """Put so many batches into a partition; return their records."""
    first = partition.end
    for start in range(first, first + batches * size, size):
        records = [record(n) for n in range(start, start + size)]
        partition.batches.append(bytes(encode_batch(records, **options)))
    partition.end = first + batches * size
    return [record(n) for n in range(first, partition.end)]


async def read(consumer, count, **options):
    """The next `count` rows, or more of them."""
    rows = []
    async for columns in consumer.arrow(**options):
        rows += columns.to_pylist()
        if len(rows) >= count:
            return rows


def consuming(cluster, **options):
    return Consumer(cluster.bootstrap, auto_offset_reset="earliest", **options)


@pytest.mark.parametrize("codec", list(Compression))
async def test_columns_are_the_records(cluster, codec):
    (partition,) = cluster.add_topic("t")
    records = fill(partition, 12, compression=codec)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        rows = await read(consumer, 120, include_headers=True)
        assert await consumer.position(HERE) == 120
    assert list(rows[0]) == [*NAMES, "headers"]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [(r.offset, r.key, r.value) for r in records]
    assert [round(row["timestamp"].timestamp() * 1000) for row in rows] == [record.timestamp for record in records]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("t", 0, 0)}
    headers = [tuple((header["key"], header["value"]) for header in row["headers"] or ()) for row in rows]
    assert headers == [record.headers for record in records]


async def test_only_the_columns_that_are_named(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 1)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        assert list((await read(consumer, 10, columns=["value", "offset"]))[0]) == ["value", "offset"]
        for wrong in (["velue"], [], ["key", "key"]):
            with pytest.raises(ValueError, match="column"):
                await read(consumer, 1, columns=wrong)


async def test_a_start_in_a_batch_and_a_switch_of_readers(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 3)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        consumer.seek(HERE, 4)
        assert (await consumer.getone()).offset == 4
        assert (await read(consumer, 1))[0]["offset"] == 5
        consumer.seek(HERE, 7)
        assert [record.offset for record in (await consumer.getmany(timeout_ms=1000, max_records=2))[HERE]] == [7, 8]
        assert [row["offset"] for row in await read(consumer, 21)] == list(range(9, 30))
        assert await consumer.position(HERE) == 30


async def test_what_was_yielded_is_the_position_and_the_rest_is_read_by_iteration(cluster, monkeypatch):
    monkeypatch.setattr("ottla.arrow.decoder.MAX_ARROW_BATCH_BYTES", 200)
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        parts = consumer.arrow()
        seen = 0
        for _ in range(4):
            part = await anext(parts)
            assert part["offset"].to_pylist() == list(range(seen, seen + len(part)))
            seen += len(part)
            assert await consumer.position(HERE) == seen
        assert 0 < seen < 100
        assert (await consumer.getone()).offset == seen
        assert (await anext(parts))["offset"][0].as_py() == seen + 1


async def test_a_damaged_batch_is_raised_after_all_before_it_and_can_be_passed(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 5)
    damaged = bytearray(partition.batches[2])
    damaged[-1] ^= 1
    partition.batches[2] = bytes(damaged)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        rows = []

        async def read_on():
            async for columns in consumer.arrow():
                rows.extend(columns["offset"].to_pylist())

        with pytest.raises(CorruptRecords) as raised:
            await read_on()
        assert rows == list(range(20))
        assert (raised.value.offset, raised.value.next_offset) == (20, 30)
        assert await consumer.position(HERE) == 20
        consumer.seek(HERE, raised.value.next_offset)
        assert [row["offset"] for row in await read(consumer, 20)] == list(range(30, 50))


def transactional(first, producer_id, values):
    records = [Record(first + n, 0, None, value) for n, value in enumerate(values)]
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return bytes(encode_batch(records, **options))


def marker(offset, producer_id, kind):
    ending = Record(offset, 0, encode_control_key(kind), struct.pack(">hi", 0, 0))
    options = {"producer_id": producer_id, "producer_epoch": 0, "is_control": True, "is_transactional": True}
    return bytes(encode_batch([ending], **options))


def serve(cluster, log, end):
    """Answer a Fetch from offset 0 with a log in which the first transaction of producer 1 is aborted."""
    (partition,) = cluster.add_topic("t")
    partition.end = end

    def answer(request, version):
        asked = request.topics[0]
        if asked.partitions[0].fetch_offset:
            return None
        aborted = [FetchResponse.AbortedTransaction(producer_id=1, first_offset=0)] if request.isolation_level else None
        data = FetchResponse.PartitionData(
            partition_index=0, high_watermark=end, aborted_transactions=aborted, records=b"".join(log)
        )
        topic = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[topic])

    cluster.handlers[FetchRequest] = answer


LOG = [
    transactional(0, 1, [b"a1"]),
    transactional(1, 2, [b"c1" * 200, b"c2" * 200]),
    transactional(3, 1, [b"a2"]),
    marker(4, 1, ControlType.ABORT),
    transactional(5, 2, [b"c3"]),
    marker(6, 2, ControlType.COMMIT),
    transactional(7, 1, [b"later"]),
    marker(8, 1, ControlType.COMMIT),
]


@pytest.mark.parametrize(
    ("isolation_level", "expected"), [("read_committed", [1, 2, 5, 7]), ("read_uncommitted", [0, 1, 2, 3, 5, 7])]
)
async def test_markers_and_aborted_records_are_left_out(cluster, isolation_level, expected):
    serve(cluster, LOG, 9)
    async with consuming(cluster, isolation_level=isolation_level) as consumer:
        consumer.assign([HERE])
        assert [row["offset"] for row in await read(consumer, len(expected))] == expected
        assert await consumer.position(HERE) == 9, "behind the last marker, though no record was there"


async def test_aborted_records_stay_hidden_when_another_reader_goes_on_in_the_middle(cluster, monkeypatch):
    monkeypatch.setattr("ottla.arrow.decoder.MAX_ARROW_BATCH_BYTES", 300)
    serve(cluster, LOG, 9)
    async with consuming(cluster, isolation_level="read_committed") as consumer:
        consumer.assign([HERE])
        assert (await anext(consumer.arrow()))["offset"].to_pylist() == [1]
        assert [row["offset"] for row in await read(consumer, 3)] == [2, 5, 7]


async def test_interceptors_are_not_passed_by(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 1)
    async with consuming(cluster, interceptors=[ConsumerInterceptor()]) as consumer:
        consumer.assign([HERE])
        with pytest.raises(ValueError, match="interceptors"):
            await read(consumer, 1)


async def test_it_waits_for_records_of_several_partitions(cluster):
    first, second = cluster.add_topic("t", 0, 0)
    fill(second, 2)
    async with consuming(cluster, fetch_max_wait_ms=10) as consumer:
        consumer.assign([HERE, TopicPartition("t", 1)])
        parts = consumer.arrow(columns=["partition", "offset"])
        rows = (await anext(parts)).to_pylist()
        reading = asyncio.ensure_future(anext(parts))
        await asyncio.sleep(0)
        fill(first, 1)
        rows += (await reading).to_pylist()
        while len(rows) < 30:
            rows += (await anext(parts)).to_pylist()
    assert {(row["partition"], row["offset"]) for row in rows} == {(0, n) for n in range(10)} | {
        (1, n) for n in range(20)
    }


async def test_the_epoch_of_what_was_read_is_that_of_its_batch(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 2)
    for number, epoch in enumerate((3, 5)):
        batch = bytearray(partition.batches[number])
        set_offset_and_epoch(batch, number * 10, epoch)
        partition.batches[number] = bytes(batch)
    async with consuming(cluster) as consumer:
        consumer.assign([HERE])
        await read(consumer, 20)
        assert consumer._consumed()[HERE].leader_epoch == 5


def test_blocking():
    with threaded(FakeCluster()) as cluster:
        (partition,) = cluster.add_topic("t")
        fill(partition, 3)
        with BlockingConsumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([HERE])
            offsets = []
            for columns in consumer.arrow(columns=["offset"]):
                offsets += columns["offset"].to_pylist()
                if len(offsets) == 30:
                    break
            assert offsets == list(range(30))
            assert consumer.position(HERE) == 30


async def test_columns_of_numpy_and_arrow_are_sent(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_many("t", np.array([b"a", b"bc"]), timestamps_ms=np.array([5, 6]))
        await producer.send_many("t", pa.array([b"d", None]), keys=pa.array([None, b"k"], pa.binary()))
    assert partition.values == [b"a", b"bc", b"d", None]
    records = [record for batch in partition.batches for record in decode_batch(batch)]
    assert [record.key for record in records] == [None, None, None, b"k"]
    assert [record.timestamp for record in records][:2] == [5, 6]


async def test_what_arrow_yields_can_be_sent(cluster):
    (source,), (copy,) = cluster.add_topic("t"), cluster.add_topic("copy")
    records = fill(source, 5)
    async with consuming(cluster) as consumer, Producer(cluster.bootstrap) as producer:
        consumer.assign([HERE])
        done = 0
        async for columns in consumer.arrow(include_headers=True):
            as_table = pa.Table.from_batches([columns])
            await producer.send_many("copy", columns if done else as_table)
            done += len(columns)
            if done == 50:
                break
        with pytest.raises(ValueError, match="has a column value; this one has key"):
            await producer.send_many("copy", columns.select(["key"]))
    copied = [record for batch in copy.batches for record in decode_batch(batch)]
    assert [record[1:] for record in copied] == [record[1:] for record in records]


def test_a_reading_knows_its_columns_before_anything_is_read():
    with pytest.raises(ValueError, match="there is no column keys"):
        ArrowReading(None, None, ["keys"])
