"""The listeners of a server while it accepts, and a watch that notices when the loop accepts from one no more.

uvloop stops reading a listening socket in two cases, for good. If an error ends the call that accepts a connection,
such as a MemoryError while it makes the transport, libuv waits for a call of `uv_accept` that never comes. If the
system's `accept` fails (ENOMEM, ENOBUFS), uvloop closes the socket and logs nothing. So each listener keeps its bound
socket and gives the loop a duplicate of it. If clients have waited for a second, in which the loop has run and has
accepted none, it gets another duplicate: the clients in the backlog are accepted, and no port is lost.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

LOG = logging.getLogger("ottla.server")

LOOKS: Final = 10
"""The watch checks at each tenth call of `look`: once a second, with an iteration of the loop after each call."""


class Acceptor:
    """One listener. `make` returns the protocol of a new connection; it must not raise (`Connections.accept`)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        bound: socket.socket,
        backlog: int,
        make: Callable[[str], asyncio.BaseProtocol],
    ) -> None:
        self._loop = loop
        self._name = name
        self._bound = bound
        self._backlog = backlog
        self._make = make
        self._server: asyncio.AbstractServer | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._arrived = 0
        self._arrived_before = -1
        """`_arrived` when clients were found waiting; -1 if none waited."""
        self._poll: select.poll | None = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(bound, select.POLLIN)

    async def start(self) -> None:
        """Accept clients. Raises OSError: another process listens at this port, for example."""
        self._bound.listen(self._backlog)  # uvloop's create_server reports no OSError of its own
        self._server = await self._serve()

    def stop(self) -> None:
        """Accept no more, and close the port."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._bound.close()

    def look(self) -> None:
        """Give the loop another socket if clients wait as they did at the call before, and none was accepted since."""
        if self._server is None or self._poll is None:
            return
        if self._renewal is not None:
            if not self._renewal.done():
                return
            self._renewal = None
        if not self._poll.poll(0):
            self._arrived_before = -1
        elif self._arrived_before != self._arrived:
            self._arrived_before = self._arrived
        else:
            self._arrived_before = -1
            self._renewal = self._loop.create_task(self._renew())

    def descriptors(self) -> list[int]:
        """The descriptors of its sockets."""
        sockets = [] if self._server is None else getattr(self._server, "sockets", ())
        # uvloop has None in place of one that it has closed.
        return [one.fileno() for one in (self._bound, *sockets) if one is not None]

    def _arrive(self) -> asyncio.BaseProtocol:
        self._arrived += 1
        return self._make(self._name)

    async def _serve(self) -> asyncio.AbstractServer:
        taken = self._bound.dup()
        try:
            return await self._loop.create_server(self._arrive, sock=taken, backlog=self._backlog)
        except BaseException:
            taken.close()
            raise

    async def _renew(self) -> None:
        try:
            server = await self._serve()
        except (MemoryError, OSError):
            return  # the watch finds the clients again
        old, self._server = self._server, server
        if old is None:  # stopped meanwhile
            self._server = None
            server.close()
            return
        with contextlib.suppress(MemoryError, OSError):
            old.close()
        LOG.warning("listener %s: no client was accepted for a second, and some waited; it listens again", self._name)


class Accepting:
    """All listeners of a server. `look` is called ten times a second."""

    def __init__(self) -> None:
        self._acceptors: list[Acceptor] = []
        self._looks = 0

    def add(self, acceptor: Acceptor) -> None:
        """Watch `acceptor`, which has started, and stop it with the others."""
        self._acceptors.append(acceptor)

    def look(self) -> None:
        """Count a call, and check all listeners at each tenth."""
        self._looks += 1
        if self._looks >= LOOKS:
            self._looks = 0
            for acceptor in self._acceptors:
                acceptor.look()

    def descriptors(self) -> list[int]:
        """The descriptors of all listening sockets."""
        return [descriptor for acceptor in self._acceptors for descriptor in acceptor.descriptors()]

    def stop(self) -> None:
        """Accept no more."""
        for acceptor in self._acceptors:
            acceptor.stop()
        self._acceptors.clear()
