"""Whatever goes wrong on the way, records arrive once and in order, or their sender hears why not."""

from __future__ import annotations

import asyncio
import random

import pytest
import uvloop
from kit.fake_broker import SILENCE, FakeCluster, Fault
from kit.loop_clock import put_forward

from ottla.client import (
    BufferExhausted,
    ClientClosed,
    ClientTimeout,
    Delivery,
    ErrorCode,
    KafkaError,
    NoBrokersAvailable,
    Producer,
    RecordTooLarge,
    producer_options,
)
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.records.batch import parse_header

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
NEVER_AGAIN = {"retry_backoff_ms": 600_000, "retry_backoff_max_ms": 600_000}
"""A pause beyond every timeout: the first failure is the last."""
ONE_BY_ONE = {"batch_size": 0, "linger_ms": 0, **QUICK}


@pytest.fixture
async def cluster():
    async with FakeCluster(brokers=2) as running:
        yield running


def numbers(count):
    return [b"%d" % number for number in range(count)]


async def send_numbers(producer, count, **options):
    return [await producer.send("t", value, **options) for value in numbers(count)]


def sequences(partition):
    headers = [parse_header(batch) for batch in partition.batches]
    return [(header.producer_epoch, header.base_sequence) for header in headers]


async def test_records_of_one_moment_travel_in_one_batch(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        places = [await delivery for delivery in await send_numbers(producer, 50)]
    assert [place.offset for place in places] == list(range(50))
    assert len(partition.batches) == 1
    assert partition.values == numbers(50)


async def test_without_linger_the_first_record_that_is_waited_for_leaves_at_once_and_the_others_together(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"before")
        first = producer.send_and_wait("t", b"0")
        first.send(None)  # its step until it waits
        assert producer.metrics()["requests-in-flight"] == 1
        first.close()
        await asyncio.gather(*(producer.send_and_wait("t", value) for value in numbers(20)[1:]))
    assert partition.values == [b"before", *numbers(20)]
    assert len(partition.batches) == 3


async def test_without_linger_a_record_that_nobody_waits_for_leaves_with_those_of_the_same_step(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"before")
        deliveries = await send_numbers(producer, 20)
        assert producer.metrics()["requests-in-flight"] == 0
        await asyncio.gather(*deliveries)
    assert partition.values == [b"before", *numbers(20)]
    assert len(partition.batches) == 2


@pytest.fixture
def long_linger(monkeypatch):
    """Let batches linger for longer than any test takes, unless a test says how long."""
    monkeypatch.setattr(producer_options, "_LINGER_MS", 60_000.0)


@pytest.mark.usefixtures("long_linger")
async def test_by_default_a_record_that_is_waited_for_does_not_linger(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"0")
        await (await producer.send("t", b"1"))
        await producer.send_many("t", [b"2", b"3"])
        await asyncio.gather(*(producer.send_and_wait("t", b"%d" % number) for number in range(4, 30)))
        assert partition.values == numbers(30)
        await producer.send("t", b"30")
        await asyncio.sleep(0.01)
        assert partition.values == numbers(30)


@pytest.mark.usefixtures("long_linger")
async def test_a_record_that_is_waited_for_takes_those_before_it_along(cluster):
    first, second = cluster.add_topic("t", 0, 0)
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"the route is known", partition=0)
        await producer.send("t", b"0", partition=0)
        await producer.send("t", b"other", partition=1)
        await producer.send_and_wait("t", b"1", partition=0)
        assert first.values == [b"the route is known", b"0", b"1"]
        assert len(first.batches) == 2
        assert second.batches == []


@pytest.mark.usefixtures("long_linger")
async def test_a_record_that_is_waited_for_while_a_request_is_in_flight_follows_it(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"0")
        one, other = producer.send_and_wait("t", b"1"), producer.send_and_wait("t", b"2")
        one.send(None)  # its step until it waits
        other.send(None)
        one.close()
        other.close()
        await producer.send_and_wait("t", b"3")
        assert partition.values == numbers(4)


async def test_many_tasks_that_wait_share_requests(cluster):
    """Also where their records are more than a batch takes."""
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, batch_size=10_000) as producer:
        await producer.send_and_wait("t", bytes(100))
        await asyncio.gather(*(producer.send_and_wait("t", bytes(100)) for _ in range(2_000)))
    assert len(partition.values) == 2_001
    assert len(cluster.seen(ProduceRequest)) < 60


async def test_many_tasks_that_wait_for_room_share_requests(cluster):
    (partition,) = cluster.add_topic("t")

    async def send(producer):
        await (await producer.send("t", bytes(100)))

    async with Producer(cluster.bootstrap, batch_size=10_000, buffer_memory=30_000) as producer:
        await producer.send_and_wait("t", bytes(100))
        await asyncio.gather(*(send(producer) for _ in range(1_000)))
    assert len(partition.values) == 1_001
    assert len(cluster.seen(ProduceRequest)) < 100


async def test_a_record_that_is_waited_for_lingers_if_the_option_says_so(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        sending = asyncio.ensure_future(producer.send_and_wait("t", b"0"))
        while not producer.metrics()["buffer-total-bytes"] > producer.metrics()["buffer-available-bytes"]:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert producer.metrics()["requests-in-flight"] == 0
        await producer.flush()
        assert (await sending).offset == 0


async def test_a_full_batch_leaves_without_lingering(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000, batch_size=500) as producer:
        first = await producer.send("t", bytes(490))
        await producer.send("t", b"still open")
        assert (await first).offset == 0
        assert len(partition.batches) == 1
    assert len(partition.batches) == 2


async def test_a_first_batch_that_is_refused_is_not_overtaken(cluster):
    """The broker lets an unknown producer begin anywhere: nothing may be in flight behind its first batch."""
    (partition,) = cluster.add_topic("t")
    partition.faults.append(Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await send_numbers(producer, 20)
    assert partition.values == numbers(20)
    assert sequences(partition) == [(0, n) for n in range(20)]


async def test_a_refused_batch_and_those_in_flight_behind_it_go_again_in_order(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, Fault(ErrorCode.NOT_ENOUGH_REPLICAS)]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        places = [await delivery for delivery in await send_numbers(producer, 12)]
    assert partition.values == numbers(12)
    assert sequences(partition) == [(0, n) for n in range(12)]
    assert [place.offset for place in places] == list(range(12))
    assert len(cluster.seen(ProduceRequest)) > 13  # some were in flight behind it, and refused


async def test_an_append_whose_answer_was_lost_is_not_repeated(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, Fault(is_appended=True, hangs_up=True)]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        places = [await delivery for delivery in await send_numbers(producer, 10)]
    assert partition.values == numbers(10)
    assert [place.offset for place in places] == list(range(10))


async def test_a_batch_in_doubt_is_settled_before_the_broker_has_forgotten_it(cluster):
    """The broker has it and says twice that it timed out, while it acknowledges later ones; it remembers five."""
    (partition,) = cluster.add_topic("t")
    in_doubt = Fault(ErrorCode.REQUEST_TIMED_OUT, is_appended=True)
    partition.faults += [None, in_doubt, None, None, None, None, in_doubt]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        places = [await delivery for delivery in await send_numbers(producer, 20)]
    assert partition.values == numbers(20)
    assert [place.offset for place in places] == list(range(20))
    assert {epoch for epoch, _ in sequences(partition)} == {0}


async def test_a_moved_leader_is_found_and_order_kept(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await producer.send_and_wait("t", b"first")
        await send_numbers(producer, 3)
        partition.leader, partition.epoch = 1, 1
        await send_numbers(producer, 20)
    assert partition.values == [b"first", *numbers(3), *numbers(20)]
    assert {node for node, request, _ in cluster.requests if isinstance(request, ProduceRequest)} == {0, 1}


async def test_stale_metadata_of_an_older_epoch_is_not_believed(cluster):
    (partition,) = cluster.add_topic("t", 1)
    partition.epoch = 5
    async with Producer(cluster.bootstrap, **ONE_BY_ONE, metadata_max_age_ms=1) as producer:
        await producer.send_and_wait("t", b"a")
        before = len(cluster.seen(MetadataRequest))
        described = cluster.metadata

        def stale(request, version):
            answer = described(request)
            for topic in answer.topics:
                topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 0, 4
            return answer

        cluster.handlers[MetadataRequest] = stale
        while len(cluster.seen(MetadataRequest)) < before + 3:
            await producer.send_and_wait("t", b"b")
    assert {node for node, request, _ in cluster.requests if isinstance(request, ProduceRequest)} == {1}


async def test_a_batch_refused_for_good_lets_those_behind_it_move_up(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, None, Fault(ErrorCode.INVALID_RECORD)]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        outcomes = await asyncio.gather(*await send_numbers(producer, 10), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes].count(KafkaError) == 1
    assert outcomes[2].code is ErrorCode.INVALID_RECORD
    assert partition.values == [value for value in numbers(10) if value != b"2"]
    assert sequences(partition) == [(0, n) for n in range(9)]


async def test_a_forgotten_producer_goes_on_with_a_new_epoch(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, None, Fault(ErrorCode.UNKNOWN_PRODUCER_ID)]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await send_numbers(producer, 6)
    assert partition.values == numbers(6)
    assert sequences(partition) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]


async def test_a_fenced_producer_gets_a_new_id(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, Fault(ErrorCode.INVALID_PRODUCER_EPOCH)]
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await send_numbers(producer, 5)
    assert partition.values == numbers(5)
    assert len(cluster.seen(InitProducerIdRequest)) == 2
    assert len({parse_header(batch).producer_id for batch in partition.batches}) == 2


async def test_a_gap_that_the_broker_made_is_told_to_the_sender(cluster):
    """The broker lost what it had acknowledged: the program must hear of it, and can go on."""
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        await send_numbers(producer, 3)
        await producer.flush()
        ((identity, (epoch, _)),) = partition.producers.items()
        partition.producers[identity] = (epoch, 1)
        with pytest.raises(KafkaError) as caught:
            await producer.send_and_wait("t", b"after the loss")
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await producer.send_and_wait("t", b"goes on")
    assert sequences(partition)[-1] == (1, 0)


async def test_a_batch_given_up_in_doubt_does_not_stop_those_behind_it(cluster):
    """Its answer is lost and its retries are used up: nobody knows whether the broker has it. It does not."""
    (partition,) = cluster.add_topic("t")
    partition.faults += [None, Fault(ErrorCode.REQUEST_TIMED_OUT), Fault(ErrorCode.REQUEST_TIMED_OUT)]
    async with Producer(
        cluster.bootstrap, **ONE_BY_ONE, retries=1, max_in_flight_requests_per_connection=1
    ) as producer:
        await producer.send_and_wait("t", b"0")
        lost = await producer.send("t", b"lost")
        with pytest.raises(KafkaError) as caught:
            await lost
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        await producer.send_and_wait("t", b"2")
    assert partition.values == [b"0", b"2"]
    assert sequences(partition) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("seed", range(12))
async def test_any_storm_of_passing_faults_leaves_every_record_once_and_in_order(cluster, seed):
    chance = random.Random(seed)
    partitions = cluster.add_topic("t", 0, 1, 0)
    passing = [
        Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault(ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault(ErrorCode.REQUEST_TIMED_OUT),
        Fault(ErrorCode.REQUEST_TIMED_OUT, is_appended=True),
        Fault(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, is_appended=True),
        Fault(hangs_up=True),
        Fault(is_appended=True, hangs_up=True),
    ]
    for partition in partitions:
        partition.faults += [chance.choice(passing) if chance.random() < 0.3 else None for _ in range(60)]
    async with Producer(cluster.bootstrap, batch_size=chance.choice([0, 100, 400]), linger_ms=0, **QUICK) as producer:
        for number, value in enumerate(numbers(300)):
            await producer.send("t", value, partition=number % 3)
            if chance.random() < 0.05:
                partition = chance.choice(partitions)
                partition.leader, partition.epoch = chance.randrange(2), partition.epoch + 1
    for index, partition in enumerate(partitions):
        assert [int(value) for value in partition.values] == list(range(index, 300, 3))
        assert {epoch for epoch, _ in sequences(partition)} == {0}


def test_times_that_have_passed_are_no_trouble_on_uvloop():
    """Its handle of such a timer does not know its time."""

    async def send():
        async with FakeCluster() as cluster:
            partitions = cluster.add_topic("t", *[0] * 10)
            async with Producer(cluster.bootstrap, linger_ms=0) as producer:
                for number, value in enumerate(numbers(100)):
                    await producer.send("t", value, partition=number % 10)
            return sum(len(partition.values) for partition in partitions)

    assert uvloop.run(send()) == 100


async def test_without_idempotence_nothing_is_asked_and_nothing_numbered(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, acks=1, **ONE_BY_ONE) as producer:
        await send_numbers(producer, 3)
    assert not cluster.seen(InitProducerIdRequest)
    assert sequences(partition) == [(-1, -1)] * 3
    assert {request.acks for request in cluster.seen(ProduceRequest)} == {1}


async def test_acks_0_waits_for_nothing(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, acks=0, **ONE_BY_ONE) as producer:
        assert (await producer.send_and_wait("t", b"x")).offset == -1
        while not partition.batches:
            await asyncio.sleep(0)


async def test_flush_and_close_raise_what_nobody_awaited(cluster):
    (partition,) = cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, **ONE_BY_ONE)
    await producer.start()
    partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
    await producer.send("t", b"refused")
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        await producer.flush()
    await producer.flush()
    partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
    await producer.send("t", b"refused")
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send("t", b"late")


async def test_an_error_that_was_awaited_is_not_raised_again(cluster):
    (partition,) = cluster.add_topic("t")
    partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
    async with Producer(cluster.bootstrap, **ONE_BY_ONE) as producer:
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"refused")


async def test_the_delivery_timeout_ends_what_cannot_be_delivered(cluster):
    (partition,) = cluster.add_topic("t")
    timeouts = {"request_timeout_ms": 30_000, "delivery_timeout_ms": 30_001}
    async with Producer(cluster.bootstrap, **ONE_BY_ONE, **timeouts) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
        deliveries = await send_numbers(producer, 3)
        while len(cluster.seen(ProduceRequest)) < 2:
            await asyncio.sleep(0)
        put_forward(31)
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [ClientTimeout] * 3
        del cluster.handlers[ProduceRequest]
        await producer.send_and_wait("t", b"later")
    assert partition.values == [b"0", b"later"]


async def test_giving_up_one_delivery_does_not_end_the_batch_of_others(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        first, second = await send_numbers(producer, 2)
        waiting = asyncio.ensure_future(_await(first))
        await asyncio.sleep(0)
        waiting.cancel()
        assert (await second).offset == 1
        assert first.result().offset == 0
    assert partition.values == numbers(2)


async def _await(delivery):
    return await delivery


async def test_a_full_buffer_makes_senders_wait_and_then_fail(cluster):
    (partition,) = cluster.add_topic("t")
    limits = {"buffer_memory": 1000, "max_block_ms": 20_000, "batch_size": 0, "linger_ms": 0}
    async with Producer(cluster.bootstrap, **limits) as producer:
        await asyncio.gather(*[producer.send("t", bytes(400)) for _ in range(20)])
        await producer.flush()
        assert len(partition.values) == 20
        cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
        sends = [asyncio.create_task(producer.send("t", bytes(400))) for _ in range(5)]
        while sum(sending.done() for sending in sends) < 2:
            await asyncio.sleep(0)
        put_forward(21)
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Delivery] * 2 + [BufferExhausted] * 3
        with pytest.raises(ClientClosed):
            await producer.close(timeout_ms=0)


async def test_what_cannot_be_sent_is_refused_at_once(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, max_request_size=1000, **NEVER_AGAIN) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send("t", bytes(1000))
        with pytest.raises(RecordTooLarge):
            await producer.send("t", b"", headers=[("h", bytes(1000))])
        with pytest.raises(TypeError, match="str"):
            await producer.send("t", "text")
        with pytest.raises(ValueError, match="partition"):
            await producer.send("t", b"", partition=1)
        with pytest.raises(ValueError, match="timestamp"):
            await producer.send("t", b"", timestamp_ms=-5)
        with pytest.raises(TypeError, match=r"timestamp_ms must be a whole number of milliseconds, not 1\.5"):
            await producer.send("t", b"", timestamp_ms=1.5)
        with pytest.raises(KafkaError) as unknown:
            await producer.send("nowhere", b"")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(KafkaError) as invalid:
            await producer.send("x" * 250, b"")
        assert invalid.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert (await producer.send_and_wait("t", bytearray(b"ok"), key=memoryview(b"k"))).offset == 0


@pytest.mark.parametrize("headers", [{"a": b"1"}, [("a", 1)], [("a", "text")], [(b"a", b"1")], [("a",)], 5])
async def test_headers_that_are_no_pairs_of_text_and_bytes_are_refused_and_leave_nothing(cluster, headers):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=50) as producer:
        for before in (b"first", b"second"):
            with pytest.raises(TypeError, match="headers must be pairs of a str and bytes or None, not"):
                await producer.send("t", b"refused", headers=headers)
            await producer.send("t", before, headers=[("a", b"1"), ("n", None)])
    assert partition.values == [b"first", b"second"]


async def test_concurrent_first_sends_keep_the_order_of_their_calls(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap) as producer:
        await asyncio.gather(*[producer.send("t", value) for value in numbers(50)])
    assert partition.values == numbers(50)


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 2},
        {"acks": 1, "enable_idempotence": True},
        {"compression_type": "brotli"},
        {"max_in_flight_requests_per_connection": 6},
        {"max_in_flight_requests_per_connection": 0},
        {"linger_ms": -1},
        {"delivery_timeout_ms": 10},
        {"bootstrap_servers": "nonsense:"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match=r"\w+"):
        Producer(**{"bootstrap_servers": "localhost:1", **options})


async def test_no_broker_at_all_is_said_with_its_address():
    async with FakeCluster() as gone:
        address = gone.bootstrap
    with pytest.raises(NoBrokersAvailable, match=address):
        await Producer(address).start()


@pytest.mark.parametrize(
    "use",
    [lambda one: one.send("t", b"v"), lambda one: one.partitions_for("t"), lambda one: one.flush()],
    ids=["send", "partitions_for", "flush"],
)
async def test_a_producer_that_was_not_started_says_so(use):
    with pytest.raises(ClientClosed, match="the producer was not started"):
        await use(Producer("localhost:1"))
