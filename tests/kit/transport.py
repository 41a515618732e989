"""A transport for connections without a socket: bytes are fed, replies are kept, pauses are seen."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable

from ottla.broker.net.connection import Connection


class FakeTransport(asyncio.Transport):
    """What a connection writes is in `written`. `is_full` makes every write ask the protocol to pause."""

    def __init__(self, peer: tuple[str, int] = ("192.0.2.7", 4242), raw: socket.socket | None = None) -> None:
        super().__init__({"peername": peer, "sockname": ("192.0.2.1", 9092), "socket": raw})
        self.written = bytearray()
        self.sends = 0
        self.is_paused = False
        self.closed = False
        self.aborted = False
        self.unsent_bytes = 0
        self.write_buffer_limits: tuple[int | None, int | None] | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written to a closed transport"
        self.written += data
        self.sends += 1

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def pause_reading(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume_reading(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.write_buffer_limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes


def feed(connection: Connection, data: bytes) -> int:
    """Let `data` arrive in one readable event, as the loop does: in as many reads as the connection gives room for.
    How many bytes arrived: a connection that is paused, or closed, reads no more.
    """
    transport = connection.transport  # None once the connection has ended
    rest = memoryview(data)
    while rest:
        assert transport is not None
        assert isinstance(transport, FakeTransport)
        if transport.is_paused or transport.closed:
            break
        room = connection.get_buffer(-1)
        assert len(room) > 0
        count = min(len(room), len(rest))
        room[:count] = rest[:count]
        connection.buffer_updated(count)
        rest = rest[count:]
    return len(data) - len(rest)
