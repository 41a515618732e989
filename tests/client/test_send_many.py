"""Many records in one call: they arrive as if they had been sent one by one, and one object reports of all."""

from __future__ import annotations

import asyncio
import sys

import pytest
from kit.fake_broker import SILENCE, FakeCluster, Fault
from kit.threaded_cluster import threaded

from ottla.client import (
    BufferExhausted,
    ClientClosed,
    ErrorCode,
    KafkaError,
    Producer,
    ProducerInterceptor,
    RecordsNotSent,
    RecordTooLarge,
)
from ottla.client.blocking import Producer as BlockingProducer
from ottla.client.partitioner import RULES
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.records.batch import decode_batch, parse_header

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
COUNT = 2500
VALUES = [b"%d" % n for n in range(COUNT)]


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


def records_of(partition):
    return [record for batch in partition.batches for record in decode_batch(batch)]


@pytest.mark.parametrize("acks", [1, "all"])
@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_records_arrive_in_order_in_batches_of_the_right_size(cluster, codec, acks):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, batch_size=1000, compression_type=codec, acks=acks) as producer:
        sent = await (await producer.send_many("t", VALUES, timestamps_ms=77))
    assert partition.values == VALUES
    assert sent.offsets == list(range(COUNT))
    assert set(sent.partitions) == {0}
    assert sent[5] == ("t", 0, 5, 77)
    assert [place.offset for place in sent[3:5]] == [3, 4]
    headers = [parse_header(batch) for batch in partition.batches]
    if acks == "all":
        assert [header.base_sequence for header in headers] == [header.base_offset for header in headers]
    if codec == "none":
        assert max(map(len, partition.batches)) <= 1000
        assert min(map(len, partition.batches[:-1])) > 950


async def test_keys_headers_and_times_of_each(cluster):
    (partition,) = cluster.add_topic("t")
    keys = [None if n % 3 == 0 else b"k%d" % n for n in range(COUNT)]
    headers = [[("h", b"%d" % n)] if n % 2 else None for n in range(COUNT)]
    times = [1000 + n * (-1) ** n if n > 1000 else 7 for n in range(COUNT)]
    times = [max(0, time) for time in times]
    async with Producer(cluster.bootstrap) as producer:
        sent = await (await producer.send_many("t", VALUES, keys=keys, headers=headers, timestamps_ms=times))
    records = records_of(partition)
    assert [record.key for record in records] == keys
    assert [record.headers for record in records] == [tuple(header or ()) for header in headers]
    assert [record.timestamp for record in records] == times
    assert [place.timestamp_ms for place in sent] == times


@pytest.mark.parametrize("rule", RULES)
async def test_every_partitioner_chooses_as_for_single_records(cluster, rule, seed):
    many, single = cluster.add_topic("many", 0, 0, 0, 0, 0), cluster.add_topic("single", 0, 0, 0, 0, 0)
    keys = [(None, b"", b"a", b"b%d" % n)[n % 4] for n in range(400)]
    async with Producer(cluster.bootstrap, partitioner=rule) as producer:
        sent = await (await producer.send_many("many", VALUES[:400], keys=keys))
        for value, key in zip(VALUES, keys, strict=False):
            await producer.send("single", value, key=key)
    if rule in ("murmur2", "consistent", "consistent_random", "roundrobin"):
        sticks = {None, b""} if rule == "consistent_random" else {None} if rule == "murmur2" else set()
        chosen = [{v for v, k in zip(VALUES, keys, strict=False) if k not in sticks} & set(p.values) for p in single]
        assert [
            {v for v, k in zip(VALUES, keys, strict=False) if k not in sticks} & set(p.values) for p in many
        ] == chosen
    for index, partition in enumerate(many):
        assert partition.values == sorted(partition.values, key=int)
        assert [int(value) for value in partition.values] == [n for n in range(400) if sent.partitions[n] == index]
    for n, place in enumerate(sent):
        assert many[place.partition].values[place.offset] == VALUES[n]


@pytest.fixture
def seed():
    import random

    random.seed(5)


async def test_records_without_a_key_go_to_another_partition_with_each_batch(cluster):
    partitions = cluster.add_topic("t", 0, 0, 0, 0)
    async with Producer(cluster.bootstrap, batch_size=500) as producer:
        await producer.send_many("t", VALUES)
    assert all(partition.values for partition in partitions)
    assert sorted(int(v) for p in partitions for v in p.values) == list(range(COUNT))


async def test_one_partition_for_all(cluster):
    partitions = cluster.add_topic("t", 0, 0, 0, 0)
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_many("t", VALUES, keys=VALUES, partition=2)
        with pytest.raises(ValueError, match="partitions 0 to 3, not 4"):
            await producer.send_many("t", VALUES, partition=4)
    assert partitions[2].values == VALUES


async def test_iterators_and_other_bytes(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_many("t", (value for value in (b"e", bytearray(b"f"), memoryview(b"g"))))
        await producer.send_many("t", [])
    assert partition.values == [b"e", b"f", b"g"]


async def test_serializers_and_interceptors_see_every_record(cluster):
    (partition,) = cluster.add_topic("t")
    heard = []

    class Numbering(ProducerInterceptor):
        def on_send(self, record):
            return record._replace(value=record.value + 1)

        def on_acknowledgement(self, metadata, error):
            heard.append((metadata.offset, error))

    def encode(number):
        return b"%d" % number

    async with Producer(cluster.bootstrap, value_serializer=encode, key_serializer=encode) as producer:
        await producer.send_many("t", [1, None, 3], keys=[None, 2, 3])
    async with Producer(cluster.bootstrap, value_serializer=encode, interceptors=[Numbering()]) as producer:
        sent = await (await producer.send_many("t", [1, 2, 3]))
    assert partition.values == [b"1", None, b"3", b"2", b"3", b"4"]
    assert heard == [(3, None), (4, None), (5, None)]
    assert sent.offsets == [3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        ({"values": [b"x", "text"]}, (TypeError, "value of record 1 must be bytes or None, not str")),
        ({"values": [b"x"], "keys": [5]}, (TypeError, "key of record 0")),
        ({"values": b"bytes"}, (TypeError, "a column is an iterable")),
        ({"values": [b"x"] * 3, "keys": [b"k"]}, (ValueError, "3 values and 1 keys")),
        ({"values": [b"x"], "timestamps_ms": [-1]}, (ValueError, "timestamps_ms must be 0")),
        ({"values": [b"x"], "timestamps_ms": 2**63}, (ValueError, "timestamps_ms must be 0")),
        ({"values": [b"x", bytes(2000)]}, (RecordTooLarge, "record 1 takes up to")),
        ({"values": [b"x"], "partition": -1}, (ValueError, "not -1")),
        ({"values": [b"x"], "headers": [[(b"no text", b"")]]}, (TypeError, "record 0: headers must be pairs of a str")),
        ({"values": [b"x"] * 2, "headers": [[], {"a": b"b"}]}, (TypeError, "record 1: headers must be pairs of a str")),
        (
            {"values": [b"x"] * 2, "headers": [None, [("a", 1)]]},
            (TypeError, "record 1: headers must be pairs of a str"),
        ),
    ],
)
async def test_what_is_refused_sends_nothing(cluster, arguments, refusal):
    (partition,) = cluster.add_topic("t")
    kind, words = refusal
    async with Producer(cluster.bootstrap, max_request_size=1500) as producer:
        with pytest.raises(kind, match=words):
            await producer.send_many("t", **arguments)
        await producer.send("t", b"after")
    assert partition.values == [b"after"]


async def test_the_errors_say_which_records_failed(cluster):
    good, bad = cluster.add_topic("t", 0, 0)
    bad.faults.append(Fault(ErrorCode.INVALID_RECORD))
    async with Producer(cluster.bootstrap, batch_size=100_000, partitioner="roundrobin") as producer:
        deliveries = await producer.send_many("t", VALUES[:10])
        with pytest.raises(RecordsNotSent, match="5 of 10 records were not delivered; record 1: ") as failed:
            await deliveries
    assert failed.value.code == ErrorCode.INVALID_RECORD
    assert list(failed.value.errors) == [1, 3, 5, 7, 9]
    assert failed.value.sent.offsets == [0, -1, 1, -1, 2, -1, 3, -1, 4, -1]
    assert good.values == VALUES[0:10:2]


async def test_errors_that_nobody_asked_for_are_raised_by_flush(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_many("t", VALUES[:10])
        with pytest.raises(KafkaError, match="INVALID_RECORD"):
            await producer.flush()


async def test_a_batch_that_is_too_large_for_the_topic_is_split_and_its_offsets_are_right(cluster):
    (partition,) = cluster.add_topic("t")
    partition.max_message_bytes = 400
    async with Producer(cluster.bootstrap, **QUICK) as producer:
        sent = await (await producer.send_many("t", VALUES))
        assert producer.metrics()["buffer-available-bytes"] == producer.metrics()["buffer-total-bytes"]
    assert partition.values == VALUES
    assert sent.offsets == list(range(COUNT))


async def test_it_waits_while_the_buffer_is_full(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, buffer_memory=3000, batch_size=500, max_request_size=2000) as producer:
        sending = asyncio.create_task(producer.send_many("t", VALUES))
        most = 0
        while not sending.done():
            most = max(most, 3000 - producer.metrics()["buffer-available-bytes"])
            await asyncio.sleep(0)
        await (await sending)
    assert most <= 3000
    assert partition.values == VALUES


async def test_a_full_buffer_ends_the_call_and_what_was_taken_is_delivered(cluster):
    cluster.add_topic("t")
    cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
    producer = Producer(cluster.bootstrap, buffer_memory=3000, batch_size=500, max_block_ms=50, **QUICK)
    await producer.start()
    with pytest.raises(BufferExhausted):
        await producer.send_many("t", VALUES)
    with pytest.raises(ClientClosed):
        await producer.close(timeout_ms=0)
    with pytest.raises(ClientClosed):
        await producer.send_many("t", VALUES)


async def test_single_records_and_many_share_a_batch(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send("t", b"first")
        await producer.send_many("t", VALUES[:100])
        last = await producer.send("t", b"last")
        assert (await last).offset == 101
    assert partition.values == [b"first", *VALUES[:100], b"last"]
    assert len(partition.batches) == 1


def test_blocking_calls_keep_their_order_and_return_offsets():
    with threaded(FakeCluster()) as cluster:
        (partition,) = cluster.add_topic("t")
        with BlockingProducer(cluster.bootstrap) as producer:
            before = [producer.send("t", b"before") for _ in range(1500)]
            sent = producer.send_many("t", VALUES)
            after = producer.send("t", b"after")
            assert sent.result().offsets == list(range(1500, 1500 + COUNT))
            assert sent.done()
            assert len(sent) == COUNT
            assert [one.result().offset for one in before] == list(range(1500))
            assert after.result().offset == 1500 + COUNT
        assert partition.values == [b"before"] * 1500 + VALUES + [b"after"]


def test_a_wrong_record_among_many_that_are_sent_one_by_one_is_refused_alone():
    with threaded(FakeCluster()) as cluster:
        (partition,) = cluster.add_topic("t")
        with BlockingProducer(cluster.bootstrap, max_request_size=5000) as producer:
            producer.partitions_for("t")
            deliveries = [
                producer.send("t", bytes(6000) if n == 40 else b"%d" % n, partition=7 if n == 50 else None)
                for n in range(100)
            ]
            with pytest.raises(RecordTooLarge):
                deliveries[40].result()
            with pytest.raises(ValueError, match="not 7"):
                deliveries[50].result()
            assert deliveries[99].result().offset == 97
        assert partition.values == [b"%d" % n for n in range(100) if n not in (40, 50)]


WITHOUT_ARROW = """
import asyncio, importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "pyarrow", "pandas"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Missing())
from ottla.client import Consumer, Producer

async def main():
    async with Producer(sys.argv[1]) as producer:
        sent = await (await producer.send_many("t", [b"a", b"b"], keys=[b"k", None]))
        print(sent.offsets)
    try:
        await anext(Consumer(sys.argv[1]).arrow())
    except ImportError as missing:
        print(missing)

asyncio.run(main())
"""


async def test_it_needs_neither_numpy_nor_pyarrow(cluster):
    (partition,) = cluster.add_topic("t")
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITHOUT_ARROW, cluster.bootstrap, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await program.communicate()
    assert printed.decode().splitlines() == [
        "[0, 1]",
        "numpy is not installed here: arrow() needs pip install 'ottla[arrow]'",
    ]
    assert partition.values == [b"a", b"b"]
