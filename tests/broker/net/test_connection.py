"""A connection: frames in every split, replies in order, pauses, limits. The dispatcher is a toy."""

from __future__ import annotations

import ctypes
import gc
import mmap
import socket
import struct
import tracemalloc
from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.clock import ManualClock
from kit.examples import examples
from kit.transport import FakeTransport, feed

from ottla.broker.net.buffers import FIRST_BYTES, READ_BYTES
from ottla.broker.net.connection import READS_ALONE, Connection
from ottla.broker.net.connections import Connections
from ottla.broker.net.held_bytes import HeldBytes
from ottla.broker.net.reply_queue import ReplyQueue
from ottla.broker.peer import Peer
from ottla.broker.runtime.answer_memory import AnswerMemory
from ottla.broker.runtime.in_flight_request import CloseConnection, InFlightRequest
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.metrics import Metrics
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.quotas import Quotas
from ottla.config.broker import BrokerConfig


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@dataclass
class Echo:
    """Frames beginning with `p` stay pending, with `w` park, with `n` have no reply, with `!` close; others echo."""

    seen: list[bytes] = field(default_factory=list)
    views: list[memoryview] = field(default_factory=list)
    waiting: dict[bytes, InFlightRequest] = field(default_factory=dict)
    pendings: dict[bytes, Pending[object]] = field(default_factory=dict)

    def start(self, data: memoryview, peer: Peer) -> list[bytes | bytearray | memoryview] | InFlightRequest | None:
        body = bytes(data)
        self.seen.append(body)
        self.views.append(data)
        if body.startswith(b"!"):
            raise CloseConnection("refused")
        if body.startswith(b"n"):
            return None
        if body.startswith((b"p", b"w")):
            pending: Pending[object] = Pending(parks=body.startswith(b"w"))
            request = InFlightRequest(pending)
            self.waiting[body] = request
            self.pendings[body] = pending
            return request
        return [frame(body)]

    def answer(self, body: bytes) -> None:
        self.waiting[body].finish([frame(body)])

    def forget(self) -> None:
        for each in (self.seen, self.views, self.waiting, self.pendings):
            each.clear()


class Shell:
    """What `Node` gives to `Connections`."""

    def __init__(self, **config: object) -> None:
        self.config = BrokerConfig.of({key.replace("_", "."): value for key, value in config.items()})
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.timers = Timers()
        self.turn = Turn(self.clock.wall_ms)
        self.echo = Echo()
        self.answer_memory = AnswerMemory(
            self.config.ottla_connections_max_unsent_bytes, self.turn, self.timers, self.clock.monotonic_ms
        )
        self.memory_reserve = MemoryReserve(self.timers, self.clock.monotonic_ms)
        self.quotas = Quotas(self.config, Validity(), self.clock.monotonic_ms)
        self.connections = Connections(self, self.echo)  # type: ignore[arg-type]  # a node without storage

    def connect(self, host: str = "192.0.2.7") -> tuple[Connection, FakeTransport]:
        connection = self.connections.protocol("PLAINTEXT")
        transport = FakeTransport((host, 4242))
        connection.connection_made(transport)
        if transport.closed:
            connection.connection_lost(None)
        return connection, transport

    def feed(self, connection: Connection, data: bytes) -> None:
        feed(connection, data)
        self.end_turns()

    def end_turns(self) -> None:
        while self.turn.has_work:
            self.turn.end()

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())
        self.end_turns()


@pytest.fixture
def shell() -> Shell:
    return Shell()


BODIES = [b"one", b"x" * 300, b"", b"three"]


def test_a_connection_that_has_ended_leaves_no_circle_to_the_garbage_collector(shell: Shell) -> None:
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        connection, _ = shell.connect()
        shell.feed(connection, frame(b"pending") + frame(b"behind") + frame(b"partial")[:6])
        connection.connection_lost(None)
        shell.end_turns()
        shell.echo.waiting.clear()
        del connection
        gc.collect()
        assert [each for each in gc.garbage if type(each).__module__.startswith("ottla.broker.net")] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_an_idle_connection_takes_less_than_700_bytes_beside_its_transport(shell: Shell) -> None:
    """They are many. `scripts/bench-startup many` measures it with the transport, in a broker."""
    transports = [FakeTransport() for _ in range(200)]
    served: list[Connection] = []
    tracemalloc.start()
    try:
        before_bytes, _ = tracemalloc.get_traced_memory()
        for transport in transports:
            connection = shell.connections.protocol("PLAINTEXT")
            connection.connection_made(transport)
            shell.feed(connection, frame(b"one") + frame(b"pending"))
            shell.echo.answer(b"pending")
            shell.end_turns()
            assert transport.written == frame(b"one") + frame(b"pending")
            transport.written.clear()
            shell.echo.forget()
            served.append(connection)
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_bytes - before_bytes < 700 * len(served)


def test_nothing_is_written_to_a_transport_that_is_lost(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    """asyncio's transport is so after a failed write, until it calls `connection_lost`."""
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"pending"))
    transport.closed = True
    shell.echo.answer(b"pending")
    shell.end_turns()
    assert not caplog.records
    connection.connection_lost(None)
    assert not transport.written


def test_frames_split_at_every_byte_give_the_same_replies() -> None:
    data = frame(b"one") + frame(b"twenty-two") + frame(b"3")
    for cut in range(1, len(data)):
        shell = Shell()
        connection, transport = shell.connect()
        shell.feed(connection, data[:cut])
        shell.feed(connection, data[cut:])
        assert transport.written == data, cut


def test_frames_that_come_byte_by_byte_are_answered(shell: Shell) -> None:
    connection, transport = shell.connect()
    data = frame(b"one") + frame(b"two")
    for position in range(len(data)):
        shell.feed(connection, data[position : position + 1])
    assert transport.written == data


SIZES = st.lists(
    st.sampled_from([1, 3, 1000, READ_BYTES - 4, READ_BYTES, FIRST_BYTES + 1, 200_000]), min_size=1, max_size=5
)
CUTS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=8)


@settings(max_examples=examples(60))
@given(SIZES, CUTS)
def test_frames_of_any_size_in_any_pieces_are_answered_in_order(
    sizes: list[int], cuts: list[tuple[float, bool]]
) -> None:
    shell = Shell()
    connection, transport = shell.connect()
    stream = b"".join(frame(bytes([65 + index]) * size) for index, size in enumerate(sizes))
    position = 0
    for cut, ends_turn in sorted(cuts):
        following = int(cut * len(stream))
        feed(connection, stream[position:following])
        position = following
        if ends_turn:
            shell.end_turns()
    shell.feed(connection, stream[position:])
    assert transport.written == stream
    assert len(shell.echo.seen) == len(sizes)


def test_replies_of_one_turn_leave_in_one_send(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, b"".join(frame(b"request %d" % number) for number in range(20)))
    assert transport.sends == 1


def test_a_pipeline_is_looked_for_once_more_before_its_turn_ends(shell: Shell) -> None:
    """What a client sends while its first requests are read joins their turn: one append, one send."""
    looks: list[None] = []
    shell.turn.on_work = lambda: looks.append(None)
    connection, transport = shell.connect()
    feed(connection, frame(b"1") + frame(b"2"))
    shell.turn.poll_done()
    assert (len(looks), transport.sends) == (2, 0)
    feed(connection, frame(b"3"))
    shell.turn.poll_done()
    assert (len(looks), transport.sends) == (2, 1)
    assert transport.written == frame(b"1") + frame(b"2") + frame(b"3")


def test_a_turn_whose_end_could_not_be_planned_is_planned_by_whatever_comes_next(shell: Shell) -> None:
    planned: list[bool] = []

    def plan() -> None:
        planned.append(len(planned) > 0)
        if not planned[-1]:
            raise MemoryError

    shell.turn.on_work = plan
    connection, transport = shell.connect()
    with pytest.raises(MemoryError):
        feed(connection, frame(b"1"))
    other, other_transport = shell.connect()
    feed(other, frame(b"2"))
    shell.end_turns()
    assert planned == [False, True]
    assert other_transport.written == frame(b"2")
    shell.feed(connection, frame(b"3"))
    assert transport.written.endswith(frame(b"3"))


def test_what_a_started_request_has_brought_is_kept_if_there_is_no_memory_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its batch is gathered and refers to it until the end of the turn: no other connection may read into its place."""
    shell = Shell()
    one, other = shell.connect()[0], shell.connect()[0]

    def no_memory(*_: object) -> bool:
        raise MemoryError

    with monkeypatch.context() as broken:
        broken.setattr(ReplyQueue, "add", no_memory)
        with pytest.raises(MemoryError):
            feed(one, frame(b"p of one"))
    feed(other, frame(b"p of another"))
    assert [bytes(view) for view in shell.echo.views] == [b"p of one", b"p of another"]


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")])
def test_a_connection_that_gets_no_memory_to_read_into_ends_and_raises_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """What `get_buffer` raises, the loop cannot act upon without memory: it would find the socket readable for ever."""

    def fail(*_: object) -> HeldBytes:
        raise error

    shell.memory_reserve.take()
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"wait"))
    monkeypatch.setattr(shell.connections.shared.buffers, "take", fail)
    shell.feed(connection, frame(b"2"))
    assert transport.aborted
    assert not shell.memory_reserve.is_held
    connection.connection_lost(None)
    monkeypatch.undo()
    other, other_transport = shell.connect()
    shell.feed(other, frame(b"3"))
    assert other_transport.written == frame(b"3")


def test_a_request_for_which_there_is_no_memory_ends_its_connection(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    shell.memory_reserve.take()
    connection, transport = shell.connect()
    monkeypatch.setattr(shell.echo, "start", fail)
    shell.feed(connection, frame(b"1"))
    assert transport.closed
    assert not shell.memory_reserve.is_held


def test_a_client_for_whose_connection_there_is_no_memory_is_closed_and_the_listener_gets_no_error(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With an error, uvloop would never accept from this listener again."""
    errors: list[Exception] = [ZeroDivisionError("a bug"), MemoryError()]

    def fail(listener: str) -> Connection:
        raise errors.pop()

    shell.memory_reserve.take()
    monkeypatch.setattr(shell.connections, "protocol", fail)
    for is_held in (False, False):
        transport = FakeTransport()
        shell.connections.accept("PLAINTEXT").connection_made(transport)
        assert transport.aborted
        assert shell.memory_reserve.is_held == is_held
    assert not errors
    assert "bug: a connection to the listener PLAINTEXT has no protocol" in caplog.text


def test_a_client_that_cannot_be_noted_for_want_of_memory_is_closed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error, the loop would neither read nor close the connection."""

    def fail(connection: Connection) -> str | None:
        raise MemoryError

    shell.memory_reserve.take()
    monkeypatch.setattr(shell.connections, "add", fail)
    connection, transport = shell.connect()
    assert transport.aborted
    assert not shell.memory_reserve.is_held
    monkeypatch.undo()
    connection.connection_lost(None)
    assert len(shell.connections) == 0


def test_a_connection_that_has_no_memory_to_send_its_replies_ends(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its replies may be lost: its client must not wait for them."""

    def fail(replies: object) -> None:
        raise MemoryError

    shell.memory_reserve.take()
    connection, transport = shell.connect()
    monkeypatch.setattr(transport, "writelines", fail)
    shell.feed(connection, frame(b"1"))
    assert transport.aborted
    assert not shell.memory_reserve.is_held


def test_one_request_at_a_time_waits_for_no_second_look(shell: Shell) -> None:
    connection, transport = shell.connect()
    feed(connection, frame(b"1"))
    shell.turn.poll_done()
    assert transport.written == frame(b"1")
    shell.turn.poll_done()  # one that was asked for, and came too late
    assert transport.sends == 1


def test_the_only_connection_that_sends_ends_its_turns_itself_until_another_one_sends(shell: Shell) -> None:
    (connection, transport), (other, other_transport) = shell.connect(), shell.connect()
    for _ in range(READS_ALONE + 1):
        shell.feed(connection, frame(b"before"))
    sends = transport.sends
    feed(connection, frame(b"alone"))
    assert transport.sends == sends + 1
    feed(connection, frame(b"a pipeline") + frame(b"of two"))
    sends += 1
    assert transport.sends == sends + 1
    feed(other, frame(b"me too"))
    feed(connection, frame(b"together"))
    assert (transport.sends, other_transport.sends) == (sends + 1, 0)
    shell.end_turns()
    assert (transport.sends, other_transport.sends) == (sends + 2, 1)


def test_what_a_socket_does_not_take_at_once_follows_in_order_by_the_transport(shell: Shell) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        shell.connections.shared.sends_maps = True
        connection = shell.connections.protocol("PLAINTEXT")
        transport = FakeTransport(raw=near)
        connection.connection_made(transport)
        data = b"".join(frame(bytes([65 + number]) * 50_000) for number in range(4))
        shell.feed(connection, frame(b"small"))
        shell.feed(connection, data)
        transport.unsent_bytes = len(transport.written)
        shell.feed(connection, frame(b"behind it"))
        near.shutdown(socket.SHUT_WR)
        taken = b""
        while piece := far.recv(1 << 20):
            taken += piece
        assert taken.startswith(frame(b"small"))
        assert transport.written.endswith(frame(b"behind it"))
        assert taken + transport.written == frame(b"small") + data + frame(b"behind it")


def test_replies_behind_a_pending_one_wait_and_then_leave_in_order(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"p1") + frame(b"two") + frame(b"p3"))
    assert shell.echo.seen == [b"p1", b"two", b"p3"]
    assert transport.written == b""
    shell.echo.answer(b"p3")
    shell.end_turns()
    assert transport.written == b""
    shell.echo.answer(b"p1")
    shell.end_turns()
    assert transport.written == frame(b"p1") + frame(b"two") + frame(b"p3")


def test_nothing_starts_behind_a_parked_request_until_it_is_answered(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"wait") + frame(b"two"))
    shell.feed(connection, frame(b"three"))
    assert shell.echo.seen == [b"wait"]
    assert not transport.is_paused
    shell.echo.answer(b"wait")
    shell.end_turns()
    assert shell.echo.seen == [b"wait", b"two", b"three"]
    assert transport.written == frame(b"wait") + frame(b"two") + frame(b"three")


def test_what_came_behind_two_parked_requests_starts_once(shell: Shell) -> None:
    """More comes behind the second one while what was started before it lies in front of the same buffer."""
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"w1"))
    shell.feed(connection, frame(b"a") + frame(b"w2") + frame(b"b"))
    shell.echo.answer(b"w1")
    shell.end_turns()
    shell.feed(connection, frame(b"c"))
    shell.echo.answer(b"w2")
    shell.end_turns()
    assert shell.echo.seen == [b"w1", b"a", b"w2", b"b", b"c"]
    assert transport.written == b"".join(map(frame, shell.echo.seen))


def test_reading_pauses_when_enough_is_stored_behind_a_parked_request_and_goes_on_after_it(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"wait"))
    behind = frame(b"a" * (FIRST_BYTES // 2)) + frame(b"b" * FIRST_BYTES)
    shell.feed(connection, behind[:FIRST_BYTES])
    assert transport.is_paused
    shell.echo.answer(b"wait")
    shell.end_turns()
    assert not transport.is_paused
    shell.feed(connection, behind[FIRST_BYTES:])
    assert transport.written == frame(b"wait") + behind


def test_an_end_is_noticed_behind_a_parked_request_and_cancels_it(shell: Shell) -> None:
    connection, _ = shell.connect()
    shell.feed(connection, frame(b"wait"))
    cancelled: list[str] = []
    shell.echo.pendings[b"wait"].on_cancel(lambda: cancelled.append("cancelled"))
    connection.connection_lost(None)
    assert cancelled == ["cancelled"]
    assert len(shell.connections) == 0
    shell.end_turns()
    assert shell.connections.shared.buffers.owned_bytes == 0


def test_a_request_without_reply_leaves_no_entry_in_the_queue(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"n") + frame(b"two"))
    assert transport.written == frame(b"two")


def test_the_queue_of_pending_requests_is_bounded_in_count() -> None:
    shell = Shell(ottla_connection_max_pending_requests=3)
    connection, transport = shell.connect()
    shell.feed(connection, b"".join(frame(b"p%d" % number) for number in range(5)))
    assert shell.echo.seen == [b"p0", b"p1", b"p2"]
    assert transport.is_paused
    shell.echo.answer(b"p0")
    shell.end_turns()
    assert shell.echo.seen == [b"p0", b"p1", b"p2", b"p3"]
    for number in range(1, 5):
        shell.echo.answer(b"p%d" % number)
        shell.end_turns()
    assert not transport.is_paused
    assert transport.written == b"".join(frame(b"p%d" % number) for number in range(5))


def test_the_queue_is_bounded_in_bytes_of_replies_that_wait() -> None:
    shell = Shell(ottla_connection_max_pending_bytes=1024)
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"p0") + frame(b"x" * 2000) + frame(b"late"))
    assert shell.echo.seen == [b"p0", b"x" * 2000]
    assert transport.is_paused
    shell.echo.answer(b"p0")
    shell.end_turns()
    assert shell.echo.seen[-1] == b"late"
    assert not transport.is_paused


def test_a_client_that_does_not_take_its_replies_starts_nothing_more(shell: Shell) -> None:
    connection, transport = shell.connect()
    connection.pause_writing()
    assert transport.is_paused
    connection.resume_writing()
    shell.end_turns()
    assert not transport.is_paused
    shell.feed(connection, frame(b"one"))
    assert transport.written == frame(b"one")


@pytest.mark.parametrize(
    ("start", "hint"),
    [
        (struct.pack(">i", 104857601), "socket.request.max.bytes=104857600"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
    ],
)
def test_a_frame_of_impossible_length_closes_with_one_line(
    shell: Shell, start: bytes, hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, start)
    assert transport.closed
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert hint in lines[0]
    assert "192.0.2.7:4242" in lines[0]


def test_a_frame_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    shell = Shell(socket_request_max_bytes=100)
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"x" * 100))
    assert transport.written == frame(b"x" * 100)
    shell.feed(connection, frame(b"x" * 101))
    assert transport.closed


def test_a_refused_request_closes_after_the_replies_before_it(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"one") + frame(b"!") + frame(b"never"))
    assert transport.written == frame(b"one")
    assert transport.closed
    assert shell.echo.seen == [b"one", b"!"]
    assert shell.metrics.malformed_requests == 1


def test_an_announced_length_allocates_nothing(shell: Shell) -> None:
    connection, _ = shell.connect()
    shell.feed(connection, struct.pack(">i", 100_000_000) + b"begin")
    assert shell.connections.shared.buffers.owned_bytes <= FIRST_BYTES


def test_a_buffer_grows_with_the_bytes_that_came(shell: Shell) -> None:
    connection, transport = shell.connect()
    body = b"z" * 1_000_000
    data = frame(body)
    for position in range(0, len(data), 10_000):
        shell.feed(connection, data[position : position + 10_000])
        came = min(position + 10_000, len(data))
        assert shell.connections.shared.buffers.owned_bytes <= max(2 * came + 8192, FIRST_BYTES), came
    assert transport.written == data


def test_a_large_frame_is_received_into_one_warm_buffer(shell: Shell) -> None:
    """The second large frame of a connection is received where it stays: the view begins at the buffer's start."""
    connection, _ = shell.connect()
    for _ in range(2):
        shell.feed(connection, frame(b"y" * 1_000_000))
    view = shell.echo.views[-1]
    whole = view.obj
    assert isinstance(whole, mmap.mmap)
    assert len(whole) < 1_200_000
    assert whole[4:1_000_004] == b"y" * 1_000_000


def test_what_is_received_begins_at_a_page(shell: Shell) -> None:
    """A little behind one, the kernel's copy takes several times as long on some processors."""
    connection, _ = shell.connect()
    read = connection.get_buffer(-1)
    shell.feed(connection, frame(b"y" * 1_000_000)[:100_000])
    rest = connection.get_buffer(-1)
    places = [read, memoryview(cast("mmap.mmap", rest.obj))]
    assert [ctypes.addressof(ctypes.c_char.from_buffer(place)) % mmap.PAGESIZE for place in places] == [0, 0]


def taken(connection: Connection) -> int:
    """How many bytes of a frame that is not whole yet the connection has taken."""
    assert connection.reader.held is not None
    return connection.reader.held.end


def test_memory_for_requests_is_bounded_and_one_connection_always_gets_on() -> None:
    shell = Shell(socket_request_max_bytes=1 << 20, queued_max_request_bytes=1 << 20)
    pairs = [shell.connect() for _ in range(4)]
    data = frame(b"q" * 900_000)
    for connection, _ in pairs:
        shell.feed(connection, data[:400_000])
    assert shell.connections.shared.buffers.owned_bytes < 3 << 20
    assert any(transport.is_paused for _, transport in pairs)
    sent = {id(connection): 400_000 for connection, _ in pairs}
    held = {id(connection): taken(connection) for connection, _ in pairs}
    sent |= held
    for _ in range(100):
        for connection, transport in pairs:
            position = sent[id(connection)]
            if not transport.is_paused and position < len(data):
                before = len(transport.written)
                shell.feed(connection, data[position:])
                done = len(transport.written) > before
                sent[id(connection)] = len(data) if done else taken(connection)
    assert [len(transport.written) for _, transport in pairs] == [len(data)] * 4
    assert shell.connections.shared.buffers.owned_bytes == 0


def test_who_waits_for_memory_and_takes_no_replies_meanwhile_reads_on_when_both_are_over() -> None:
    shell = Shell(socket_request_max_bytes=1 << 20, queued_max_request_bytes=1 << 20)
    (first, _), (second, transport) = shell.connect(), shell.connect()
    data = frame(b"q" * 900_000)
    shell.feed(first, data[:800_000])
    shell.feed(second, frame(b"p"))
    feed(second, data)
    assert transport.is_paused
    second.pause_writing()
    shell.echo.answer(b"p")  # a turn in which the full buffer may not be looked at
    shell.end_turns()
    second.resume_writing()
    shell.end_turns()
    assert transport.is_paused
    shell.feed(first, data[800_000:])
    assert not transport.is_paused


def test_a_frame_that_stays_incomplete_is_closed_by_its_bound(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"whole")[:-1])
    bound_ms = shell.config.ottla_partial_frame_timeout_ms
    shell.pass_time(bound_ms)
    assert not transport.closed
    shell.pass_time(bound_ms)
    assert transport.closed
    assert "incomplete" in caplog.text


def test_a_log_line_names_the_client_and_what_it_calls_itself(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    connection, _ = shell.connect()
    before = str(connection)
    connection.peer.software = "librdkafka 2.16.1"
    connection.close("a reason")
    address, _, listener = before.partition(" ")
    assert f"{address} (librdkafka 2.16.1) {listener}: closing: a reason" in caplog.text


def test_an_idle_connection_is_closed_and_a_waiting_one_is_not() -> None:
    shell = Shell(connections_max_idle_ms=1000)
    _, idle = shell.connect()
    waiting, parked = shell.connect()
    shell.feed(waiting, frame(b"wait"))
    for _ in range(8):
        shell.pass_time(250)
    assert idle.closed
    assert not parked.closed


@pytest.mark.parametrize(
    ("config", "hosts", "refused"),
    [
        ({"max_connections": 2}, ["a", "b", "c"], "max.connections=2"),
        ({"listener_name_plaintext_max_connections": 2}, ["a", "b", "c"], "listener.name.plaintext.max.connections=2"),
        ({"max_connections_per_ip": 1}, ["a", "b", "a"], "max.connections.per.ip=1"),
        ({"max_connections_per_ip": 1, "max_connections_per_ip_overrides": "a:2"}, ["a", "a", "b", "b"], "per.ip=1"),
    ],
)
def test_connections_are_bounded(
    config: dict[str, object], hosts: list[str], refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    shell = Shell(**config)
    transports = [shell.connect(host)[1] for host in hosts]
    assert [transport.closed for transport in transports] == [False] * (len(hosts) - 1) + [True]
    assert refused in caplog.text
    assert shell.metrics.connections_refused == 1


def test_a_connection_over_the_rate_of_the_broker_is_heard_later() -> None:
    shell = Shell(max_connection_creation_rate=1, quota_window_num=2)
    _, early = shell.connect()
    late, transport = shell.connect()
    assert not early.is_paused
    assert transport.is_paused
    shell.feed(late, frame(b"one"))
    assert not transport.written
    shell.pass_time(1_000)
    assert not transport.is_paused
    shell.feed(late, frame(b"one"))
    assert bytes(transport.written) == frame(b"one")
    assert shell.metrics.connections_refused == 0


def test_a_connection_over_the_rate_of_its_address_is_closed_after_its_wait(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell(quota_window_num=2)
    shell.quotas.change({(("ip", None),): {"connection_creation_rate": 1.0}})
    shell.connect("192.0.2.1")
    late, transport = shell.connect("192.0.2.1")
    _, other = shell.connect("192.0.2.2")
    assert transport.is_paused
    assert not transport.closed
    assert not other.is_paused
    assert shell.metrics.connections_refused == 1
    assert "connection_creation_rate=1 come from 192.0.2.1" in caplog.text
    shell.pass_time(1_000)
    assert transport.closed
    late.connection_lost(None)
    assert len(shell.connections) == 2


def test_a_closed_connection_makes_room_for_another() -> None:
    shell = Shell(max_connections=1)
    first, _ = shell.connect()
    first.connection_lost(None)
    assert not shell.connect()[1].closed


def test_draining_answers_what_has_started_and_cuts_long_polls_short(shell: Shell) -> None:
    producing, produced = shell.connect()
    polling, polled = shell.connect()
    shell.feed(producing, frame(b"p1"))
    shell.feed(polling, frame(b"wait"))
    shell.connections.drain()
    shell.end_turns()
    assert polled.closed
    assert not produced.closed
    shell.echo.answer(b"p1")
    shell.end_turns()
    assert produced.written == frame(b"p1")
    assert produced.closed


def test_a_request_that_must_close_ends_the_connection(shell: Shell) -> None:
    connection, transport = shell.connect()
    shell.feed(connection, frame(b"p1"))
    shell.echo.waiting[b"p1"].finish(None, close_reason="acks=0 failed")
    shell.end_turns()
    assert transport.closed


class Gathering:
    """A partition that looks at gathered views as late as it may: in the flush."""

    def __init__(self) -> None:
        self.views: list[memoryview] = []
        self.appended: list[bytes] = []

    def flush(self, now_ms: int) -> None:
        self.appended += [bytes(view) for view in self.views]
        self.views.clear()


def test_gathered_views_are_appended_before_their_memory_is_used_again(shell: Shell) -> None:
    """One turn brings more than the arena holds: its beginning is appended, then used for what comes after."""
    partition = Gathering()
    bodies = [bytes([65 + number]) * (READ_BYTES - 4) for number in range(40)]
    for number, body in enumerate(bodies):
        connection, _ = shell.connect(f"host{number}")
        feed(connection, frame(body))
        if not partition.views:
            shell.turn.note_gathering(partition)  # type: ignore[arg-type]  # only its flush is called
        partition.views.append(shell.echo.views[-1])
    assert partition.appended, "the arena is larger than the test believes"
    shell.end_turns()
    assert partition.appended == bodies


def test_a_large_gathered_frame_is_not_overwritten_by_the_next_one_in_its_turn(shell: Shell) -> None:
    partition = Gathering()
    shell.turn.note_gathering(partition)  # type: ignore[arg-type]  # only its flush is called
    connection, _ = shell.connect()
    bodies = [bytes([65 + number]) * 300_000 for number in range(5)]
    for body in bodies:
        feed(connection, frame(body))
        partition.views.append(shell.echo.views[-1])
    shell.end_turns()
    assert partition.appended == bodies
