"""An exception that nothing expects, in a callback of the loop, ends what waits for it; no call waits for ever.

The exceptions are injected, so that the tests name insides of the client.
"""

from __future__ import annotations

import asyncio

import pytest
from kit.fake_broker import SILENCE, FakeCluster
from kit.fake_transactions import FakeTransactions
from kit.inside_clients import cluster_view
from kit.threaded_cluster import threaded

import ottla
from ottla.client import ClientClosed, ClientFailed, Consumer, ConsumerRecord, FatalTransactionError, Producer
from ottla.client.assigned import AssignedPartition
from ottla.client.cluster import Cluster
from ottla.client.connecting import connect
from ottla.client.connection import Connection
from ottla.client.fetch_answers import FetchAnswers
from ottla.client.fetcher import Fetcher
from ottla.client.options import ClientOptions
from ottla.client.routes import Routes
from ottla.client.sender import Sender
from ottla.client_core.exchange import Exchange
from ottla.client_core.produce_template import ProduceTemplate
from ottla.client_core.send_queues import SendQueues
from ottla.client_core.transactions import Transactions
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.produce import ProduceRequest

LIMIT_S = 20
"""For what should end at once; below every timeout of the client, all of which are at least 30 s."""


class Unexpected(Exception):
    """What no code of the client raises or catches by its name."""


def raising(*_: object, **__: object) -> None:
    raise Unexpected("injected")


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        running.add_topic("t")
        yield running


@pytest.fixture(autouse=True)
async def limit():
    """The tests of this file end soon, or fail."""
    async with asyncio.timeout(LIMIT_S):
        yield


async def ends_with_it(waiting):
    with pytest.raises(ClientFailed) as failed:
        async with asyncio.timeout(LIMIT_S):
            await waiting
    assert isinstance(failed.value.__cause__, Unexpected)


@pytest.mark.parametrize("inside", ["gather", "appended", "answered"])
@pytest.mark.parametrize("linger_ms", [0, 5])
async def test_a_producer_that_fails_ends_its_records_and_says_so_to_the_next(cluster, monkeypatch, inside, linger_ms):
    async with Producer(cluster.bootstrap, linger_ms=linger_ms) as producer:
        await producer.send_and_wait("t", b"before")
        monkeypatch.setattr(SendQueues, inside, raising)
        if inside != "appended":
            monkeypatch.setattr(Sender, "route_alone", lambda *_: None)
            monkeypatch.setattr("ottla.client_core.produce_template.ProduceTemplate.appended", lambda *_: None)
        await ends_with_it(await producer.send("t", b"0"))
        await ends_with_it(producer.send("t", b"1"))
        await ends_with_it(producer.send_many("t", [b"2"]))
        await producer.flush()


async def test_a_lost_request_that_cannot_be_handled_ends_the_records(cluster, monkeypatch):
    cluster.handlers[ProduceRequest] = lambda request, version: SILENCE
    async with Producer(cluster.bootstrap) as producer:
        delivery = await producer.send("t", b"0")
        while not producer.metrics()["requests-in-flight"]:
            await asyncio.sleep(0)
        monkeypatch.setattr(SendQueues, "lost", raising)
        cluster.drop_connections()
        await ends_with_it(delivery)


async def test_flush_and_close_raise_what_has_failed(cluster, monkeypatch):
    producer = Producer(cluster.bootstrap)
    await producer.start()
    await producer.partitions_for("t")
    await producer.send("t", b"0")
    with monkeypatch.context() as broken:
        broken.setattr(SendQueues, "gather", raising)
        await ends_with_it(producer.flush())
    await producer.close()

    producer = Producer(cluster.bootstrap)
    await producer.start()
    await producer.partitions_for("t")
    await producer.send("t", b"0")
    monkeypatch.setattr(SendQueues, "gather", raising)
    await ends_with_it(producer.close())


async def test_a_request_that_cannot_be_made_ends_its_batches_and_the_producer_sends_on(cluster, monkeypatch):
    (partition,) = cluster.topics["t"]
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"before")
        with monkeypatch.context() as broken:
            broken.setattr(Sender, "route_alone", lambda *_: None)
            broken.setattr(Routes, "find", raising)
            await ends_with_it(await producer.send("t", b"0"))
        await producer.send_and_wait("t", b"after")
    assert partition.values == [b"before", b"after"]


async def test_a_leader_that_cannot_be_connected_to_is_tried_again(cluster, monkeypatch):
    async with Producer(cluster.bootstrap, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1) as producer:
        with monkeypatch.context() as broken:
            attempts = asyncio.Event()
            broken.setattr(Cluster, "connection", lambda *_: attempts.set() or raising())
            await producer.partitions_for("t")
            cluster.drop_connections()
            while cluster_view(producer).open_connection(0):
                await asyncio.sleep(0)
            delivery = await producer.send("t", b"0")
            await attempts.wait()
        await delivery


@pytest.mark.parametrize("is_sent_before", [False, True], ids=["send_and_wait", "send"])
async def test_a_record_alone_that_cannot_be_written_ends_and_the_producer_sends_on(
    cluster, monkeypatch, is_sent_before
):
    (partition,) = cluster.topics["t"]
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"before")
        with monkeypatch.context() as broken:
            broken.setattr(ProduceTemplate, "frame_batch", raising)
            broken.setattr("ottla.client.sender.seal_batch", raising)  # in the general way, which tries it again
            await ends_with_it(await producer.send("t", b"0") if is_sent_before else producer.send_and_wait("t", b"0"))
        assert (await producer.send_and_wait("t", b"after")).offset == 1
    assert partition.values == [b"before", b"after"]


@pytest.mark.parametrize("is_sent_before", [False, True], ids=["send_and_wait", "send"])
async def test_a_failure_after_a_record_alone_was_written_ends_the_producer(cluster, monkeypatch, is_sent_before):
    (partition,) = cluster.topics["t"]
    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"before")
        monkeypatch.setattr(SendQueues, "sent_alone", raising)
        await ends_with_it(await producer.send("t", b"0") if is_sent_before else producer.send_and_wait("t", b"0"))
        await ends_with_it(producer.send("t", b"1"))
    assert partition.values[0] == b"before"


@pytest.mark.parametrize("inside", [(Connection, "write_now"), (SendQueues, "sent_alone")], ids=lambda one: one[1])
async def test_after_an_interrupt_while_a_record_is_written_no_other_gets_its_sequence(cluster, monkeypatch, inside):
    (partition,) = cluster.topics["t"]

    def interrupted(*_):
        raise KeyboardInterrupt

    async with Producer(cluster.bootstrap, linger_ms=0) as producer:
        await producer.send_and_wait("t", b"before")
        with monkeypatch.context() as interrupting:
            interrupting.setattr(*inside, interrupted)
            sending = producer.send_and_wait("t", b"interrupted")
            with pytest.raises(KeyboardInterrupt):
                sending.send(None)
        with pytest.raises(ClientFailed, match="KeyboardInterrupt"):
            await producer.send_and_wait("t", b"after")
    assert partition.values in ([b"before"], [b"before", b"interrupted"])


async def test_a_call_that_waits_for_room_ends_with_what_failed(cluster, monkeypatch):
    async with Producer(
        cluster.bootstrap, buffer_memory=1000, linger_ms=60_000, delivery_timeout_ms=600_000
    ) as producer:
        await producer.partitions_for("t")
        await producer.send("t", bytes(700))
        monkeypatch.setattr(SendQueues, "gather", raising)
        await ends_with_it(producer.send("t", bytes(700)))
        await ends_with_it(producer.flush())


async def test_a_deadline_that_cannot_be_kept_ends_the_records(cluster, monkeypatch):
    async with Producer(cluster.bootstrap, linger_ms=10, request_timeout_ms=30, delivery_timeout_ms=50) as producer:
        await producer.partitions_for("t")
        monkeypatch.setattr(SendQueues, "gather", lambda queues, now: {})
        monkeypatch.setattr(Sender, "expire", raising)
        await ends_with_it(await producer.send("t", b"0"))


@pytest.mark.parametrize("inside", ["has_questions", "next_question"])
async def test_a_transaction_that_fails_ends_the_producer(cluster, monkeypatch, inside):
    FakeTransactions(cluster).topic("t")
    producer = Producer(cluster.bootstrap, transactional_id="id")
    await producer.start()
    await producer.begin_transaction()
    await producer.send("t", b"0")
    monkeypatch.setattr(Transactions, inside, raising if inside == "next_question" else property(raising))
    with pytest.raises(FatalTransactionError) as failed:
        await producer.commit_transaction()
    assert isinstance(failed.value.__cause__, ClientFailed)
    await producer.close()


def ask(connection, timeout_ms=None):
    return connection.send(MetadataRequest(topics=[]), MetadataResponse, 12, timeout_ms)


async def test_an_answer_that_cannot_be_received_ends_the_connection_with_its_requests(cluster, monkeypatch):
    connection = await connect("127.0.0.1", cluster.ports[0], ClientOptions())
    waiting = [ask(connection) for _ in range(3)]
    monkeypatch.setattr(Exchange, "receive", raising)
    for one in waiting:
        await ends_with_it(one)
    assert not connection.is_open
    await connection.closed


async def test_an_answer_that_cannot_be_taken_ends_its_request_and_the_others_of_the_connection(cluster, monkeypatch):
    connection = await connect("127.0.0.1", cluster.ports[0], ClientOptions())
    waiting = [ask(connection) for _ in range(3)]
    monkeypatch.setattr("ottla.client_core.exchange.decode", raising)
    for one in waiting:
        await ends_with_it(one)
    assert not connection.is_open


async def test_a_deadline_that_cannot_be_looked_up_ends_the_connection(cluster, monkeypatch):
    cluster.handlers[MetadataRequest] = lambda request, version: SILENCE
    connection = await connect("127.0.0.1", cluster.ports[0], ClientOptions())
    monkeypatch.setattr(Exchange, "overdue", raising)
    await ends_with_it(ask(connection, timeout_ms=10))
    assert not connection.is_open


@pytest.mark.parametrize("inside", ["_size_socket_buffers", "_watch_idleness", "_continue_handshake"])
async def test_a_connection_that_cannot_begin_fails(cluster, monkeypatch, inside):
    monkeypatch.setattr(Connection, inside, raising)
    await ends_with_it(connect("127.0.0.1", cluster.ports[0], ClientOptions()))


async def test_a_connection_whose_end_fails_ends_its_requests_all_the_same(cluster, monkeypatch):
    cluster.handlers[MetadataRequest] = lambda request, version: SILENCE
    connection = await connect("127.0.0.1", cluster.ports[0], ClientOptions())
    waiting = ask(connection)
    monkeypatch.setattr(Connection, "_end_use", raising)
    cluster.drop_connections()
    await ends_with_it(waiting)
    await connection.closed


async def test_an_idle_connection_that_cannot_be_looked_at_ends(cluster, monkeypatch):
    connection = await connect("127.0.0.1", cluster.ports[0], ClientOptions(connections_max_idle_ms=20))
    monkeypatch.setattr(ClientOptions, "connections_max_idle_ms", property(raising))
    await asyncio.wait_for(connection.closed, LIMIT_S)
    assert not connection.is_open


async def reading(cluster):
    consumer = Consumer(cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    await consumer.assign_topics("t")
    return consumer


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Fetcher, "_ask"),
        (Fetcher, "_fetch"),
        (Fetcher, "_end_of"),
        (FetchAnswers, "_add"),
        (AssignedPartition, "move"),
        (Cluster, "connection"),
        (Cluster, "open_connection"),
    ],
)
async def test_a_consumer_that_fails_raises_it_and_reads_on(cluster, monkeypatch, owner, name):
    async with Producer(cluster.bootstrap) as producer:
        await producer.send_and_wait("t", b"0")
    consumer = Consumer(cluster.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    with monkeypatch.context() as broken:
        broken.setattr(owner, name, raising)
        await consumer.assign_topics("t")
        await ends_with_it(consumer.getone())
    consumer.seek(("t", 0), 0)
    record = await consumer.getone()
    assert isinstance(record, ConsumerRecord)
    assert record.value == b"0"
    await consumer.close()


async def test_a_consumer_that_fails_can_be_closed(cluster, monkeypatch):
    monkeypatch.setattr(Fetcher, "_ask", raising)
    consumer = await reading(cluster)
    waiting = asyncio.ensure_future(consumer.getone())
    await ends_with_it(waiting)
    await consumer.close()
    with pytest.raises(ClientClosed):
        await consumer.getone()


def test_a_blocking_producer_that_fails_ends_what_threads_wait_for(monkeypatch):
    fake = FakeCluster()
    fake.add_topic("t")
    with threaded(fake), ottla.Producer(fake.bootstrap, linger_ms=5) as producer:
        producer.send_and_wait("t", b"before")
        monkeypatch.setattr(ottla.Producer, "_put_alone", lambda *_: False)
        monkeypatch.setattr(ottla.Producer, "_put", raising)
        refused = producer.send("t", b"in the inbox")
        with pytest.raises(ClientFailed):
            refused.result(LIMIT_S * 1000)
        monkeypatch.undo()
        monkeypatch.setattr(SendQueues, "gather", raising)
        with pytest.raises(ClientFailed):
            producer.send("t", b"in a batch").result(LIMIT_S * 1000)
        with pytest.raises(ClientFailed):
            producer.send_and_wait("t", b"after")
