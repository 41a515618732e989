"""A record that a program waits for while nothing else is under way: few calls, the same bytes, the same promises.

What it costs is counted in calls of the client's own functions: no busy machine changes it. `scripts/bench-client
--instructions --only latency` counts instructions.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
import struct
import sys
import termios
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import uvloop
from kit import fake_broker
from kit.fake_broker import SILENCE, FakeCluster, Fault
from kit.inside_clients import cluster_view
from kit.loop_clock import put_forward
from kit.threaded_cluster import threaded

import ottla
from ottla.client import ClientTimeout, ErrorCode, KafkaError, Producer
from ottla.client.accumulator import Batch
from ottla.client.blocking import Producer as BlockingProducer
from ottla.client.connection import Connection
from ottla.client.sender import Sender
from ottla.client.unfinished_batches import UnfinishedBatches
from ottla.client_core.partition_queue import PartitionQueue
from ottla.client_core.send_queues import SendQueues
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.records.batch import parse_header

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 2}
PASSING = [
    Fault(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    Fault(ErrorCode.NOT_ENOUGH_REPLICAS),
    Fault(ErrorCode.REQUEST_TIMED_OUT),
    Fault(ErrorCode.REQUEST_TIMED_OUT, is_appended=True),
    Fault(hangs_up=True),
    Fault(is_appended=True, hangs_up=True),
]
THE_CLIENTS = tuple(str(Path(ottla.__file__).parent / room) for room in ("client", "client_core"))
RECORDS = 20


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


# What it costs --------------------------------------------------------------------------------------------------------


class Calls:
    """Counts calls of the clients' functions in the threads that profile by it."""

    def __init__(self):
        self.seen = []

    def note(self, frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(THE_CLIENTS):
            self.seen.append(frame.f_code)


@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_a_record_costs_the_asyncio_producer_at_most_41_calls(cluster, is_idempotent):
    cluster.add_topic("t")
    calls = Calls()
    async with Producer(cluster.bootstrap, linger_ms=0, enable_idempotence=is_idempotent) as producer:
        await producer.send_and_wait("t", b"the way is known")
        sys.setprofile(calls.note)
        try:
            for _ in range(RECORDS):
                await producer.send_and_wait("t", b"x")
        finally:
            sys.setprofile(None)
    assert len(calls.seen) / RECORDS <= 41


def test_a_record_costs_the_blocking_producer_at_most_51_calls():
    calls = Calls()
    profile = None

    def profile_here(*_):  # in the clients' own thread
        sys.setprofile(profile)
        return 0

    with threaded(FakeCluster()) as cluster:
        cluster.add_topic("t")
        with BlockingProducer(cluster.bootstrap, linger_ms=0, partitioner=profile_here) as producer:
            producer.send_and_wait("t", b"the way is known")
            profile = calls.note
            producer.send_and_wait("t", b"its thread is profiled")
            del calls.seen[:]
            sys.setprofile(profile)
            try:
                for _ in range(RECORDS):
                    producer.send_and_wait("t", b"x")
            finally:
                sys.setprofile(None)
            counted, profile = len(calls.seen), None
            producer.send_and_wait("t", b"its thread is profiled no more")
    assert counted / RECORDS <= 51


async def test_a_record_alone_is_not_looked_for_in_the_queues(cluster, monkeypatch):
    cluster.add_topic("t", 0, 0)
    gathered = []
    gather = SendQueues.gather
    monkeypatch.setattr(SendQueues, "gather", lambda queues, now: gathered.append(now) or gather(queues, now))
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for partition in (0, 1):
            await producer.send_and_wait("t", b"the way is known", partition=partition)
        del gathered[:]
        for number in range(RECORDS):
            await producer.send_and_wait("t", b"x", partition=number % 2)
            await (await producer.send("t", b"x", partition=number % 2))
        assert gathered == []


@pytest.mark.parametrize("linger_ms", [0, 1000])
async def test_what_is_flushed_is_written_in_the_step_that_flushes_it(cluster, linger_ms):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=linger_ms) as producer:
        await producer.partitions_for("t")
        await producer.send("t", b"the way is known")
        await producer.flush()
        await producer.send("t", b"x")
        flushing = producer.flush()
        flushing.send(None)  # its step until it waits
        assert producer.metrics()["requests-in-flight"] == 1
        flushing.close()
    assert partition.values == [b"the way is known", b"x"]


def unread_bytes(descriptor):
    (count,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)))
    return count


def test_a_record_is_in_the_socket_before_it_is_in_a_batch(monkeypatch):
    seen = []

    async def send():
        async with FakeCluster() as cluster:
            (partition,) = cluster.add_topic("t")
            add_sent = UnfinishedBatches.add_sent

            def look(batches, *record):
                sockets = [writer.get_extra_info("socket") for writer in cluster.writers]
                seen.append(sum(unread_bytes(one.fileno()) for one in sockets))
                return add_sent(batches, *record)

            monkeypatch.setattr(UnfinishedBatches, "add_sent", look)
            async with Producer(cluster.bootstrap, linger_ms=0) as producer:
                await producer.send_and_wait("t", b"the way is known")
                await producer.send_and_wait("t", bytes(1000))
            return partition.values

    assert uvloop.run(send()) == [b"the way is known", bytes(1000)]
    assert len(seen) == 1
    assert seen[0] > 1000


@pytest.mark.parametrize("write_bytes", [1, 3, 8, 30, 0])
async def test_answers_in_pieces_are_read(cluster, write_bytes):
    (partition,) = cluster.add_topic("t")
    cluster.write_bytes = write_bytes
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        for number in range(5):
            assert (await producer.send_and_wait("t", b"%d" % number)).offset == number
    assert partition.values == [b"%d" % number for number in range(5)]


async def test_an_answer_to_another_request_ends_the_connection_and_the_record_is_sent_again(cluster, monkeypatch):
    (partition,) = cluster.add_topic("t")
    right = fake_broker.response_header
    wrong = []

    def another(api_key, version, correlation_id):
        if wrong:
            return right(api_key, version, correlation_id)
        wrong.append(correlation_id)
        return right(api_key, version, correlation_id + 1)

    async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        monkeypatch.setattr(fake_broker, "response_header", another)
        assert (await producer.send_and_wait("t", b"1")).offset == 1
    assert wrong
    assert partition.values == [b"0", b"1"]


async def test_a_record_on_a_connection_that_was_just_lost_is_sent_again(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.drop_connections()
        assert (await producer.send_and_wait("t", b"1")).offset == 1
    assert partition.values == [b"0", b"1"]


# The same bytes -------------------------------------------------------------------------------------------------------

RECORDS_SENT = [
    (b"first", None, ()),
    (b"x" * 100, None, ()),
    (None, b"key", ()),
    (b"", b"", (("name", b"content"), ("none", None))),
    (b"y" * 5000, b"k", ()),
    (b"z" * 20_000, None, ()),
]


class Recording:
    """A transport that keeps what is written."""

    def __init__(self, transport, frames):
        self.transport = transport
        self.frames = frames

    def write(self, data):
        self.frames.append(bytes(data))
        self.transport.write(data)

    def writelines(self, buffers):
        self.write(b"".join(buffers))

    def __getattr__(self, name):
        return getattr(self.transport, name)


async def written(monkeypatch, version, options, *, is_alone):
    """What a producer writes for some records, one after the other, by one way or by the other."""
    frames = []
    made = Connection.connection_made
    with monkeypatch.context() as patch:
        patch.setattr(Connection, "connection_made", lambda connection, to: made(connection, Recording(to, frames)))
        if not is_alone:
            patch.setattr(Sender, "route_alone", lambda *_: None)
        async with FakeCluster() as cluster:
            cluster.add_topic("t")
            cluster.versions[ProduceRequest.message_key] = (0, version)
            async with Producer(cluster.bootstrap, linger_ms=0, batch_size=10_000, **options) as producer:
                for number, (value, key, headers) in enumerate(RECORDS_SENT):
                    sent = await producer.send_and_wait("t", value, key=key, headers=headers, timestamp_ms=number)
                    assert sent.offset == number
    return frames


@pytest.mark.parametrize("version", [8, 9, 12, 13])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_idempotence": False, "acks": 1},
        {"enable_idempotence": False, "acks": "all", "compression_type": "gzip"},
        {"compression_type": "zstd", "client_id": "somebody"},
    ],
    ids=str,
)
async def test_a_record_alone_is_written_as_the_general_way_writes_it(monkeypatch, version, options):
    general = await written(monkeypatch, version, options, is_alone=False)
    assert len(general) > len(RECORDS_SENT)
    assert await written(monkeypatch, version, options, is_alone=True) == general


# The same promises ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
async def test_any_storm_of_passing_faults_leaves_every_record_once_and_in_order(seed):
    chance = random.Random(seed)
    async with FakeCluster(brokers=2) as cluster:
        partitions = cluster.add_topic("t", 0, 1)
        for partition in partitions:
            partition.faults += [chance.choice(PASSING) if chance.random() < 0.3 else None for _ in range(60)]
        async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
            for number in range(100):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 2)
                if chance.random() < 0.1:
                    partition = chance.choice(partitions)
                    partition.leader, partition.epoch = chance.randrange(2), partition.epoch + 1
        for index, partition in enumerate(partitions):
            assert [int(value) for value in partition.values] == list(range(index, 100, 2))
            sequences = [parse_header(batch).base_sequence for batch in partition.batches]
            assert sequences == list(range(50))


@pytest.mark.parametrize("seed", range(8))
def test_any_storm_leaves_the_records_of_threads_once_and_in_their_order(seed):
    chance = random.Random(seed)
    with threaded(FakeCluster()) as cluster:
        (partition,) = cluster.add_topic("t")
        cluster.write_bytes = chance.choice([0, 0, 7])
        partition.faults += [chance.choice(PASSING) if chance.random() < 0.15 else None for _ in range(200)]
        with BlockingProducer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:

            def send(thread):
                chances = random.Random(f"{seed} {thread}")
                for number in range(40):
                    value, how = b"%d %d" % (thread, number), chances.random()
                    if how < 0.6:
                        producer.send_and_wait("t", value, headers=() if how < 0.5 else [("a", b"b")])
                    elif how < 0.8:
                        producer.send("t", value)
                    elif how < 0.9:
                        producer.send("t", value).result()
                    else:
                        producer.send_many("t", [value])

            threads = [threading.Thread(target=send, args=(thread,)) for thread in range(chance.choice([1, 2, 3]))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        for thread in range(len(threads)):
            mine = [int(number) for sender, number in map(bytes.split, partition.values) if int(sender) == thread]
            assert mine == list(range(40))


async def test_a_topic_that_was_created_again_gets_the_next_record_by_its_new_id(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        await producer.send_and_wait("t", b"old")
        (partition,) = cluster.create_again("t")
        await cluster_view(producer).refresh()
        await producer.send_and_wait("t", b"new")
    assert partition.values == [b"new"]
    old, new = (request.topic_data[0].topic_id for request in cluster.seen(ProduceRequest))
    assert old != new == cluster.id_of("t")


async def test_a_leader_that_has_moved_gets_the_next_record():
    """By the metadata: the old leader is not asked again, although its connection is open."""
    async with FakeCluster(brokers=2) as cluster:
        (partition,) = cluster.add_topic("t", 0)
        async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
            await producer.send_and_wait("t", b"0")
            partition.leader, partition.epoch = 1, 1
            await cluster_view(producer).refresh()
            await producer.send_and_wait("t", b"1")
            await producer.send_and_wait("t", b"2")
        assert [node for node, request, _ in cluster.requests if isinstance(request, ProduceRequest)] == [0, 1, 1]
    assert partition.values == [b"0", b"1", b"2"]


async def test_records_alone_without_keys_are_spread_over_the_partitions(cluster):
    partitions = cluster.add_topic("t", 0, 0, 0)
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        chosen = [(await producer.send_and_wait("t", b"x")).partition for _ in range(RECORDS)]
    assert all(one != other for one, other in pairwise(chosen))
    assert sum(len(partition.values) for partition in partitions) == RECORDS


async def test_no_record_is_written_while_a_connection_logs_in_again(cluster, monkeypatch):
    """A broker accepts no other request between SaslHandshake and SaslAuthenticate (KIP-368)."""
    cluster.handlers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"])
    cluster.handlers[SaslAuthenticateRequest] = lambda request, version: SaslAuthenticateResponse(
        session_lifetime_ms=20
    )
    cluster.add_topic("t")
    connections = []
    made = Connection.connection_made

    def record(connection, transport):
        connections.append([])
        made(connection, Recording(transport, connections[-1]))

    monkeypatch.setattr(Connection, "connection_made", record)
    user = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "a",
        "sasl_password": "b",
    }
    async with Producer(cluster.bootstrap, linger_ms=0, **user) as producer:
        while len(cluster.seen(SaslAuthenticateRequest)) < 30:
            await producer.send_and_wait("t", b"x")
    handshake, login, produce = (
        one.message_key for one in (SaslHandshakeRequest, SaslAuthenticateRequest, ProduceRequest)
    )
    for frames in connections:
        keys = [int.from_bytes(frame[4:6], "big") for frame in frames]
        assert all(after != produce for key, after in pairwise(keys) if key == handshake), keys
    assert sum(frame[4:6] == login.to_bytes(2, "big") for frames in connections for frame in frames) >= 30


async def test_a_record_that_is_refused_for_good_is_raised_where_it_is_waited_for(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        partition.faults.append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(KafkaError) as caught:
            await producer.send_and_wait("t", b"refused")
        assert caught.value.code is ErrorCode.INVALID_RECORD
        await producer.send_and_wait("t", b"1")
    assert partition.values == [b"0", b"1"]


async def test_to_stop_waiting_for_a_record_does_not_stop_the_record(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        waiting = asyncio.create_task(producer.send_and_wait("t", b"1"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await producer.send_and_wait("t", b"2")).offset == 2
    assert partition.values == [b"0", b"1", b"2"]


async def test_a_batch_forgets_those_that_have_stopped_waiting():
    batch = Batch(PartitionQueue("t", 0), 0.0, 0.0, 1.0)
    stopped, waiting = (batch.new_waiter(asyncio.get_running_loop()) for _ in range(2))
    batch.forget(stopped)
    batch.finish(0, -1)
    batch.wake()
    assert (stopped.done(), waiting.done()) == (False, True)


async def test_records_behind_one_that_was_alone_keep_their_order(cluster):
    (partition,) = cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        first = producer.send_and_wait("t", b"1")
        first.send(None)  # its step until it waits
        later = [await producer.send("t", b"%d" % number) for number in range(2, 20)]
        first.close()
        assert [(await delivery).offset for delivery in later] == list(range(2, 20))
    assert partition.values == [b"%d" % number for number in range(20)]


async def test_its_memory_is_taken_until_its_answer(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        free = producer.metrics()["buffer-available-bytes"]
        sending = producer.send_and_wait("t", bytes(1000))
        sending.send(None)
        assert producer.metrics()["buffer-available-bytes"] < free - 1000
        sending.close()
        await producer.flush()
        assert producer.metrics()["buffer-available-bytes"] == free


async def test_a_record_without_an_answer_ends_with_its_timeout(cluster):
    cluster.add_topic("t")
    timeouts = {"request_timeout_ms": 30_000, "delivery_timeout_ms": 30_001}
    async with Producer(cluster.bootstrap, linger_ms=0, **timeouts, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
        waiting = asyncio.create_task(producer.send_and_wait("t", b"1"))
        while len(cluster.seen(ProduceRequest)) < 2:
            await asyncio.sleep(0)
        put_forward(31)
        with pytest.raises(ClientTimeout):
            await waiting


async def test_a_record_whose_request_is_not_answered_in_time_is_sent_again(cluster):
    (partition,) = cluster.add_topic("t")
    timeouts = {"request_timeout_ms": 20_000, "delivery_timeout_ms": 60_000}
    async with Producer(cluster.bootstrap, linger_ms=0, **timeouts, **QUICK) as producer:
        await producer.send_and_wait("t", b"0")
        put_forward(21)  # the timer of the first request has gone off
        await asyncio.sleep(0.01)
        cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
        waiting = asyncio.create_task(producer.send_and_wait("t", b"1"))
        while len(cluster.seen(ProduceRequest)) < 2:
            await asyncio.sleep(0)
        del cluster.handlers[ProduceRequest]
        put_forward(21)
        assert (await waiting).offset == 1
    assert partition.values == [b"0", b"1"]


async def test_the_metrics_count_a_record_alone_as_any_other(cluster):
    cluster.add_topic("t")
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"0")
        before = producer.metrics()
        await producer.send_and_wait("t", b"1")
        after = producer.metrics()
        sent = cluster.seen(ProduceRequest)
        assert len(sent) == 2
    for name in ("request-total", "response-total", "record-send-total"):
        assert after[name] - before[name] == 1, name
    assert after["outgoing-byte-total"] - before["outgoing-byte-total"] > len(b"1") + 61
    assert after["incoming-byte-total"] > before["incoming-byte-total"]
