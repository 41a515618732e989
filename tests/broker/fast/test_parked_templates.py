"""Fetches that wait and are answered from their templates: what wakes them, what they share, how they end."""

from __future__ import annotations

import gc
import weakref
from typing import Any
from unittest.mock import patch

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, pass_time, start_node
from kit.session_consumer import SessionConsumer
from kit.transactional import end_transaction, put_transactional

from ottla.broker.catalog.catalog import TopicResult
from ottla.broker.fast.fetch_template import FetchTemplate
from ottla.broker.fast.parked_templates import ParkedPartitionsFetch, ParkedPlainFetch
from ottla.broker.fetch.delayed_fetch import DelayedFetch
from ottla.broker.fetch.parked_fetches import MOST_TIMER_MS, ParkedFetch, Tail
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.net.reply_queue import ReplyQueue
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.runtime.turn import Turn
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.control import ControlType
from ottla.storage.log.log_reader import LogReader

TOPIC = "orders"
WAIT_MS = 500
VERSION = 12


class Broker:
    """A node with a topic of two partitions."""

    def __init__(self, **config: Any) -> None:
        self.node, _, self.clock = start_node(ottla_acks_all="page-cache", **config)
        make_topic(self.node, TOPIC, 2)
        self.producer = Exchange(self.node)

    def put(self, index: int = 0, size: int = 10) -> None:
        self.producer.ask(produce_request(TOPIC, batch(value=b"x" * size), partition=index), 9)

    def tail(self, index: int = 0) -> Tail:
        tail = partition_of(self.node, TOPIC, index).tail
        assert isinstance(tail, Tail)
        return tail

    def reader(self, **more: Any) -> Exchange:
        """A client whose request has a template."""
        client = Exchange(self.node, self.producer)
        client.ask(asking(0, max_wait_ms=0, **more), VERSION)
        client.send(asking(0, max_wait_ms=WAIT_MS, **more), VERSION)
        self.node.settle()
        pass_time(self.node, self.clock, WAIT_MS)
        assert len(client.replies()) == 1
        return client


def asking(offset: int, *, max_wait_ms: int = WAIT_MS, **more: Any) -> FetchRequest:
    request: FetchRequest = fetch_request(TOPIC, offset, max_wait_ms=max_wait_ms, **more)
    return request


def in_flight(client: Exchange) -> Any:
    (waiting,) = client.connection.queue.in_flight
    return waiting


def park(node: Node, client: Exchange, offset: int, **more: Any) -> ParkedFetch:
    client.send(asking(offset, **more), VERSION)
    node.settle()
    waiting = in_flight(client)
    assert isinstance(waiting, ParkedPlainFetch)
    return waiting


def records_of(response: Any) -> bytes:
    assert isinstance(response, FetchResponse)
    (topic,) = response.responses
    (data,) = topic.partitions
    assert data.error_code == 0
    return bytes(data.records or b"")


def test_those_that_wait_for_the_same_share_one_read_and_one_answer() -> None:
    broker = Broker()
    clients = [broker.reader() for _ in range(3)]
    for client in clients:
        park(broker.node, client, 0)
    original, reads = Partition.read_on, []
    answered, answers = ReplyQueue.parked_answered, []

    def read(self: Partition, *arguments: Any) -> Any:
        reads.append(arguments)
        return original(self, *arguments)

    def answer(self: ReplyQueue, request: Any, reply: list[Any]) -> None:
        answers.append(reply)
        answered(self, request, reply)

    with patch.object(Partition, "read_on", read), patch.object(ReplyQueue, "parked_answered", answer):
        broker.put()
    assert len(reads) == 2  # on from where a read ended, which none did; then from anywhere
    assert len(answers) == len(clients)
    assert len({id(each[2]) for each in answers}) == 1
    assert {records_of(client.reply()) for client in clients} != {b""}
    assert not broker.tail().waiting


def test_a_producer_that_is_alone_with_those_that_wait_needs_no_turn_of_the_loop() -> None:
    broker = Broker()
    client = broker.reader()
    consumer = SessionConsumer(broker.node, 18, broker.producer)
    consumer.positions = {(TOPIC, 0): 0}
    turn = broker.node.services.turn
    asked: list[None] = []
    for number in range(3 * READS_ALONE):
        consumer.fetch()
        park(broker.node, client, number)
        turn.on_work = lambda: asked.append(None)
        broker.producer.send(produce_request(TOPIC, batch()), 9)
        turn.on_work = None
        if number < 2 * READS_ALONE:
            broker.node.settle()
            asked.clear()
        assert broker.producer.reply()
        assert records_of(client.reply())
        consumer.take()
        assert consumer.positions == {(TOPIC, 0): number + 1}
    assert not asked


def wait_beside_a_producer_that_is_alone(broker: Broker, client: Exchange) -> None:
    """From the second one on, a request that waits does not count as another client that sends."""
    for offset in (0, 1):
        park(broker.node, client, offset)
        broker.put()
        assert records_of(client.reply())
    park(broker.node, client, 2)


def test_one_that_waits_alone_is_answered_behind_a_producer_that_is_alone_and_no_turn_ends() -> None:
    broker = Broker()
    client = broker.reader()
    with patch("ottla.broker.net.connection.READS_ALONE", 0):
        wait_beside_a_producer_that_is_alone(broker, client)
        with patch.object(Turn, "end") as ended:
            broker.producer.send(produce_request(TOPIC, batch()), 9)
            assert broker.producer.replies()
            assert records_of(client.reply())
    assert not ended.called
    assert not broker.tail().waiting


def test_behind_a_producer_that_is_alone_one_of_another_stamp_takes_the_slow_path() -> None:
    broker = Broker()
    client = broker.reader()
    refused = bytearray(batch())
    refused[-1] ^= 1
    with patch("ottla.broker.net.connection.READS_ALONE", 0):
        wait_beside_a_producer_that_is_alone(broker, client)
        broker.node.services.validity.change()
        for _ in range(2):  # it is learnt and found again, and wakes nobody
            broker.producer.ask(produce_request(TOPIC, bytes(refused)), 9)
        with patch.object(FetchTemplate, "answer") as answered:
            broker.put()
    assert not answered.called
    assert records_of(client.reply())


def test_those_that_read_elsewhere_or_have_other_limits_get_their_own() -> None:
    broker = Broker()
    broker.put()
    levels = (0, 1)
    clients = [broker.reader(isolation_level=level) for level in levels]
    others = [broker.reader(min_bytes=size) for size in (100, 250)]
    for client, level in zip(clients, levels, strict=True):
        park(broker.node, client, 1, isolation_level=level)
    for client, size in zip(others, (100, 250), strict=True):
        park(broker.node, client, 0, min_bytes=size)
    broker.put()
    first = [records_of(client.reply()) for client in clients]
    assert first[0] == first[1]
    assert len(records_of(others[0].reply())) == 2 * len(first[0])
    assert not others[1].replies()
    broker.put()
    broker.put()
    assert len(records_of(others[1].reply())) >= 250


@pytest.mark.parametrize("min_bytes", [1, 1_000])
def test_at_its_deadline_a_fetch_gets_what_there_is(min_bytes: int) -> None:
    broker = Broker()
    client = broker.reader(min_bytes=min_bytes)
    park(broker.node, client, 0, min_bytes=min_bytes)
    pass_time(broker.node, broker.clock, WAIT_MS - 1)
    assert not client.replies()
    if min_bytes > 1:
        broker.put()
    pass_time(broker.node, broker.clock, 1)
    assert bool(records_of(client.reply())) == (min_bytes > 1)
    assert not broker.tail().waiting


def test_one_timer_stands_for_all_that_wait_equally_long() -> None:
    broker = Broker()
    clients = [broker.reader() for _ in range(5)]
    pass_time(broker.node, broker.clock, WAIT_MS)
    timers = len(broker.node.services.timers)
    fetches = []
    for client in clients:
        fetches.append(park(broker.node, client, 0))
        broker.clock.advance(10)
    assert len(broker.node.services.timers) <= timers + 1
    assert len(fetches[0].deadlines) == 5
    for left in (4, 3, 2, 1, 0):
        pass_time(broker.node, broker.clock, WAIT_MS - 50 if left == 4 else 10)
        assert len(fetches[0].deadlines) == left
    assert [records_of(client.reply()) for client in clients] == [b""] * 5


@pytest.mark.parametrize("wait_ms", [MOST_TIMER_MS, 2 * MOST_TIMER_MS + 1])
def test_one_that_asks_for_a_long_wait_is_answered_at_its_end(wait_ms: int) -> None:
    broker = Broker()
    broker.put()
    client = Exchange(broker.node, broker.producer)
    client.ask(asking(0, max_wait_ms=wait_ms), VERSION)
    park(broker.node, client, 1, max_wait_ms=wait_ms)
    pass_time(broker.node, broker.clock, wait_ms - 1)
    assert not client.replies()
    pass_time(broker.node, broker.clock, 1)
    assert records_of(client.reply()) == b""


def test_clients_that_ask_for_long_waits_and_go_leave_no_timers() -> None:
    broker = Broker()
    broker.put()
    timers = len(broker.node.services.timers)
    for number in range(5):
        client = Exchange(broker.node, broker.producer)
        long = (1 << 31) - 1 - number
        client.ask(asking(0, max_wait_ms=long), VERSION)
        park(broker.node, client, 1, max_wait_ms=long)
        client.connection.connection_lost(None)
    assert len(broker.node.services.timers) == timers + 5
    pass_time(broker.node, broker.clock, MOST_TIMER_MS)
    assert len(broker.node.services.timers) == timers


def test_a_deleted_topic_is_reported_at_once() -> None:
    broker = Broker()
    client = broker.reader()
    park(broker.node, client, 0)
    results: list[TopicResult] = []
    broker.node.services.catalog.delete_topics([TOPIC], results.extend)
    broker.node.settle()
    response = client.reply()
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_at_another_stamp_it_goes_on_by_the_slow_path_for_the_time_that_is_left() -> None:
    broker = Broker()
    client = broker.reader(min_bytes=300)
    park(broker.node, client, 0, min_bytes=300)
    broker.clock.advance(200)
    broker.node.services.validity.change()
    broker.put()
    assert not isinstance(in_flight(client).pending, type(None))
    assert not broker.tail().waiting
    pass_time(broker.node, broker.clock, WAIT_MS - 201)
    assert not client.replies()
    pass_time(broker.node, broker.clock, 1)
    assert records_of(client.reply())


def test_at_its_deadline_and_another_stamp_it_asks_again_for_its_right() -> None:
    broker = Broker()
    client = broker.reader()
    park(broker.node, client, 0)
    object.__setattr__(broker.node.services, "authorizer", NobodyMay())  # frozen
    broker.node.services.validity.change()
    pass_time(broker.node, broker.clock, WAIT_MS)
    response = client.reply()
    assert isinstance(response, FetchResponse)
    assert response.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class NobodyMay:
    def is_allowed(self, *_: object) -> bool:
        return False


@pytest.mark.parametrize("is_on_slow_path", [False, True])
def test_a_client_that_goes_leaves_nothing_behind(is_on_slow_path: bool) -> None:
    broker = Broker()
    client = broker.reader(min_bytes=300)
    waiting = park(broker.node, client, 0, min_bytes=300)
    deadlines = waiting.deadlines
    if is_on_slow_path:
        broker.node.services.validity.change()
        broker.put()
    client.connection.connection_lost(None)
    assert not broker.tail().waiting
    assert not len(deadlines)
    broker.put()  # which finds that nothing waits any more
    assert not partition_of(broker.node, TOPIC).is_watched


def test_a_log_keeps_what_is_appended_while_a_client_waits_and_no_longer() -> None:
    broker = Broker()
    client = broker.reader()
    park(broker.node, client, 0)
    broker.put()  # the first of a segment, which is written in another way
    client.reply()
    park(broker.node, client, 1)
    broker.put()
    reader = partition_of(broker.node, TOPIC).log.reader
    assert reader.newest is not None
    assert records_of(client.reply()) == reader.newest[2]
    client.connection.connection_lost(None)
    broker.put()  # which finds that nothing waits any more
    assert reader.newest is None
    broker.put()
    assert reader.newest is None


def test_when_the_broker_stops_it_is_cut_short() -> None:
    broker = Broker()
    client = broker.reader()
    park(broker.node, client, 0)
    client.connection.drain()
    broker.node.settle()
    assert client.transport.is_closing()
    assert not client.replies()
    assert not broker.tail().waiting


def test_nothing_starts_behind_it() -> None:
    broker = Broker()
    client = broker.reader()
    park(broker.node, client, 0)
    client.send(produce_request(TOPIC, batch()), 9)
    broker.node.settle()
    assert partition_of(broker.node, TOPIC).high_watermark == 0
    broker.put(1)
    assert not client.replies()
    pass_time(broker.node, broker.clock, WAIT_MS)
    assert [type(response).__name__ for _, response in client.replies()] == ["FetchResponse", "ProduceResponse"]


def test_answers_for_which_a_turn_has_no_memory_come_in_the_next() -> None:
    broker = Broker()
    clients = [broker.reader(min_bytes=1 + number) for number in range(3)]
    for number, client in enumerate(clients):
        park(broker.node, client, 0, min_bytes=1 + number)
    memory = broker.node.services.answer_memory
    memory.max_bytes = 800  # an eighth of it is a batch of 100 bytes
    broker.producer.send(produce_request(TOPIC, batch(value=b"x" * 100)), 9)
    answered = []
    for _ in range(3):
        broker.producer.end_turn()
        answered.append(sum(len(client.replies()) for client in clients))
    assert answered == [1, 1, 1]


def test_very_many_that_one_append_wakes_are_answered_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    clients = [broker.reader() for _ in range(5)]
    for client in clients:
        park(broker.node, client, 0)
    monkeypatch.setattr("ottla.broker.fetch.parked_fetches.MOST_PER_TURN", 2)
    broker.producer.send(produce_request(TOPIC, batch()), 9)
    answered = []
    for _ in range(4):
        broker.producer.end_turn()
        answered.append(sum(len(client.replies()) for client in clients))
    assert answered == [2, 2, 1, 0]


def test_an_error_in_one_answer_keeps_no_other_back() -> None:
    broker = Broker()
    clients = [broker.reader() for _ in range(2)]
    first = park(broker.node, clients[0], 0)
    park(broker.node, clients[1], 0)
    look = ParkedPlainFetch.look

    def faulty(self: ParkedPlainFetch, reads: Any) -> None:
        if self is first:
            raise ZeroDivisionError
        look(self, reads)

    with patch.object(ParkedPlainFetch, "look", faulty):
        broker.put()
    assert clients[0].transport.is_closing()
    assert records_of(clients[1].reply())


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_one_that_waits_alone_gets_what_was_appended_last_from_memory(isolation_level: int) -> None:
    broker = Broker()
    client = broker.reader(isolation_level=isolation_level)
    for offset in (0, 1):
        park(broker.node, client, offset, isolation_level=isolation_level)
        broker.put()
        assert records_of(client.reply())
    park(broker.node, client, 2, isolation_level=isolation_level)
    with patch.object(Partition, "read_on") as decided, patch.object(LogReader, "read_on") as by_hint:
        broker.put()
        records = records_of(client.reply())
    assert not decided.called
    assert not by_hint.called
    reader = partition_of(broker.node, TOPIC).log.reader
    assert reader.newest is not None
    assert records == reader.newest[2]


def test_one_that_waits_for_committed_records_gets_those_of_a_transaction_with_its_end() -> None:
    broker = Broker()
    client = broker.reader(isolation_level=1)
    park(broker.node, client, 0, isolation_level=1)
    partition = partition_of(broker.node, TOPIC)
    put_transactional(partition, 1000, 1)
    broker.node.settle()
    assert not client.replies()
    end_transaction(partition, 1000, ControlType.COMMIT)
    broker.node.settle()
    assert [header.base_offset for _, header in iter_batches(records_of(client.reply()))] == [0, 1]
    park(broker.node, client, 2, isolation_level=1)
    put_transactional(partition, 1000, 1)
    broker.put()
    assert not client.replies()


def test_in_a_session_only_what_has_changed_is_looked_at_again() -> None:
    broker = Broker()
    consumer = SessionConsumer(broker.node, 18)
    consumer.positions = {(TOPIC, 0): 0, (TOPIC, 1): 0}
    for _ in range(2):
        consumer.fetch()
        broker.put(1)
        consumer.take()
    consumer.fetch()
    assert isinstance(in_flight(consumer.exchange), ParkedPartitionsFetch)
    original, reads = LogReader.read_newest, []

    def read(self: LogReader, *arguments: Any) -> Any:
        reads.append(self)
        return original(self, *arguments)

    with (
        patch.object(LogReader, "read_newest", read),
        patch.object(LogReader, "read_on") as others,
        patch.object(DelayedFetch, "park") as slow,
    ):
        broker.put(1)
        consumer.take()
        assert consumer.positions == {(TOPIC, 0): 0, (TOPIC, 1): 3}
    assert reads == [partition_of(broker.node, TOPIC, 1).log.reader]
    assert not others.called
    assert not slow.called
    assert not broker.tail(0).waiting
    assert not broker.tail(1).waiting


def test_in_a_session_a_fetch_waits_for_its_minimum_over_all_partitions() -> None:
    broker = Broker()
    consumer = SessionConsumer(broker.node, 18)
    consumer.positions = {(TOPIC, 0): 0, (TOPIC, 1): 0}
    consumer.limits["min_bytes"] = 500
    for _ in range(2):
        consumer.fetch()
        broker.put(size=500)
        consumer.take()
    consumer.fetch()
    assert isinstance(in_flight(consumer.exchange), ParkedPartitionsFetch)
    with patch.object(DelayedFetch, "park") as slow:
        broker.put(1, size=200)
        consumer.take()
        assert consumer.is_waiting
        broker.put(size=300)
        consumer.take()
        assert consumer.positions == {(TOPIC, 0): 3, (TOPIC, 1): 1}
        consumer.fetch()
        broker.put(1, size=200)
        pass_time(broker.node, broker.clock, WAIT_MS)
        consumer.take()
        assert consumer.positions == {(TOPIC, 0): 3, (TOPIC, 1): 2}
    assert not slow.called


def test_those_in_a_session_and_those_without_one_share_what_is_read() -> None:
    broker = Broker()
    client = broker.reader()
    consumer = SessionConsumer(broker.node, 18)
    consumer.positions = {(TOPIC, 0): 0}
    consumer.limits["max_bytes"] = consumer.partition_max_bytes = 1 << 20
    for _ in range(2):
        consumer.fetch()
        broker.put()
        consumer.take()
    client.ask(asking(2, max_wait_ms=0), VERSION)
    park(broker.node, client, 2)
    consumer.fetch()
    assert isinstance(in_flight(consumer.exchange), ParkedPartitionsFetch)
    original, reads = Partition.read_on, []

    def read(self: Partition, *arguments: Any) -> Any:
        reads.append(arguments)
        return original(self, *arguments)

    with patch.object(Partition, "read_on", read):
        broker.put()
    consumer.take()
    assert consumer.positions == {(TOPIC, 0): 3}
    assert records_of(client.reply())
    assert len(reads) == 1


def test_the_next_one_that_waits_takes_the_place_of_one_that_is_answered() -> None:
    broker = Broker()
    client = broker.reader()
    first = park(broker.node, client, 0)
    broker.put()
    client.reply()
    assert first.buffers is None  # memory of an answer that has left
    assert park(broker.node, client, 1) is first
    broker.clock.advance(WAIT_MS - 1)
    broker.put()
    assert records_of(client.reply())
    assert park(broker.node, client, 2) is first
    pass_time(broker.node, broker.clock, WAIT_MS - 1)
    assert not client.replies()
    pass_time(broker.node, broker.clock, 1)
    assert records_of(client.reply()) == b""


def test_the_place_of_one_that_took_the_slow_path_is_not_taken() -> None:
    broker = Broker()
    client = broker.reader()
    first = park(broker.node, client, 0)
    with patch.object(FetchTemplate, "answer", lambda *_: None):
        broker.put()
    assert records_of(client.reply())
    assert park(broker.node, client, 1) is not first
    broker.put()
    assert records_of(client.reply())


def session_that_waits(broker: Broker) -> SessionConsumer:
    """A consumer of both partitions, whose request has a template and waits."""
    consumer = SessionConsumer(broker.node, 18)
    consumer.positions = {(TOPIC, 0): 0, (TOPIC, 1): 0}
    for _ in range(2):
        consumer.fetch()
        broker.put(1)
        consumer.take()
    consumer.fetch()
    return consumer


def test_in_a_session_the_next_one_that_waits_takes_the_place_of_one_that_is_answered() -> None:
    broker = Broker()
    consumer = session_that_waits(broker)
    first = in_flight(consumer.exchange)
    assert isinstance(first, ParkedPartitionsFetch)
    for index in (0, 1):
        broker.put(index)
        consumer.take()
        assert first.buffers is None  # memory of an answer that has left
        consumer.fetch()
        assert in_flight(consumer.exchange) is first
    assert consumer.positions == {(TOPIC, 0): 1, (TOPIC, 1): 3}


def test_a_client_that_goes_leaves_no_circle_of_its_session_behind() -> None:
    broker = Broker()

    class Noted(ParkedPartitionsFetch):
        __slots__ = ("__weakref__",)

    with patch("ottla.broker.fast.partitions_template.ParkedPartitionsFetch", Noted):
        consumer = session_that_waits(broker)
        waiting = weakref.ref(in_flight(consumer.exchange))
        assert isinstance(waiting(), Noted)
    broker.put()
    gc.disable()
    try:
        consumer.exchange.connection.connection_lost(None)
        assert waiting() is None
    finally:
        gc.enable()


def test_a_client_that_goes_leaves_no_circle_behind() -> None:
    broker = Broker()

    class Noted(ParkedPlainFetch):
        __slots__ = ("__weakref__",)

    with patch("ottla.broker.fast.fetch_templates.ParkedPlainFetch", Noted):
        client = broker.reader()
        waiting = weakref.ref(park(broker.node, client, 0))
    broker.put()
    gc.disable()
    try:
        client.connection.connection_lost(None)
        assert waiting() is None
    finally:
        gc.enable()
