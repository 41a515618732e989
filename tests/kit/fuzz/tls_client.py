"""A client that speaks TLS to a `TlsLayer`, and what can be done to its records on the way."""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections.abc import Callable

from kit.certificates import certificates
from kit.transport import FakeTransport

from ottla.broker.net.tls_layer import TlsLayer

HEAD_BYTES = 5
APPLICATION_DATA = 0x17
MOST_SINGLE_BYTES = 3_000
"""One byte at a time, up to so many."""
WAYS = ("whole", "bytes", "cut", "flip", "twice", "swapped", "dropped", "between", "huge")
"""What `altered` knows."""


class TlsClient:
    """Python's TLS over a toy socket. Nothing is sent but what the caller delivers.

    `run_soon` runs what was planned with `call_soon`, as the loop does before the next read.
    """

    def __init__(self, layer: TlsLayer, version: ssl.TLSVersion, run_soon: Callable[[], None]) -> None:
        self.layer = layer
        self._run_soon = run_soon
        self.socket = FakeTransport()
        layer.connection_made(self.socket)
        context = certificates().client_context()
        context.minimum_version = context.maximum_version = version
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self.is_ready = False
        self.is_broken = False
        """Whether its TLS has failed, or was ended: it understands nothing more."""

    def next_flight(self) -> bytes:
        """What the handshake sends next."""
        if not (self.is_ready or self.is_broken):
            try:
                self.tls.do_handshake()
                self.is_ready = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                self.is_broken = True
        return self._out.read()

    def enciphered(self, data: bytes) -> bytes:
        """The records of this data."""
        if self.is_ready and not self.is_broken and data:
            try:
                self.tls.write(data)
            except ssl.SSLError:
                self.is_broken = True
        return self._out.read()

    def goodbye(self) -> bytes:
        """A close_notify."""
        if self.is_ready and not self.is_broken:
            with contextlib.suppress(ssl.SSLError, ValueError):
                self.tls.unwrap()
        return self._out.read()

    def outgoing(self) -> bytes:
        """What TLS itself wants to send."""
        return self._out.read()

    def deliver(self, pieces: list[bytes]) -> None:
        """Let these arrive, each in as many reads as the layer gives room for."""
        for piece in pieces:
            rest = memoryview(piece)
            while rest and not self.socket.is_paused and not self.socket.closed:
                room = self.layer.get_buffer(-1)
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
                self.layer.buffer_updated(count)
                self._run_soon()
                rest = rest[count:]

    def take(self) -> bytes:
        """What the broker has sent, deciphered."""
        self._in.write(bytes(self.socket.written))
        self.socket.written.clear()
        data = b""
        while self.is_ready and not self.is_broken:
            try:
                piece = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                self.is_broken = True
                break
            if not piece:
                self.is_broken = True
            data += piece
        return data


def altered(data: bytes, how: str, at: int) -> list[bytes]:
    """The pieces in which the records of `data` arrive; `at` says where, modulo what there is."""
    if not data:
        return []
    if how == "bytes":
        single = [data[number : number + 1] for number in range(min(len(data), MOST_SINGLE_BYTES))]
        return [*single, data[MOST_SINGLE_BYTES:]]
    if how == "cut":
        return [data[: at % (len(data) + 1)]]
    if how == "flip":
        byte, bit = divmod(at % (8 * len(data)), 8)
        return [data[:byte] + bytes([data[byte] ^ 1 << bit]) + data[byte + 1 :]]
    records = records_of(data)
    number = at % len(records)
    if how == "twice":
        records.insert(number, records[number])
    elif how == "swapped":
        records.reverse()
    elif how == "dropped":
        del records[number]
    elif how == "between":
        kind = (0x14, 0x15, 0x16, 0x17, 0x18, 0x00, 0xFF)[at % 7]
        records.insert(number, struct.pack(">BHH", kind, 0x0303, at % 60) + b"\1" * (at % 60))
    elif how == "huge":
        size = (0x4001, 0x4100, 0x4101, 0xFFFF)[at % 4]
        records.insert(number, struct.pack(">BHH", APPLICATION_DATA, 0x0303, size) + b"h" * size)
    return [b"".join(records)]


def records_of(data: bytes) -> list[bytes]:
    """The records of TLS in a stream; at the end what is none."""
    records = []
    while len(data) >= HEAD_BYTES:
        size = HEAD_BYTES + int.from_bytes(data[3:5])
        records.append(data[:size])
        data = data[size:]
    return [*records, data] if data else records
