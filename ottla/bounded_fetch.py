"""Fetching from http: and https: URLs, with limits of time and length: for keys and tokens of other servers.

The timeout of `urllib` bounds each wait for a server, but not the whole fetch: a server that sends a byte now and then
holds its client for as long as it likes. Here all reads share one deadline. A connect may take the whole time for each
address of the host, and the look-up of its name as long as the system allows.

`urllib.request` is large, so it is imported at the first use.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from http.client import HTTPConnection
    from urllib.request import BaseHandler, Request

READ_BYTES: Final = 8 << 10
"""The most bytes that are read between two checks of the clock (Python's default is 128 KiB from 3.14 on)."""


def fetch(
    request: str | Request,
    timeout_s: float,
    most_bytes: int,
    *handlers: BaseHandler | type[BaseHandler],
    now_s: Callable[[], float] = time.monotonic,
) -> bytes:
    """The body of the answer; of a longer one the first `most_bytes` + 1 bytes. `handlers` are added to urllib's own.

    Raises OSError (TimeoutError among them), http.client.HTTPException, ValueError.
    """
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import HTTPHandler, HTTPSHandler, build_opener

    deadline = Deadline(timeout_s, now_s)

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            deadline.bound(self)

    class Encrypted(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            deadline.bound(self)

    class OverHttp(HTTPHandler):
        def http_open(self, req: Request) -> Any:
            return self.do_open(Plain, req)

    class OverHttps(HTTPSHandler):
        def https_open(self, req: Request) -> Any:
            return self.do_open(Encrypted, req)

    with build_opener(OverHttp, OverHttps, *handlers).open(request, timeout=timeout_s) as answer:
        return bytes(answer.read(most_bytes + 1))


class Deadline:
    """The time by which the whole fetch must be done."""

    def __init__(self, timeout_s: float, now_s: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._ends_s = now_s() + timeout_s

    def bound(self, connection: HTTPConnection) -> None:
        """Apply the deadline to all that a new connection sends and reads."""
        connection.sock = BoundedSocket(connection.sock, self)

    def limit(self, sock: socket.socket) -> None:
        """Limit the next wait to the time that is left. Raises TimeoutError if none is."""
        left_s = self._ends_s - self._now_s()
        if left_s <= 0:
            raise TimeoutError(f"there is no complete answer within {self._timeout_s:g} s")
        sock.settimeout(left_s)


class BoundedSocket:
    """The part of a socket that `http.client` uses. As with a socket, its file outlives its `close`."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._has_file = False

    def sendall(self, data: bytes) -> None:
        """Send all bytes before the deadline."""
        self._deadline.limit(self._sock)
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file that reads from the socket."""
        self._has_file = True
        return io.BufferedReader(BoundedReader(self._sock, self._deadline), READ_BYTES)

    def close(self) -> None:
        """Close the socket, unless there is a file, which closes it."""
        if not self._has_file:
            self._sock.close()


class BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline, and closes it."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read the bytes that arrive next."""
        self._deadline.limit(self._sock)
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        """Close the socket, too."""
        if not self.closed:
            super().close()
            self._sock.close()
