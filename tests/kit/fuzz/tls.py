"""Hostile TLS: handshakes and records that are changed on the way, garbage, new keys, goodbyes, frames within.

The client is Python's own TLS (1.2 and 1.3), whose records are cut, flipped, repeated, reordered, left out, or have
others between them (`tls_client.py`). Beside what `Life` holds:

- no request is answered that the client has not sent, whatever was done to its records;
- a record whose ciphertext was changed ends the connection;
- of what was read and could not be deciphered yet little is kept, and so is of what TLS itself wants to say;
- a handshake that does not end is ended.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Callable, Sequence
from unittest import mock

from kit.certificates import certificates
from kit.fuzz.framing import APIS, GARBAGE
from kit.fuzz.life import SASL, Life, Line, Step
from kit.fuzz.requests import one_request
from kit.fuzz.tls_client import HEAD_BYTES, WAYS, TlsClient, altered, records_of
from kit.fuzz.values import MessageMaker, mutate
from kit.fuzz.vocabulary import Vocabulary
from kit.fuzz.watch import Finding
from kit.openssl import ask_for_new_keys, renegotiate
from kit.transport import FakeTransport

from ottla.broker.net.connections import Connections
from ottla.broker.net.tls_layer import READ_BYTES, TlsLayer

FIRST_TLS_LINE = 200
"""Lines from this number on come in by the listener with TLS: even ones speak 1.3, odd ones 1.2."""
LINES = 4
TALKS = 14
MOST_KEYS = 300
MOST_WAITING_BYTES = 2 * READ_BYTES
TOO_LONG_MS = 120_000


class TlsLife(Life):
    """A life with a listener that speaks TLS."""

    def __init__(self, *, with_kio: bool = True) -> None:
        keys: dict[str, object] = {
            "listeners": f"{SASL['listeners']},SSL://127.0.0.1:9094",
            **{f"listener.name.ssl.{key}": value for key, value in certificates().server_overrides().items()},
        }
        super().__init__(with_kio=with_kio, config=keys)
        self._clients: dict[int | str, TlsClient] = {}
        self._soon: list[Callable[[], None]] = []

    def start_broker(self) -> None:
        super().start_broker()
        self.node.tls.open()
        self._clients.clear()
        services, node = self.node.services, self.node
        self.connections = Connections(services, node.dispatcher, doors=node.doors, tls=node.tls.by_name)

    def client(self, number: int) -> TlsClient:
        """The client at a line; a new one where there is none."""
        if number not in self._clients:
            layer = self.connections.accept("SSL")
            assert isinstance(layer, TlsLayer)
            version = ssl.TLSVersion.TLSv1_2 if number % 2 else ssl.TLSVersion.TLSv1_3
            self._clients[number] = TlsClient(layer, version, self._run_soon)
            self._lines[number] = Line(FakeTransport(), layer.connection)  # its transport has what is deciphered
        return self._clients[number]

    def do(self, step: Step) -> None:
        with mock.patch("asyncio.get_running_loop", return_value=self):
            if "tls" in step:
                self._tls(step)
            else:
                super().do(step)
            self.node.settle()
            while self._soon:
                self._run_soon()
                self.node.settle()
        for number, client in list(self._clients.items()):
            self._look_at(number, client)

    def call_soon(self, step: Callable[[], None]) -> None:
        """As the loop's."""
        self._soon.append(step)

    def _run_soon(self) -> None:
        planned, self._soon = self._soon, []
        for one in planned:
            one()

    def _tls(self, step: Step) -> None:
        number, what, data = step.get("line", FIRST_TLS_LINE), step["tls"], step.get("send", b"")
        how, at = step.get("how", "whole"), step.get("at", 0)
        client = self.client(number)
        if what == "shake":
            client.deliver(altered(client.next_flight(), how, at))
        elif what == "raw":
            client.deliver(altered(data, how, at))
        else:
            self._finish_handshake(client)
            must_end = False
            if what == "talk":
                if client.is_ready and not client.is_broken:
                    self._note_asked(self._lines[number], data)
                records = client.enciphered(data)
                must_end = how == "flip" and len(records_of(records)) == 1 and at % (8 * len(records)) >= 8 * HEAD_BYTES
            elif what == "keys":
                for _ in range(at if client.is_ready and not client.is_broken and not number % 2 else 0):
                    ask_for_new_keys(client.tls)
                records, how = client.outgoing(), "whole"
            elif what == "renegotiate":
                if client.is_ready and not client.is_broken and number % 2:
                    renegotiate(client.tls)
                records = client.outgoing()
            else:
                records = client.goodbye()
            must_end &= not client.socket.is_paused
            client.deliver(altered(records, how, at))
            self.node.settle()
            if must_end and not client.socket.closed:
                raise Finding("a record that was changed on the way does not end the connection")

    def _finish_handshake(self, client: TlsClient) -> None:
        for _ in range(4):
            if client.is_ready or client.is_broken or client.socket.closed:
                break
            client.deliver([client.next_flight()])
            client.take()
            self.node.settle()

    def _look_at(self, number: int | str, client: TlsClient) -> None:
        """Take what was sent, and see what waits; end what the broker has ended."""
        line = self._lines.get(number)
        if line is not None:
            line.transport.written += client.take()
            if client.is_broken:
                line.transport.written.clear()  # perhaps a part of an answer, whose rest it cannot read
        layer = client.layer
        if layer.ciphertext_bytes > MOST_WAITING_BYTES:
            raise Finding(f"{layer.ciphertext_bytes} bytes of ciphertext wait in the layer")
        if client.socket.closed:
            del self._clients[number]
            layer.connection_lost(None)
            if line is not None:
                self._ended.append(self._lines.pop(number))

    def drop_line(self, number: int | str) -> None:
        client = self._clients.pop(number, None)
        if client is None:
            super().drop_line(number)
        else:
            self._lines.pop(number)
            client.socket.closed = True
            client.layer.connection_lost(None)

    def is_open(self, number: int) -> bool:
        """Whether the line would take bytes now."""
        return number not in self._clients or not self._clients[number].socket.is_paused

    def end(self) -> None:
        """Also: who has not finished a handshake is gone after a while."""
        unfinished = [
            client for client in self._clients.values() if client.layer.connection.handshake_since_ms is not None
        ]
        self.step({"wait_ms": TOO_LONG_MS})
        if any(not client.socket.closed for client in unfinished):
            raise Finding("a handshake that does not end is not ended")
        super().end()


def life_of(steps: Sequence[Step]) -> Life:
    """The life in which these steps can be lived."""
    return TlsLife() if any("tls" in step for step in steps) else Life()


def live(chance: random.Random, life: Life) -> int:
    """One life of TLS in trouble; how many deliveries there were. Raises Finding."""
    assert isinstance(life, TlsLife)
    maker = MessageMaker(chance, Vocabulary())
    sent = 0
    for number in range(TALKS):
        line = FIRST_TLS_LINE + chance.randrange(LINES)
        what = chance.random()
        if what < 0.08 or not life.is_open(line):
            life.step({"wait_ms": chance.choice((10, 1_000, 40_000))})
            continue
        if what < 0.12:
            life.step({"line": line, "drop": True})
            continue
        sent += 1
        how, at = ("whole" if chance.random() < 0.5 else chance.choice(WAYS)), chance.randrange(1 << 20)
        if what < 0.35:
            life.step({"line": line, "tls": "shake", "how": how, "at": at})
        elif what < 0.75:
            life.step({"line": line, "tls": "talk", "send": _stream(chance, maker, number), "how": how, "at": at})
        elif what < 0.82:
            life.step({"line": line, "tls": "keys", "at": chance.choice((1, 3, MOST_KEYS))})
        elif what < 0.86:
            life.step({"line": line, "tls": "renegotiate", "how": how, "at": at})
        elif what < 0.91:
            life.step({"line": line, "tls": "goodbye", "how": how, "at": at})
        else:
            life.step({"line": line, "tls": "raw", "send": _garbage(chance, maker, number), "how": how, "at": at})
    life.end()
    return sent


def _stream(chance: random.Random, maker: MessageMaker, number: int) -> bytes:
    """Some frames of Kafka, mostly right ones."""
    stream = b""
    for slot in range(chance.choice((1, 1, 2, 5, 30))):
        frame = one_request(chance, maker, chance.choice(APIS), number * 100 + slot)
        if frame is not None and len(frame) < 100_000:
            stream += frame
    return mutate(chance, stream) if stream and chance.random() < 0.1 else stream


def _garbage(chance: random.Random, maker: MessageMaker, number: int) -> bytes:
    """What is no TLS, or only looks like it."""
    what = chance.random()
    if what < 0.4:
        return chance.choice(GARBAGE)
    if what < 0.6:
        return _stream(chance, maker, number)
    head = bytes((chance.choice((0x14, 0x15, 0x16, 0x17, 0x80)), 3, chance.randrange(5)))
    size = chance.choice((0, 1, 2, 40, 0x4000, 0x4101, 0xFFFF))
    return head + size.to_bytes(2) + chance.randbytes(chance.choice((size, size // 2)))
