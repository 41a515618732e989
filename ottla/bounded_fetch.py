"""A document at an http: or https: URL, within a time and a length: for keys and tokens of other servers.

`urllib` bounds each wait for a server by its timeout, and so not the whole: a server that sends a byte now and then
holds its client for as long as it likes. Here each read waits for what is left of the time of all of them. A connect
may take that time for each address of the host, and the look-up of its name as long as the system lets it.

Imports `urllib.request` when it is used, which is large.
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
"""At most so much is read between two looks at the clock (by default 128 KiB from Python 3.14 on)."""


def fetch(
    request: str | Request,
    timeout_s: float,
    most_bytes: int,
    *handlers: BaseHandler | type[BaseHandler],
    now_s: Callable[[], float] = time.monotonic,
) -> bytes:
    """The body of the answer; of a longer one `most_bytes` + 1. `handlers` are urllib's, beside its own.

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
    """When all of a fetch has to be done."""

    def __init__(self, timeout_s: float, now_s: Callable[[], float]) -> None:
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._ends_s = now_s() + timeout_s

    def bound(self, connection: HTTPConnection) -> None:
        """What a new connection sends and reads has to be done by then."""
        connection.sock = BoundedSocket(connection.sock, self)

    def limit(self, sock: socket.socket) -> None:
        """The next wait is for what is left. Raises TimeoutError where nothing is."""
        left_s = self._ends_s - self._now_s()
        if left_s <= 0:
            raise TimeoutError(f"the answer is not there within {self._timeout_s:g} s")
        sock.settimeout(left_s)


class BoundedSocket:
    """Of a socket what `http.client` uses. As with a socket, a file of it outlives its `close`."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline
        self._has_file = False

    def sendall(self, data: bytes) -> None:
        """Send it."""
        self._deadline.limit(self._sock)
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What is read of it."""
        self._has_file = True
        return io.BufferedReader(BoundedReader(self._sock, self._deadline), READ_BYTES)

    def close(self) -> None:
        """The file closes it where there is one."""
        if not self._has_file:
            self._sock.close()


class BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline, and closes it."""

    def __init__(self, sock: socket.socket, deadline: Deadline) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes first."""
        self._deadline.limit(self._sock)
        return self._sock.recv_into(buffer)

    def close(self) -> None:
        """Close the socket, too."""
        if not self.closed:
            super().close()
            self._sock.close()
