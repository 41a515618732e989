"""Many clients that ask for much which has to be read into memory: together they hold no more than the bound.

Old clients, whose answers are converted, and new ones whose records are not in the page cache. Each limit has its row
in docs/limits.md. No sockets and no threads: what workers do waits here until it is asked for.
"""

from __future__ import annotations

import struct
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node_with
from kit.transactional import end_transaction, put_transactional
from kit.transport import feed
from kit.workers import HeldWorkers

from ottla.broker.fetch.fetch_read import FetchRead
from ottla.broker.partitions.partition import Partition
from ottla.broker.peer import Endpoint
from ottla.broker.runtime.answer_memory import WAIT_MOST_MS
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode
from ottla.storage.segment.slice import LogSlice

MIB = 1 << 20
BATCHES, BATCH_RECORDS, VALUE = 8, 4, bytes(50_000)
BOUND = 8 * MIB


class Setting:
    def __init__(self, bound: int = BOUND) -> None:
        self.clock: ManualClock
        self.workers = HeldWorkers()
        self.node, _, self.clock = start_node_with(
            self.workers,
            ottla_acks_all="page-cache",
            ottla_connections_max_unsent_bytes=bound,
            ottla_connection_max_pending_bytes=bound,
        )
        make_topic(self.node, "t", 1)
        self.first = Exchange(self.node)
        for _ in range(BATCHES):
            self.first.ask(produce_request("t", batch(BATCH_RECORDS, value=VALUE)), 9)
        self.workers.holds = True

    def client(self) -> Exchange:
        return Exchange(self.node, beside=self.first)

    def ask(self, count: int, version: int, **more: Any) -> list[Exchange]:
        clients = [self.client() for _ in range(count)]
        for client in clients:
            client.send(fetch_request("t", 0, **more), version)
            client.end_turn()
        return clients

    def work(self) -> None:
        while self.workers.jobs:
            self.workers.run_next()
            self.node.services.turn.end()

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.run_due()
        self.node.services.turn.end()


@pytest.fixture
def setting() -> Setting:
    return Setting()


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache."""
    read = Partition.read

    def read_cold(self: Partition, offset: int, max_bytes: int, *more: Any, **named: Any) -> LogSlice:
        piece = read(self, offset, max_bytes, *more, **named)
        return LogSlice(None, piece.length, load=piece.read_blocking) if piece.length else piece

    monkeypatch.setattr(Partition, "read", read_cold)


def records_of(client: Exchange) -> int:
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    data = answer.responses[0].partitions[0]
    assert data.error_code == 0
    return len(data.records or b"")


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_clients_that_wait_for_their_conversion_hold_nothing(setting: Setting, version: int) -> None:
    tracemalloc.start()
    try:
        setting.ask(60, version)
        assert tracemalloc.get_traced_memory()[0] < 2 * MIB
        assert setting.node.services.answer_memory.reserved_bytes <= BOUND
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [0, 3, 4, 11, 12])
def test_what_is_read_for_many_keeps_to_the_bound_and_all_are_answered(
    setting: Setting, version: int, cold: None
) -> None:
    tracemalloc.start()
    try:
        clients = setting.ask(60, version)
        sizes = []
        while setting.workers.jobs:
            assert setting.node.services.answer_memory.reserved_bytes <= BOUND
            setting.workers.run_next()
            setting.node.services.turn.end()
            for client in clients:
                if client.transport.written:
                    sizes.append(records_of(client))
        assert tracemalloc.get_traced_memory()[1] < 2 * BOUND
    finally:
        tracemalloc.stop()
    assert len(sizes) == 60
    assert min(sizes) >= BATCH_RECORDS * len(VALUE)
    assert setting.node.services.answer_memory.reserved_bytes == 0


@pytest.mark.parametrize("version", [2, 12])
def test_what_a_connection_had_comes_back_when_it_ends(setting: Setting, version: int, cold: None) -> None:
    """In the line, and while a worker reads for it: then once that is done."""
    clients = setting.ask(60, version)
    memory = setting.node.services.answer_memory
    waiting = memory.waiting
    assert waiting > 0
    for client in clients[::2]:
        client.connection.connection_lost(None)
    setting.node.services.turn.end()
    assert memory.waiting < waiting
    setting.work()
    assert memory.reserved_bytes == memory.waiting == 0
    assert all(records_of(client) for client in clients[1::2])


@pytest.mark.parametrize("version", [2, 12])
@pytest.mark.parametrize(
    ("error", "codes"),
    [
        (OSError(5, "bad sector"), {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR}),
        (ZeroDivisionError(), {ErrorCode.UNKNOWN_SERVER_ERROR}),  # a bug, says the log
    ],
)
def test_what_a_worker_could_not_read_is_refused_and_gives_its_memory_back(
    setting: Setting,
    version: int,
    error: Exception,
    codes: set[ErrorCode],
    cold: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: LogSlice) -> bytes:
        raise error

    monkeypatch.setattr(LogSlice, "read_blocking", fail)
    (client,) = setting.ask(1, version)
    assert setting.node.services.answer_memory.reserved_bytes > 0
    setting.work()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert {answer.error_code, *(data.error_code for topic in answer.responses for data in topic.partitions)} & codes
    assert setting.node.services.answer_memory.reserved_bytes == 0


@pytest.mark.parametrize("version", [2, 12])
def test_where_no_thread_can_be_started_the_client_is_answered_and_the_memory_comes_back(
    setting: Setting, version: int, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(setting.workers, "run", fail)
    (client,) = setting.ask(1, version)
    assert len(client.replies()) == 1
    assert setting.node.services.answer_memory.reserved_bytes == 0


@pytest.mark.parametrize("version", [2, 12])
@pytest.mark.parametrize("place", ["read_blocking", "response", "size_bytes", "encode"])
def test_where_the_system_gives_no_memory_the_connection_ends_and_what_it_had_comes_back(
    setting: Setting, version: int, place: str, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise MemoryError

    if place == "encode":
        monkeypatch.setattr("ottla.broker.requests.gate.encode_buffers", fail)
    else:
        monkeypatch.setattr(LogSlice if place == "read_blocking" else FetchRead, place, fail)
    setting.node.services.memory_reserve.take()
    (client,) = setting.ask(1, version)
    setting.work()
    assert client.transport.closed
    client.connection.connection_lost(None)
    assert setting.node.services.answer_memory.reserved_bytes == 0
    assert not setting.node.services.memory_reserve.is_held
    monkeypatch.undo()
    (other,) = setting.ask(1, version)
    setting.work()
    assert records_of(other) > 0


def test_a_fetch_that_finds_no_room_for_long_is_answered_without_records(setting: Setting, cold: None) -> None:
    held = setting.node.services.answer_memory.reserve(BOUND)
    assert held is not None
    (client,) = setting.ask(1, 12)
    setting.pass_time(WAIT_MOST_MS - 1)
    assert not client.transport.written
    setting.pass_time(1)
    assert records_of(client) == 0
    assert client.ask(fetch_request("t", partition_of(setting.node, "t").high_watermark), 12)  # it goes on
    held.release()


def test_a_first_batch_that_is_larger_than_the_bound_gets_through(setting: Setting, cold: None) -> None:
    make_topic(setting.node, "large", 1, max_message_bytes="20000000")
    large = bytearray(batch(1, value=bytes(BOUND + MIB)))
    partition_of(setting.node, "large").append([memoryview(large)], len(large), setting.clock.wall_ms())
    for version in (2, 12):
        client = setting.client()
        client.send(fetch_request("large", 0), version)
        client.end_turn()
        setting.work()
        assert records_of(client) > BOUND
    assert setting.node.services.answer_memory.reserved_bytes == 0


def test_an_answer_counts_until_it_is_sent_and_then_as_unsent(setting: Setting, cold: None) -> None:
    memory = setting.node.services.answer_memory
    (client,) = setting.ask(1, 2)
    reserved = memory.reserved_bytes
    setting.workers.run_next()
    assert 0 < memory.reserved_bytes <= reserved  # the answer is there, and leaves at the end of the turn
    client.connection.pause_writing()  # its socket is full
    client.transport.unsent_bytes = 100_000
    setting.node.services.turn.end()
    assert memory.reserved_bytes == 0
    assert memory.unsent_bytes > BATCH_RECORDS * len(VALUE)
    client.connection.resume_writing()
    assert memory.unsent_bytes == 0


def test_nothing_starts_behind_an_answer_that_has_not_left(setting: Setting, cold: None) -> None:
    (client,) = setting.ask(1, 2)
    client.send(fetch_request("t", 4), 2)
    client.end_turn()
    assert len(setting.workers.jobs) == 1
    setting.workers.run_next()
    assert not setting.workers.jobs
    setting.node.services.turn.end()
    setting.node.services.turn.end()
    assert len(client.replies()) == 1
    setting.work()
    setting.node.services.turn.end()
    assert records_of(client)
    assert setting.node.services.answer_memory.reserved_bytes == 0


def test_an_answer_behind_a_produce_that_waits_is_held_until_it_leaves(cold: None) -> None:
    """Replies leave in order: what is sent before must not give back what comes after."""
    setting = Setting()
    make_topic(setting.node, "synced", 1, ottla_acks_all="sync")
    client = setting.client()
    client.send(produce_request("synced", batch()), 9)
    client.send(fetch_request("t", 0), 12)
    client.end_turn()
    setting.workers.run_next()
    setting.node.services.turn.end()
    assert not client.transport.written
    assert setting.node.services.answer_memory.reserved_bytes > 0
    setting.node.settle()
    setting.node.services.turn.end()
    assert len(client.replies()) == 2
    assert setting.node.services.answer_memory.reserved_bytes == 0


def test_hot_records_of_a_new_client_ask_nobody(setting: Setting) -> None:
    held = setting.node.services.answer_memory.reserve(BOUND)
    assert held is not None
    client = setting.client()
    client.connection.peer.endpoint = Endpoint(sends_maps=True)
    partition = partition_of(setting.node, "t")
    data = partition.read(0, MIB, at_least_one=True, allow_map=True)
    assert data.view is not None
    client.send(fetch_request("t", 0), 12)
    client.end_turn()
    assert not setting.workers.jobs
    assert records_of(client) > 0


def test_memory_is_reserved_for_records_among_which_some_were_aborted(setting: Setting) -> None:
    """They are not sent from a map, since the aborted transactions in them are listed; also where a read goes on from
    the one before."""
    partition = partition_of(setting.node, "t")
    put_transactional(partition, 1000)
    end_transaction(partition, 1000)
    client = setting.client()
    client.connection.peer.endpoint = Endpoint(sends_maps=True)
    for offset in range(0, BATCHES * BATCH_RECORDS, 2 * BATCH_RECORDS):
        request = fetch_request("t", offset, isolation_level=1)
        request.topics[0].partitions[0].partition_max_bytes = 500_000
        client.send(request, 12)
        client.end_turn()
        assert setting.node.services.answer_memory.reserved_bytes > 2 * BATCH_RECORDS * len(VALUE)
        setting.work()
        assert records_of(client) > 2 * BATCH_RECORDS * len(VALUE)


def test_what_old_clients_produce_counts_as_received_until_it_is_converted(setting: Setting) -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 1 << 20)
    for number in range(4):
        builder.append(number, 1_700_000_000_000, b"k", VALUE)
    messages = bytes(builder.build())
    buffers = setting.first.connections.shared.buffers
    clients = [setting.client() for _ in range(5)]
    for client in clients:
        client.send(produce_request("t", messages), 2)
        client.end_turn()
    assert buffers.owned_bytes == 5 * len(messages)
    assert not buffers.may_own(
        setting.node.services.config.queued_max_request_bytes, object()
    )  # nobody is exempt meanwhile
    clients[0].connection.connection_lost(None)
    setting.work()
    assert buffers.owned_bytes == 0
    assert buffers.may_own(setting.node.services.config.queued_max_request_bytes * 2, object())
    assert all(client.replies() for client in clients[1:])


def test_one_append_that_wakes_many_is_read_for_some_in_a_turn_and_for_the_rest_in_the_next_ones() -> None:
    setting = Setting(MIB)
    end = partition_of(setting.node, "t").high_watermark
    clients = [setting.client() for _ in range(10)]
    for client in clients:
        client.send(fetch_request("t", end, max_wait_ms=500), 12)
        client.end_turn()
    setting.first.send(produce_request("t", batch(1, value=VALUE)), 9)
    answered = []
    for _ in range(10):
        setting.node.services.turn.end()
        answered.append(sum(bool(client.transport.written) for client in clients))
    assert 0 < answered[0] < 10
    assert answered[-1] == 10
    assert all(records_of(client) > len(VALUE) for client in clients)
    assert not setting.workers.jobs


def test_requests_in_one_read_are_answered_in_turns_of_a_bounded_size_over_all_connections() -> None:
    """Small answers are copied on the fast path; many requests on many connections may arrive at once."""
    setting = Setting(4 * MIB)
    make_topic(setting.node, "little", 1)
    setting.first.ask(produce_request("little", batch(1, value=VALUE)), 9)
    wanted = fetch_request("little", 0)
    body = encode_request_header(wanted.message_key, 12, 1, "greedy") + encode(wanted, 12)
    frames = (struct.pack(">i", len(body)) + body) * 20
    clients = [setting.client() for _ in range(10)]
    for client in clients:
        feed(client.connection, frames)
    sent = [0]
    for _ in range(100):
        setting.node.services.turn.end()
        sent.append(sum(len(client.transport.written) for client in clients))
    assert max(after - before for before, after in pairwise(sent)) <= MIB
    assert sent[-1] >= 10 * 20 * len(VALUE)
