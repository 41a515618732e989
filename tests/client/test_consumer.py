"""A consumer gives every record once and in order, says what is broken, and never waits for what it need not."""

from __future__ import annotations

import asyncio
import struct

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.inside_clients import cluster_view
from kit.loop_clock import put_forward

from ottla.client import (
    ClientClosed,
    Consumer,
    ConsumerRecord,
    CorruptRecords,
    ErrorCode,
    KafkaError,
    LogTruncated,
    OffsetOutOfRange,
    Producer,
    TopicPartition,
)
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.records.batch import Record, decode_batch, encode_batch
from ottla.protocol.records.control import ControlType, encode_control_key

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        yield running


def fill(partition, count, size=10, **options):
    """Append `count` numbered records in batches of `size`."""
    first = partition.end
    for start in range(first, first + count, size):
        records = [Record(n, n, None, b"%d" % n) for n in range(start, min(start + size, first + count))]
        partition.batches.append(bytes(encode_batch(records, **options)))
    partition.end = first + count


def consumer_of(cluster, **options):
    return Consumer(
        cluster.bootstrap, auto_offset_reset=options.pop("auto_offset_reset", "earliest"), **QUICK, **options
    )


async def take(consumer, count):
    return [int((await consumer.getone()).value) for _ in range(count)]


async def test_partitions_of_several_leaders_are_read_together(cluster):
    for partition in cluster.add_topic("t", 0, 1, 1):
        fill(partition, 50)
    async with consumer_of(cluster) as consumer:
        every = await consumer.assign_topics("t")
        found = {partition: [] for partition in every}
        while sum(map(len, found.values())) < 150:
            record = await consumer.getone()
            found[TopicPartition(record.topic, record.partition)].append(record.offset)
    assert all(offsets == list(range(50)) for offsets in found.values())


async def test_a_wait_without_end_needs_partitions_or_a_subscription(cluster):
    cluster.add_topic("t", 0)
    async with consumer_of(cluster) as consumer:
        for read in (consumer.getone, lambda: anext(consumer), lambda: anext(consumer.arrow())):
            with pytest.raises(RuntimeError, match="call subscribe, assign or assign_topics first"):
                await read()
        assert await consumer.getmany(timeout_ms=10) == {}, "another task may subscribe meanwhile"
        await consumer.assign_topics("t")
        assert await consumer.getmany(timeout_ms=10) == {}
        await consumer.unsubscribe()
        with pytest.raises(RuntimeError, match="nothing to read"):
            await consumer.getone()


async def test_a_record_is_a_plain_tuple_of_its_facts(cluster):
    (partition,) = cluster.add_topic("t")
    partition.batches.append(bytes(encode_batch([Record(0, 77, b"k", None, (("h", b"v"),))])))
    partition.end = 1
    async with consumer_of(cluster) as consumer:
        consumer.assign([("t", 0)])
        assert await consumer.getone() == ConsumerRecord("t", 0, 0, 77, b"k", None, (("h", b"v"),))


async def test_a_seek_into_a_batch_starts_at_its_record(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 30)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 17)
        assert await take(consumer, 5) == [17, 18, 19, 20, 21]
        consumer.seek(T0, 3)
        assert await consumer.position(T0) == 3
        assert await take(consumer, 2) == [3, 4]


async def test_a_seek_to_what_is_no_whole_number_is_refused_and_leaves_the_position(cluster):
    (partition,) = cluster.add_topic("t", 0)
    fill(partition, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        with pytest.raises(TypeError):
            consumer.seek(T0, 1.5)
        assert await take(consumer, 2) == [0, 1]


async def test_a_seek_is_answered_while_a_fetch_is_parked(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 10) == list(range(10))
        while cluster.seen(FetchRequest)[-1].topics[0].partitions[0].fetch_offset != 10:
            await asyncio.sleep(0)  # now a Fetch waits at the end, forever
        consumer.seek(T0, 5)
        assert await take(consumer, 5) == [5, 6, 7, 8, 9]
        assert (await consumer.end_offsets([T0])) == {T0: 10}


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_an_end_is_reached_whose_last_records_were_compacted_away(cluster, isolation_level):
    (partition,) = cluster.add_topic("t")
    fill(partition, 20)
    cluster.handlers[FetchRequest] = answer_with_hole(partition.batches[0], end=20)
    async with consumer_of(cluster, isolation_level=isolation_level) as consumer:
        consumer.assign([T0])
        assert not await consumer.has_reached(T0, 20)
        assert await take(consumer, 9) == list(range(9))
        assert await consumer.has_reached(T0, 9)
        assert not await consumer.has_reached(T0, 20)
        assert await take(consumer, 1) == [9]
        async with asyncio.timeout(30):
            while not await consumer.has_reached(T0, 20):
                await consumer.getmany(timeout_ms=10)
        assert not await consumer.has_reached(T0, 21)
        assert await consumer.position(T0) == 10
        consumer.seek(T0, 3)
        assert not await consumer.has_reached(T0, 20)


async def test_an_answer_that_had_no_room_for_a_partition_does_not_say_that_it_is_at_its_end(cluster):
    full, crowded_out = cluster.add_topic("t", 0, 0)
    fill(full, 20)
    crowded_out.end = 10
    first = full.batches[0]

    def answer(request, version):
        asked = request.topics[0]
        if any(one.partition == 0 and one.fetch_offset >= 10 for one in asked.partitions):
            return SILENCE
        data = [
            FetchResponse.PartitionData(
                partition_index=one.partition, high_watermark=10, records=b"" if one.partition else first
            )
            for one in asked.partitions
        ]
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=data)
        return FetchResponse(responses=[answer])

    cluster.handlers[FetchRequest] = answer
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0, TopicPartition("t", 1)])
        assert await take(consumer, 10) == list(range(10))
        assert not await consumer.has_reached(TopicPartition("t", 1), 10)


def answer_with_hole(batch, *, end):
    """A log of one batch of ten records that ends at `end`."""

    def answer(request, version):
        asked = request.topics[0]
        is_behind = asked.partitions[0].fetch_offset >= 10
        data = FetchResponse.PartitionData(
            partition_index=0, high_watermark=end, last_stable_offset=end, records=b"" if is_behind else batch
        )
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    return answer


async def test_a_moved_leader_is_followed(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 20)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 10) == list(range(10))
        partition.leader, partition.epoch = 1, 1
        assert await take(consumer, 10) == list(range(10, 20))


async def test_lost_connections_are_made_again(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 50)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        for start in range(0, 50, 10):
            assert await take(consumer, 10) == list(range(start, start + 10))
            cluster.drop_connections()


async def test_a_batch_with_a_wrong_checksum_is_named_and_can_be_passed(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 30)
    broken = bytearray(partition.batches[1])
    broken[-2] ^= 1  # the value of the last record
    partition.batches[1] = bytes(broken)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 10) == list(range(10))
        for _ in range(2):  # it stays before the batch until the program decides
            with pytest.raises(CorruptRecords) as corrupt:
                await consumer.getone()
        assert (corrupt.value.partition, corrupt.value.offset, corrupt.value.next_offset) == (T0, 10, 20)
        assert await consumer.position(T0) == 10
        consumer.seek(T0, corrupt.value.next_offset)
        assert await take(consumer, 10) == list(range(20, 30))
    async with consumer_of(cluster, check_crcs=False) as trusting:
        trusting.assign([T0])
        trusting.seek(T0, 10)
        assert (await trusting.getone()).offset == 10


async def test_an_answer_without_a_whole_batch_is_corrupt(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    partition.batches[0] = partition.batches[0][:-1]
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        with pytest.raises(CorruptRecords, match="without a whole batch"):
            await consumer.getone()


async def test_a_header_that_cannot_be_is_corrupt(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    wrong = bytearray(partition.batches[0])
    wrong[16] = 9

    def answer(request, version):
        asked = request.topics[0]
        data = FetchResponse.PartitionData(partition_index=0, high_watermark=10, records=bytes(wrong))
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    cluster.handlers[FetchRequest] = answer
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        with pytest.raises(CorruptRecords, match="magic 9"):
            await consumer.getone()


async def test_damage_that_the_broker_refuses_is_corrupt_once_what_lies_before_it_is_read(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    asked_for = []

    def answer(request, version):
        topic = request.topics[0]
        offset = topic.partitions[0].fetch_offset
        asked_for.append(offset)
        data = FetchResponse.PartitionData(partition_index=0, high_watermark=10, records=partition.batches[0])
        if offset:
            data = FetchResponse.PartitionData(
                partition_index=0, error_code=ErrorCode.CORRUPT_MESSAGE, high_watermark=-1, records=b""
            )
        answer = FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    cluster.handlers[FetchRequest] = answer
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        first = [await consumer.getone() for _ in decode_batch(partition.batches[0])]
        with pytest.raises(CorruptRecords) as corrupt:
            await consumer.getone()
        assert corrupt.value.offset == first[-1].offset + 1
        assert "damaged" in str(corrupt.value)


async def test_getmany_gives_what_is_sound_before_it_raises(cluster):
    good, bad = cluster.add_topic("t", 0, 0)
    fill(good, 10)
    fill(bad, 10)
    broken = bytearray(bad.batches[0])
    broken[70] ^= 1
    bad.batches[0] = bytes(broken)
    async with consumer_of(cluster) as consumer:
        await consumer.assign_topics("t")
        found = await consumer.getmany(timeout_ms=10_000)
        assert [record.offset for record in found[T0]] == list(range(10))
        with pytest.raises(CorruptRecords):
            await consumer.getmany(timeout_ms=10_000)


def transactional(first, producer_id, values):
    records = [Record(first + n, 0, None, value) for n, value in enumerate(values)]
    return bytes(
        encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    )


def marker(offset, producer_id, kind):
    record = Record(offset, 0, encode_control_key(kind), struct.pack(">hi", 0, 0))
    return bytes(
        encode_batch([record], producer_id=producer_id, producer_epoch=0, is_control=True, is_transactional=True)
    )


@pytest.mark.parametrize(
    ("isolation_level", "expected"),
    [("read_committed", [b"c1", b"c2", b"later"]), ("read_uncommitted", [b"a1", b"c1", b"a2", b"c2", b"later"])],
)
async def test_aborted_transactions_and_markers_are_hidden_as_the_isolation_level_says(
    cluster, isolation_level, expected
):
    (partition,) = cluster.add_topic("t")
    log = [
        transactional(0, 1, [b"a1"]),
        transactional(1, 2, [b"c1"]),
        transactional(2, 1, [b"a2"]),
        marker(3, 1, ControlType.ABORT),
        transactional(4, 2, [b"c2"]),
        marker(5, 2, ControlType.COMMIT),
        transactional(6, 1, [b"later"]),
        marker(7, 1, ControlType.COMMIT),
    ]
    partition.end = 8

    def answer(request, version):
        asked = request.topics[0]
        if asked.partitions[0].fetch_offset:
            return None
        aborted = [FetchResponse.AbortedTransaction(producer_id=1, first_offset=0)] if request.isolation_level else None
        data = FetchResponse.PartitionData(
            partition_index=0, high_watermark=8, aborted_transactions=aborted, records=b"".join(log)
        )
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    cluster.handlers[FetchRequest] = answer
    async with consumer_of(cluster, isolation_level=isolation_level) as consumer:
        consumer.assign([T0])
        assert [(await consumer.getone()).value for _ in expected] == expected
        assert await consumer.getmany() == {}
        assert await consumer.position(T0) == 8  # behind the last marker, though no record was there


@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_a_truncated_log_is_noticed(cluster, reset):
    """KIP-320: the leader says where the history that we read left its own."""
    (partition,) = cluster.add_topic("t")
    fill(partition, 20, leader_epoch=3)
    plain = cluster._fetch

    def answer(request, version):
        asked = request.topics[0]
        if asked.partitions[0].last_fetched_epoch == 3 and asked.partitions[0].fetch_offset == 20:
            data = FetchResponse.PartitionData(
                partition_index=0,
                high_watermark=5,
                diverging_epoch=FetchResponse.EpochEndOffset(epoch=2, end_offset=5),
                records=b"",
            )
            answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
            return FetchResponse(responses=[answer])
        return plain(0, request)

    cluster.handlers[FetchRequest] = answer
    async with consumer_of(cluster, auto_offset_reset=reset) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 20) == list(range(20))
        if reset == "none":
            with pytest.raises(LogTruncated) as truncated:
                await consumer.getone()
            assert truncated.value.offset == 5
        else:
            assert (await consumer.getone()).offset == 5


async def test_the_end_of_a_log_before_it_was_truncated_is_not_its_end_afterwards(cluster):
    """`has_reached` ends the loop of a program that reads up to `end_offsets`: it would miss the records after 5."""
    (partition,) = cluster.add_topic("t")
    fill(partition, 20, leader_epoch=3)

    def answer(request, version):
        (asked,) = request.topics
        if asked.partitions[0].fetch_offset != 20:
            return SILENCE
        diverging = FetchResponse.EpochEndOffset(epoch=2, end_offset=5)
        data = FetchResponse.PartitionData(partition_index=0, high_watermark=8, diverging_epoch=diverging, records=b"")
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 20) == list(range(20))
        cluster.handlers[FetchRequest] = answer
        while await consumer.position(T0) != 5:
            await asyncio.sleep(0.001)
        assert not await consumer.has_reached(T0, 8)


@pytest.mark.parametrize("number", [-1, 2**63])
async def test_a_number_that_no_request_can_have_is_refused_at_once(cluster, number):
    (partition,) = cluster.add_topic("t")
    fill(partition, 3)
    async with consumer_of(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        with pytest.raises(ValueError, match=r"an offset is 0 to 2\^63-1, not"):
            consumer.seek(T0, number)
        with pytest.raises(ValueError, match=r"t.* a timestamp is 0 to 2\^63-1, not"):
            await consumer.offsets_for_times({T0: number})
        with pytest.raises(ValueError, match=r"an offset is 0 to 2\^63-1, not"):
            await consumer.commit({T0: number})
        consumer.seek(T0, 0)
        assert await take(consumer, 3) == [0, 1, 2]


async def test_an_offset_beyond_the_end_follows_the_reset_policy(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        assert await take(consumer, 1) == [0]
    async with consumer_of(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        with pytest.raises(OffsetOutOfRange):
            await consumer.getone()
        consumer.seek(T0, 4)
        assert await take(consumer, 2) == [4, 5]


async def test_a_refusal_that_does_not_pass_is_raised(cluster):
    cluster.add_topic("t")

    def refuse(request, version):
        asked = request.topics[0]
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        data = FetchResponse.PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=b"")
        answer = FetchResponse.FetchableTopicResponse(topic=asked.topic, topic_id=asked.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    cluster.handlers[FetchRequest] = refuse
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        with pytest.raises(KafkaError) as refused:
            await consumer.getone()
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_topic_that_never_comes_is_said_after_the_timeout(cluster):
    # A pause beyond the timeout: the first failure is the last.
    patience = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
    async with Consumer(cluster.bootstrap, auto_offset_reset="earliest", **patience) as consumer:
        with pytest.raises(KafkaError) as unknown:
            await consumer.partitions_for("nowhere")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        consumer.assign([("nowhere", 0)])
        with pytest.raises(KafkaError) as unresolved:
            await consumer.getone()
        assert unresolved.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_position_in_a_topic_that_never_comes_is_no_reason_to_wait_for_ever(cluster):
    async with consumer_of(cluster, default_api_timeout_ms=0) as consumer:
        consumer.assign([("nowhere", 0)])
        consumer.seek(("nowhere", 0), 5)
        with pytest.raises(KafkaError) as leaderless:
            await consumer.getone()
        assert leaderless.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("is_paused", [False, True], ids=["full", "paused"])
async def test_the_time_without_a_leader_begins_again_after_it_had_one(cluster, is_paused):
    """Also if nothing was requested from that leader: its buffer was full, or it was paused."""
    (partition,) = cluster.add_topic("t")
    fill(partition, 20)
    async with consumer_of(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 1) == [0]
        while len(cluster.seen(FetchRequest)) < 2:
            await asyncio.sleep(0.001)
        await cluster_view(consumer).refresh()  # the answer to the second has come, too
        for leader in (-1, 0, -1):
            partition.leader = leader
            if is_paused:
                (consumer.pause if leader == 0 else consumer.resume)(T0)
            await cluster_view(consumer).refresh()
            await asyncio.sleep(0)
            put_forward(40)  # 60 s is `default_api_timeout_ms`
        assert await take(consumer, 19) == list(range(1, 20))
        assert await consumer.getmany(timeout_ms=1) == {}


@pytest.mark.parametrize("timeout_ms", [-1, float("nan")])
async def test_a_poll_whose_time_is_over_waits_for_nothing(cluster, timeout_ms):
    cluster.add_topic("t")
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        assert await consumer.getmany(timeout_ms=timeout_ms) == {}


async def test_closing_wakes_a_waiting_reader_at_once(cluster):
    cluster.add_topic("t")
    consumer = consumer_of(cluster)
    await consumer.start()
    consumer.assign([T0])
    reading = asyncio.create_task(consumer.getone())
    while not cluster.seen(FetchRequest):
        await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(ClientClosed):
        await reading
    with pytest.raises(ClientClosed):
        consumer.assign([])
    await consumer.close()


async def test_what_was_not_read_is_not_fetched_beyond_the_bound(cluster):
    (partition,) = cluster.add_topic("t")
    fill(partition, 1000)
    async with consumer_of(cluster, max_partition_fetch_bytes=500) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 1) == [0]
        asked = len(cluster.seen(FetchRequest))
        assert (await consumer.end_offsets([T0])) == {T0: 1000}
        assert len(cluster.seen(FetchRequest)) <= asked + 3
        assert await take(consumer, 999) == list(range(1, 1000))


async def test_assigning_anew_keeps_the_positions_of_what_stays(cluster):
    first, second = cluster.add_topic("t", 0, 0)
    fill(first, 10)
    fill(second, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 4) == [0, 1, 2, 3]
        consumer.assign([T0, ("t", 1)])
        assert sorted(consumer.assignment()) == [T0, TopicPartition("t", 1)]
        assert await consumer.position(T0) == 4
        consumer.assign([("t", 1)])
        assert {(await consumer.getone()).partition for _ in range(10)} == {1}
        with pytest.raises(ValueError, match="not assigned"):
            consumer.seek(T0, 0)


async def test_old_brokers_are_asked_by_name_and_without_what_they_do_not_know(cluster):
    cluster.versions |= {1: (4, 10), 2: (1, 3), 3: (1, 8)}
    (partition,) = cluster.add_topic("t")
    fill(partition, 10)
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 10) == list(range(10))
    assert cluster.seen(FetchRequest)[0].topics[0].topic == "t"
    assert cluster.seen(ListOffsetsRequest)


async def test_an_answer_without_an_offset_is_the_brokers_error_and_no_timeout(cluster):
    cluster.add_topic("t")
    nowhere = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=-1)
    cluster.handlers[ListOffsetsRequest] = lambda request, version: ListOffsetsResponse(
        topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[nowhere])]
    )
    async with consumer_of(cluster) as consumer:
        consumer.assign([T0])
        with pytest.raises(KafkaError, match=r"t-0.*no offset") as failed:
            await consumer.getone()
    assert failed.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not failed.value.code.retriable


@pytest.mark.parametrize(
    "options",
    [{"auto_offset_reset": "smallest"}, {"isolation_level": "serializable"}, {"max_poll_records": 0}],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Consumer("localhost:1", **options)


@pytest.mark.parametrize("wrong", ["orders", ["orders"], [7]])
async def test_what_is_no_partition_is_not_assigned(broker, wrong):
    async with Consumer(broker.bootstrap) as consumer:
        with pytest.raises(TypeError, match=r"assign takes TopicPartitions, or pairs of topic and number .*, not "):
            consumer.assign(wrong)


async def test_a_topic_is_a_text(broker):
    async with Producer(broker.bootstrap) as producer:
        with pytest.raises(TypeError, match="a topic's name must be a str, not bytes"):
            await producer.send(b"orders", b"value")
