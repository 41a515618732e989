"""TLS between a transport and a connection: bytes in every split, back-pressure, ends. Client and socket are toys."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import struct
import tracemalloc
from collections.abc import Callable

import pytest
from kit.certificates import Certificates, certificates
from kit.clock import ManualClock
from kit.openssl import ask_for_new_keys
from kit.transport import FakeTransport

from ottla.broker.net.connection import Connection
from ottla.broker.net.connections import Connections
from ottla.broker.net.reply_pieces import MOST_LEFT_BYTES
from ottla.broker.net.tls_layer import READ_BYTES, UNSENT_BYTES, TlsLayer
from ottla.broker.peer import Peer
from ottla.broker.runtime.answer_memory import AnswerMemory
from ottla.broker.runtime.in_flight_request import InFlightRequest
from ottla.broker.runtime.memory_reserve import MemoryReserve
from ottla.broker.runtime.metrics import Metrics
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.timers import Timers
from ottla.broker.runtime.turn import Turn
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.logins import TLS, Logins
from ottla.broker.security.quotas.quotas import Quotas
from ottla.broker.security.tls.listeners import TlsListeners
from ottla.config.broker import BrokerConfig


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Echo:
    """Answers each frame with itself; `x` and a number with so many bytes; `w` is not answered."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def start(self, data: memoryview, peer: Peer) -> list[bytes | bytearray | memoryview] | InFlightRequest | None:
        body = bytes(data)
        self.seen.append(body)
        if body.startswith(b"w"):
            return InFlightRequest(Pending(parks=True))
        return [frame(bytes(int(body[1:])))] if body.startswith(b"x") else [frame(body)]


class SlowTransport(FakeTransport):
    """A socket that takes `room` bytes: beyond that it asks the layer to wait, as asyncio's transports do."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: TlsLayer | None = None
        self.room = 1 << 60
        self.has_asked = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self.unsent_bytes = max(0, len(self.written) - self.room)
        high, _ = self.write_buffer_limits or (0, 0)
        if self.unsent_bytes > (high or 0) and not self.has_asked and self.protocol is not None:
            self.has_asked = True
            self.protocol.pause_writing()

    def take_all(self) -> None:
        """The client has read what there is."""
        self.room = len(self.written)
        self.unsent_bytes = 0
        if self.has_asked and self.protocol is not None:
            self.has_asked = False
            self.protocol.resume_writing()


class Shell:
    """What `Node` gives to `Connections`, with one listener that speaks TLS."""

    def __init__(self, **keys: object) -> None:
        pki = certificates()
        own = {key.replace("_", "."): value for key, value in keys.items()}
        self.config = BrokerConfig.of({"listeners": "SSL://:9093", **pki.server_overrides(), **own})
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
        self.logins = Logins(self.config, self.metrics, None)
        listeners = TlsListeners(self.config)
        listeners.open()
        self.connections = Connections(self, self.echo, tls=listeners.by_name)  # type: ignore[arg-type]

    def end_turns(self) -> None:
        while self.turn.has_work:
            self.turn.end()

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())
        self.end_turns()


class Client:
    """The other end: Python's TLS over a toy socket. `most` is how many bytes arrive at once."""

    def __init__(self, shell: Shell, context: ssl.SSLContext | None = None, most: int = READ_BYTES) -> None:
        self.shell = shell
        self.most = most
        self.transport = SlowTransport()
        layer = shell.connections.accept("SSL")
        assert isinstance(layer, TlsLayer)
        self.layer = self.transport.protocol = layer
        self.connection: Connection = layer.connection
        layer.connection_made(self.transport)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or certificates().client_context()).wrap_bio(
            self._in, self._out, server_hostname="localhost"
        )
        self._taken = 0

    def send(self, data: bytes) -> None:
        """Let these bytes arrive, TLS or not."""
        rest = memoryview(data)
        while rest and not self.transport.is_paused and not self.transport.closed:
            room = self.layer.get_buffer(-1)
            count = min(len(room), len(rest), self.most)
            room[:count] = rest[:count]
            self.layer.buffer_updated(count)
            rest = rest[count:]
        self.shell.end_turns()

    def outgoing(self) -> bytes:
        """What the client would send now."""
        return self._out.read()

    def take(self) -> None:
        """Read what the broker has sent."""
        self._in.write(bytes(self.transport.written[self._taken :]))
        self._taken = len(self.transport.written)
        self.transport.take_all()

    def step(self, act: Callable[[], object]) -> object:
        """Do one thing of TLS, and let what it sends arrive. None where it needs more."""
        try:
            return act()
        except ssl.SSLWantReadError:
            return None
        finally:
            self.send(self._out.read())
            self.take()

    def shake_hands(self) -> None:
        for _ in range(10):
            self.step(self.tls.do_handshake)
            if self.connection.handshake_since_ms is None:
                return
        raise AssertionError("the handshake does not end")

    def request(self, body: bytes) -> None:
        self.tls.write(frame(body))
        self.send(self._out.read())

    def read_frame(self) -> bytes:
        """An answer, whose bytes are taken as they come. An empty one where there is none."""
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
            self.take()
            self.shell.end_turns()
            try:
                data += self.tls.read(1 << 20)
            except ssl.SSLWantReadError:
                if self._taken == len(self.transport.written):
                    return b""
        return data[4:]


@pytest.fixture
def pki() -> Certificates:
    return certificates()


@pytest.fixture
def shell() -> Shell:
    return Shell()


def bodies(shell: Shell) -> list[bytes]:
    return shell.echo.seen


@pytest.mark.parametrize("most", [1, 7, 1000, READ_BYTES])
def test_requests_arrive_however_the_bytes_are_cut(shell: Shell, most: int) -> None:
    client = Client(shell, most=most)
    client.shake_hands()
    client.request(b"one")
    client.request(b"two" * 10_000)
    assert [client.read_frame(), client.read_frame()] == [b"one", b"two" * 10_000]


def test_a_large_request_is_whole(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    for _ in range(3):  # the second is received where the first one was
        body = b"a" * 1_000_000
        client.request(body)
        assert client.read_frame() == body


def test_who_the_certificate_names_is_the_peers_principal(pki: Certificates) -> None:
    client = Client(Shell(ssl_client_auth="required"), pki.client_context(pki.client("alice")))
    client.shake_hands()
    assert str(client.connection.peer.principal) == "User:CN=alice,OU=clients,O=Ottla"


def test_a_name_that_no_rule_knows_gets_nobody_in(pki: Certificates, caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:^CN=bob$/bob/")
    client = Client(shell, pki.client_context(pki.client("alice")))
    for _ in range(4):
        client.step(client.tls.do_handshake)
    assert client.transport.closed
    assert "the client's certificate has no user name: no rule of ssl.principal.mapping.rules applies" in caplog.text


def test_no_request_starts_before_the_handshake_is_done(shell: Shell) -> None:
    client = Client(shell)
    client.send(frame(b"early"))
    assert client.transport.closed
    assert bodies(shell) == []


def test_no_maps_are_sent_through_tls(shell: Shell) -> None:
    assert Client(shell).connection.peer.endpoint.sends_maps is False


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_client_counts_before_its_handshake(caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell(max_connections=2)
    Client(shell)
    Client(shell)
    assert Client(shell).transport.aborted
    assert "refused: there are max.connections=2 already" in caplog.text


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x00\xff"])
def test_a_handshake_that_never_ends_is_cut_off(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    shell = Shell(ottla_handshake_timeout_ms=1000)
    client = Client(shell)
    client.send(first)
    shell.pass_time(900)
    assert not client.transport.closed
    for _ in range(8):
        shell.pass_time(100)
    assert client.transport.closed
    assert "closing: no handshake within ottla.handshake.timeout.ms=1000" in caplog.text


def counted(shell: Shell) -> tuple[int, int]:
    """Handshakes that were done, and that failed."""
    counters = shell.metrics.logins["SSL", TLS]
    return counters.successful, counters.failed


def test_a_handshake_that_is_done_counts_once(shell: Shell) -> None:
    client = Client(shell)
    assert counted(shell) == (0, 0)
    client.shake_hands()
    client.request(b"hello")
    client.send(bytes(100))  # no TLS
    assert counted(shell) == (1, 0)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1", bytes(8), b"\x16\x03\x01\x00\x05hello"])
def test_a_handshake_that_fails_counts_once(shell: Shell, sent: bytes) -> None:
    client = Client(shell)
    client.send(sent)
    client.send(sent)
    shell.pass_time(shell.config.ottla_handshake_timeout_ms * 2)
    assert counted(shell) == (0, 1)


def test_a_handshake_that_never_ends_counts_once() -> None:
    shell = Shell(ottla_handshake_timeout_ms=1_000)
    Client(shell)
    shell.pass_time(1_000)
    assert counted(shell) == (0, 0)
    for _ in range(3):
        shell.pass_time(1_000)
    assert counted(shell) == (0, 1)


def test_a_client_that_leaves_during_its_handshake_has_not_failed(shell: Shell) -> None:
    Client(shell).layer.connection_lost(None)
    assert counted(shell) == (0, 0)


def test_a_client_that_has_finished_is_left_alone() -> None:
    shell = Shell(ottla_handshake_timeout_ms=1000)
    client = Client(shell)
    client.shake_hands()
    shell.pass_time(60_000)
    assert not client.transport.closed


def test_two_thousand_clients_that_say_nothing_take_little_memory(shell: Shell) -> None:
    one = Client(shell)
    gc.collect()
    tracemalloc.start()
    layers = [shell.connections.accept("SSL") for _ in range(2_000)]
    for layer in layers:
        layer.connection_made(FakeTransport())
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(shell.connections) == 2_001
    assert used_bytes < 2_000 * 16_000
    del one


# -- back-pressure ----------------------------------------------------------------------------------------------------


def test_an_answer_is_enciphered_as_the_client_takes_it(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    client.transport.room = len(client.transport.written)
    before = len(client.transport.written)
    client.request(b"x20000000")
    waiting = len(client.transport.written) - before
    assert UNSENT_BYTES < waiting < 2 * UNSENT_BYTES
    assert client.layer.get_write_buffer_size() > 19_900_000
    assert client.transport.is_paused, "no further request is read from a client that does not take its answers"
    client.transport.is_paused = False  # the toy gives nothing by itself
    client.layer.resume_reading = lambda: None  # type: ignore[method-assign]
    assert client.read_frame() == bytes(20_000_000)
    assert client.layer.get_write_buffer_size() == 0


def test_below_the_limit_the_connection_goes_on(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    client.transport.room = len(client.transport.written)
    client.request(f"x{MOST_LEFT_BYTES // 2}".encode())
    assert not client.transport.is_paused


async def test_what_was_read_before_a_pause_is_given_after_it(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    client.tls.write(frame(b"one"))
    data = client.outgoing()
    client.layer.pause_reading()
    room = client.layer.get_buffer(-1)
    room[: len(data)] = data
    client.layer.buffer_updated(len(data))
    assert bodies(shell) == []
    client.layer.resume_reading()
    assert bodies(shell) == [], "never within the call: the connection is in the midst of a step"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert bodies(shell) == [b"one"]


# -- ends -------------------------------------------------------------------------------------------------------------


def test_a_close_comes_after_the_answers_and_says_goodbye(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    client.transport.room = len(client.transport.written)
    client.request(b"x1000000")
    client.layer.close()
    assert not client.transport.closed
    assert client.read_frame() == bytes(1_000_000)
    assert client.transport.closed
    client.take()
    assert client.tls.read(1) == b""


def test_a_clients_goodbye_ends_the_connection(shell: Shell) -> None:
    client = Client(shell)
    client.shake_hands()
    client.step(client.tls.unwrap)
    assert client.transport.closed


def test_an_abort_in_the_midst_of_a_handshake_leaves_nothing(shell: Shell) -> None:
    client = Client(shell)
    client.send(b"\x16\x03\x01")
    client.connection.abort()
    assert client.transport.aborted
    client.layer.connection_lost(None)
    assert len(shell.connections) == 0


def test_rubbish_after_the_handshake_ends_it_in_one_line(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(shell)
    client.shake_hands()
    with caplog.at_level(logging.WARNING):
        client.send(b"\x17\x03\x03\x00\x20" + b"z" * 32)
        client.send(b"more")
    assert client.transport.closed
    (line,) = caplog.messages
    assert "closing: TLS: " in line


def test_a_renegotiation_is_refused(pki: Certificates) -> None:
    """OpenSSL's client cannot ask for one through Python, so the option is what is looked at."""
    client = Client(Shell(ssl_enabled_protocols="TLSv1.2"))
    client.shake_hands()
    client.step(client.tls.do_handshake)
    assert client.tls.version() == "TLSv1.2"
    assert client.layer.get_extra_info("sslcontext").options & ssl.OP_NO_RENEGOTIATION


def test_a_client_that_asks_for_new_keys_and_reads_nothing_is_ended_in_time(
    shell: Shell, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(shell)
    client.shake_hands()
    client.transport.room = 0  # it reads nothing from now on
    if not ask_for_new_keys(client.tls):
        pytest.skip("this Python's OpenSSL cannot be reached")
    most_bytes = 4 * UNSENT_BYTES
    sent_bytes = 0
    while sent_bytes < 2 * most_bytes and not client.transport.closed:
        for _ in range(100):
            assert ask_for_new_keys(client.tls)
        data = client.outgoing()
        sent_bytes += len(data)
        client.send(data)
    assert client.transport.closed
    assert client.transport.unsent_bytes < most_bytes
    assert [record.message for record in caplog.records if "new keys" in record.message]
