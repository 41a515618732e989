"""The HTTP port of a server: it listens from the start on, and imports the HTTP code with the first connection.

It is on by default, and a start must not pay for code that most brokers never use. Before that the kernel completes
connections, so no early client is refused. For the same reason the content is a function: `show` replaces it when the
logs are open, for all later requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.accepting import Accepting, Acceptor
from ottla.broker.net.listening import bind_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.http.server import HttpServer, Operations, Pages

Content: TypeAlias = "Callable[[], tuple[Pages, Operations]]"

BACKLOG = 20
"""Connections that wait for the loop; `HttpServer` limits the open ones."""


class HttpPort:
    """Binds and listens immediately; raises OSError if the address is not available. `look` is called ten times a
    second: it listens again if the loop accepts no client any more (`accepting.py`).
    """

    def __init__(self, host: str, port: int, content: Content) -> None:
        self._content = content
        self._host = host
        self._server: HttpServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._accepting = Accepting()
        self._loop = asyncio.get_running_loop()
        self._socket = bind_address(host, port)
        try:
            self._socket.listen(BACKLOG)  # some ports in use are only refused here
        except OSError:
            self._socket.close()
            raise
        bound_host, bound_port = self._socket.getsockname()[:2]
        self.address = (str(bound_host), int(bound_port))
        self._loop.add_reader(self._socket, self._begin)

    def show(self, content: Content) -> None:
        """Serve this content from the next request on."""
        self._content = content
        if self._server is not None:
            self._server.replace(*content())

    def look(self) -> None:
        """Watch the port; begin again if there was no memory to pass it to the loop."""
        if self._starting is not None and self._starting.done() and self._starting.exception() is not None:
            self._starting = None
            self._loop.add_reader(self._socket, self._begin)
        self._accepting.look()

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._starting is None:
            self._loop.remove_reader(self._socket)
        else:
            with contextlib.suppress(MemoryError, OSError):  # the loop cannot accept, and the port is closed anyway
                await self._starting
        self._accepting.stop()
        if self._server is not None:
            await self._server.stop()
        self._socket.close()

    def _begin(self) -> None:
        """Let the loop accept: a client has connected. Raises MemoryError; the loop calls it again."""
        if self._server is None:
            from ottla.broker.http.server import HttpServer

            self._server = HttpServer(*self.address, *self._content(), names=(self._host,))
        self._starting = self._loop.create_task(self._accept(self._server))
        self._loop.remove_reader(self._socket)

    async def _accept(self, server: HttpServer) -> None:
        """Raises MemoryError, OSError."""
        acceptor = Acceptor(self._loop, "HTTP", self._socket, BACKLOG, lambda _: server.protocol())
        await acceptor.start()
        self._accepting.add(acceptor)


__all__ = ["Content", "HttpPort"]
