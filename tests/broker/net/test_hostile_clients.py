"""Clients that want to harm: what they can make the broker hold is bounded, and others keep being served.

Each limit has its row in docs/limits.md, which names the test here. No sockets: what is fed arrives, what is sent is
kept by a transport that may refuse to take it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from kit.clock import ManualClock
from kit.transport import FakeTransport, feed

from ottla.broker.net.buffers import ARENA_BYTES, FIRST_BYTES, POOL_BYTES, READ_BYTES
from ottla.broker.net.connection import Connection
from ottla.broker.net.connections import Connections
from ottla.broker.peer import Peer
from ottla.broker.runtime.answer_memory import AnswerMemory
from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.metrics import Metrics
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.quotas import Quotas
from ottla.config.broker import BrokerConfig

MIB = 1 << 20


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@dataclass
class Answers:
    """A dispatcher that answers `g<n>` with n bytes at once, parks on `w`, and answers anything else with itself."""

    started: int = 0
    waiting: list[InFlightRequest] = field(default_factory=list)

    def start(self, data: memoryview, peer: Peer) -> list[bytes | bytearray | memoryview] | InFlightRequest | None:
        self.started += 1
        body = bytes(data[:16])
        if body.startswith(b"w"):
            self.waiting.append(InFlightRequest(Pending(parks=True)))
            return self.waiting[-1]
        return [frame(bytes(int(body[1:])) if body.startswith(b"g") else bytes(data))]


class SlowTransport(FakeTransport):
    """A client that takes nothing: what is written stays, and beyond 64 KiB the protocol is asked to pause."""

    protocol: Connection | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.unsent_bytes += len(data)
        self.sends += 1
        if self.protocol is not None and self.unsent_bytes > 64 << 10:
            self.protocol.pause_writing()

    def take_all(self) -> None:
        self.unsent_bytes = 0
        assert self.protocol is not None
        self.protocol.resume_writing()

    def abort(self) -> None:
        was_closed, self.unsent_bytes = self.closed, 0
        super().abort()
        if not was_closed and self.protocol is not None:
            self.protocol.connection_lost(None)


class Shell:
    """What `Node` gives to `Connections`."""

    def __init__(self, **config: object) -> None:
        self.config = BrokerConfig.of({key.replace("_", "."): value for key, value in config.items()})
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.timers = Timers()
        self.turn = Turn(self.clock.wall_ms)
        self.answers = Answers()
        self.answer_memory = AnswerMemory(
            self.config.ottla_connections_max_unsent_bytes, self.turn, self.timers, self.clock.monotonic_ms
        )
        self.memory_reserve = MemoryReserve(self.timers, self.clock.monotonic_ms)
        self.quotas = Quotas(self.config, Validity(), self.clock.monotonic_ms)
        self.connections = Connections(self, self.answers)  # type: ignore[arg-type]  # a node without storage

    def connect(self, *, takes: bool = True) -> tuple[Connection, SlowTransport | FakeTransport]:
        connection = self.connections.protocol("PLAINTEXT")
        transport = FakeTransport() if takes else SlowTransport()
        if isinstance(transport, SlowTransport):
            transport.protocol = connection
        connection.connection_made(transport)
        return connection, transport

    def feed(self, connection: Connection, data: bytes) -> None:
        feed(connection, data)
        self.end_turns()

    def end_turns(self) -> None:
        while self.turn.has_work:
            self.turn.end()

    def is_served(self) -> bool:
        """Whether somebody who comes now gets an answer."""
        connection, transport = self.connect()
        self.feed(connection, frame(b"hello"))
        connection.connection_lost(None)
        return bytes(transport.written) == frame(b"hello")


@pytest.fixture
def shell() -> Shell:
    return Shell()


# --- requests


def test_partial_requests_of_5000_connections_keep_to_the_memory_for_requests() -> None:
    """`queued.max.request.bytes`, and one read's worth for each connection, whatever length was announced."""
    shell = Shell(queued_max_request_bytes=8 * MIB, socket_request_max_bytes=4 * MIB)
    announced = struct.pack(">i", 4 * MIB) + bytes(1020)
    for _ in range(5_000):
        connection, _ = shell.connect()
        shell.feed(connection, announced)
    assert shell.connections.shared.buffers.owned_bytes <= 8 * MIB + 5_000 * FIRST_BYTES
    assert shell.is_served()


def test_large_partial_requests_stop_being_read_when_the_memory_is_used_up() -> None:
    shell = Shell(queued_max_request_bytes=8 * MIB, socket_request_max_bytes=4 * MIB)
    transports = []
    for _ in range(100):
        connection, transport = shell.connect()
        transports.append(transport)
        shell.feed(connection, struct.pack(">i", 4 * MIB) + bytes(3 * MIB))
    paused = sum(transport.is_paused for transport in transports)
    exempt_bytes = 4 * MIB + FIRST_BYTES
    assert shell.connections.shared.buffers.owned_bytes <= 8 * MIB + exempt_bytes + 100 * READ_BYTES
    assert paused > 90
    assert shell.is_served()


def test_partial_requests_end_after_their_time_and_give_their_memory_back() -> None:
    shell = Shell(
        queued_max_request_bytes=8 * MIB, socket_request_max_bytes=4 * MIB, ottla_partial_frame_timeout_ms=30_000
    )
    for _ in range(200):
        shell.feed(shell.connect()[0], struct.pack(">i", 4 * MIB) + bytes(100_000))
    shell.clock.advance(30_001)
    shell.connections.sweep()
    shell.end_turns()
    for connection in list(shell.connections):
        connection.connection_lost(None)
    shell.end_turns()
    assert shell.connections.shared.buffers.owned_bytes == 0
    assert shell.connections.shared.buffers.pool.size_bytes <= POOL_BYTES


def test_a_request_sent_byte_by_byte_does_not_live_longer_by_each_byte() -> None:
    shell = Shell(ottla_partial_frame_timeout_ms=30_000)
    connection, transport = shell.connect()
    for byte in struct.pack(">i", 1000) + bytes(100):
        shell.feed(connection, bytes([byte]))
        shell.clock.advance(400)
        shell.connections.sweep()
        shell.end_turns()
        if transport.closed:
            break
    assert transport.closed
    assert shell.clock.monotonic_ms() < 60_000


def test_what_is_sent_behind_a_long_poll_is_stored_up_to_one_buffer_and_then_not_read() -> None:
    shell = Shell()
    for _ in range(50):
        connection, transport = shell.connect()
        shell.feed(connection, frame(b"w") + frame(bytes(1000)) * 2_000)
        assert transport.is_paused
    assert shell.answers.started == 50
    assert shell.connections.shared.buffers.owned_bytes <= 50 * READ_BYTES
    assert shell.is_served()


def test_half_open_connections_hold_a_connection_and_nothing_else(shell: Shell) -> None:
    for _ in range(5_000):
        shell.connect()
    assert len(shell.connections) == 5_000
    assert shell.connections.shared.buffers.owned_bytes == 0
    assert ARENA_BYTES == MIB, "one arena for all"
    assert shell.is_served()
    shell.connections.sweep()  # the first one that sees them
    shell.clock.advance(shell.config.connections_max_idle_ms + 1)
    shell.connections.sweep()
    shell.end_turns()
    assert all(connection.closing for connection in shell.connections)


# --- answers


def test_one_read_that_asks_for_everything_is_answered_in_turns_of_a_bounded_size() -> None:
    """Thousands of fetches fit one read; their answers are made as the client takes them, not all at once."""
    shell = Shell(ottla_connection_max_pending_bytes=4 * MIB)
    connection, transport = shell.connect(takes=False)
    assert isinstance(transport, SlowTransport)
    asked = frame(b"g%d" % MIB) * 1_000
    shell.feed(connection, asked)
    assert transport.unsent_bytes <= 5 * MIB
    assert shell.answers.started <= 5
    assert shell.is_served()
    while shell.answers.started < 1_001:
        before = shell.answers.started
        transport.take_all()
        shell.end_turns()
        assert transport.unsent_bytes <= 5 * MIB
        assert shell.answers.started > before, "a client that takes its answers goes on"


def test_a_client_that_takes_its_answers_gets_all_of_one_read_though_it_is_more_than_a_turn_makes() -> None:
    shell = Shell(ottla_connection_max_pending_bytes=MIB)
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"g%d" % (300 << 10)) * 20)
    assert len(transport.written) == 20 * (4 + (300 << 10))
    assert not transport.is_paused


def test_large_answers_to_many_wait_for_later_turns_and_small_ones_do_not() -> None:
    """200 clients that fetch everything at once: the loop comes around, and reads who else asks, in between."""
    shell = Shell()
    many = [shell.connect() for _ in range(20)]
    for connection, _ in many:
        feed(connection, frame(b"g%d" % (8 * MIB)))
    polite, taken = shell.connect()
    feed(polite, frame(b"hello"))
    shell.turn.end()
    assert bytes(taken.written) == frame(b"hello")
    assert sum(bool(transport.written) for _, transport in many) == 4
    shell.end_turns()
    assert all(len(transport.written) == 4 + 8 * MIB for _, transport in many)
    assert not any(transport.is_paused for _, transport in many)


def test_large_answers_that_begin_as_a_turn_ends_count_in_it() -> None:
    """The same for requests that waited because the turn before was long: they start when the next one ends."""
    shell = Shell()
    many = [shell.connect() for _ in range(20)]
    shell.turn.is_long = True
    for connection, _ in many:
        feed(connection, frame(b"g%d" % (8 * MIB)))
    shell.turn.end()
    assert not any(transport.written for _, transport in many)
    shell.turn.end()
    assert sum(bool(transport.written) for _, transport in many) == 4
    shell.end_turns()
    assert all(len(transport.written) == 4 + 8 * MIB for _, transport in many)


def test_a_client_that_never_reads_starts_nothing_more(shell: Shell) -> None:
    connection, transport = shell.connect(takes=False)
    for _ in range(100):
        shell.feed(connection, frame(b"g%d" % MIB))
    assert transport.is_paused
    assert shell.answers.started == 1


def test_answers_that_nobody_takes_keep_to_their_bound_over_all_connections() -> None:
    shell = Shell(ottla_connections_max_unsent_bytes=16 * MIB)
    slow = [shell.connect(takes=False) for _ in range(200)]
    for connection, _ in slow:
        shell.feed(connection, frame(b"g%d" % MIB))
    held = sum(transport.unsent_bytes for _, transport in slow)
    assert held <= 16 * MIB
    assert shell.answer_memory.unsent_bytes == held
    assert shell.is_served()


def test_who_has_not_taken_answers_for_longest_is_closed_first(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell(ottla_connections_max_unsent_bytes=3 * MIB)
    first, second, third, fourth = (shell.connect(takes=False) for _ in range(4))
    shell.feed(first[0], frame(b"g%d" % (1 * MIB - 4)))
    shell.feed(second[0], frame(b"g%d" % (1 * MIB - 4)))
    assert isinstance(first[1], SlowTransport)
    first[1].take_all()
    shell.feed(first[0], frame(b"g%d" % (1 * MIB - 4)))
    shell.feed(third[0], frame(b"g%d" % (1 * MIB - 4)))
    assert not any(transport.closed for _, transport in (first, second, third, fourth))
    shell.feed(fourth[0], frame(b"g%d" % (1 * MIB - 4)))
    assert [transport.closed for _, transport in (first, second, third, fourth)] == [False, True, False, False]
    assert "ottla.connections.max.unsent.bytes=3145728" in caplog.text


def test_one_answer_above_the_bound_still_gets_through() -> None:
    shell = Shell(ottla_connections_max_unsent_bytes=MIB)
    connection, transport = shell.connect(takes=False)
    shell.feed(connection, frame(b"g%d" % (5 * MIB)))
    assert not transport.closed
    assert isinstance(transport, SlowTransport)
    transport.take_all()
    assert shell.answer_memory.unsent_bytes == 0


def test_what_ended_connections_held_counts_no_more() -> None:
    shell = Shell()
    connection, _ = shell.connect(takes=False)
    shell.feed(connection, frame(b"g%d" % MIB))
    assert shell.answer_memory.unsent_bytes > 0
    connection.connection_lost(None)
    assert shell.answer_memory.unsent_bytes == 0


# --- time


def test_requests_that_take_long_let_everybody_have_a_turn(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[bytes] = []
    start = shell.answers.start

    def slow(data: memoryview, peer: Peer) -> list[bytes | bytearray | memoryview] | InFlightRequest | None:
        order.append(bytes(data))
        shell.turn.is_long = True  # as the dispatcher says of one that took 10 ms
        return start(data, peer)

    monkeypatch.setattr(shell.answers, "start", slow)
    (one, _), (two, _), (three, transport) = [shell.connect() for _ in range(3)]
    feed(one, b"".join(frame(b"a%d" % number) for number in range(5)))
    feed(two, frame(b"b0") + frame(b"b1"))
    feed(three, frame(b"c0"))
    shell.end_turns()
    assert order == [b"a0", b"b0", b"c0", b"a1", b"b1", b"a2", b"a3", b"a4"]
    assert bytes(transport.written) == frame(b"c0")
    assert not shell.connections.shared.later.waiting


def test_who_waits_for_a_turn_and_goes_away_is_not_waited_for(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    start = shell.answers.start

    def slow(data: memoryview, peer: Peer) -> list[bytes | bytearray | memoryview] | InFlightRequest | None:
        shell.turn.is_long = True
        return start(data, peer)

    monkeypatch.setattr(shell.answers, "start", slow)
    (one, _), (two, transport) = [shell.connect() for _ in range(2)]
    feed(one, frame(b"a0") + frame(b"a1"))
    feed(two, frame(b"b0"))
    one.connection_lost(None)
    shell.end_turns()
    assert bytes(transport.written) == frame(b"b0")
    assert not shell.connections.shared.later.waiting
    assert shell.is_served()
