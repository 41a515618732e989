"""Listeners on a real loop: errors that end the acceptance of one connection must not end that of all others."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import pytest

from ottla.broker.accepting import LOOKS, Accepting, Acceptor
from ottla.broker.net.listening import bind_address

pytestmark = pytest.mark.both_loops

GREETING = b"hello"


class Greeter(asyncio.Protocol):
    """Greets each client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(GREETING)


class Loop:
    """The running loop, and the servers that it has created."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.servers: list[asyncio.Server] = []
        self.create_task = self.loop.create_task

    async def create_server(self, make: Callable[[], asyncio.BaseProtocol], **keys: object) -> asyncio.Server:
        server: asyncio.Server = await self.loop.create_server(make, **keys)  # type: ignore[call-overload]  # as they come
        self.servers.append(server)
        return server


class Shell:
    """A listener whose next protocols are in `makes`, and which greets when there are none."""

    def __init__(self) -> None:
        self.bound = bind_address("127.0.0.1", 0)
        self.address = self.bound.getsockname()
        self.loop = Loop()
        self.made = 0
        self.errors: list[Exception] = []
        self.accepting = Accepting()
        self.acceptor = Acceptor(self.loop, "PLAINTEXT", self.bound, 10, self.make)  # type: ignore[arg-type]  # a part of a loop

    def make(self, listener: str) -> asyncio.BaseProtocol:
        assert listener == "PLAINTEXT"
        self.made += 1
        if self.errors:
            raise self.errors.pop()
        return Greeter()

    async def connect(self) -> socket.socket:
        client = socket.socket()
        client.setblocking(False)
        await self.loop.loop.sock_connect(client, self.address)
        return client

    async def greeting(self, client: socket.socket) -> bytes:
        with client:
            return await self.loop.loop.sock_recv(client, 100)

    async def look_for(self, checks: int) -> None:
        """Call `look` as often as the watch does, with an iteration of the loop after each call."""
        for _ in range(checks * LOOKS):
            self.accepting.look()
            await asyncio.sleep(0)


@asynccontextmanager
async def listening() -> AsyncIterator[Shell]:
    shell = Shell()
    shell.loop.loop.set_exception_handler(lambda _, context: None)
    await shell.acceptor.start()
    shell.accepting.add(shell.acceptor)
    try:
        yield shell
    finally:
        shell.accepting.stop()
        await asyncio.sleep(0)


async def test_after_an_error_while_one_connection_is_accepted_others_are_accepted() -> None:
    """uvloop reads such a listening socket no more: without the watch, the second client waits forever. The first one
    is closed and does not hang.
    """
    async with listening() as shell:
        shell.errors.append(MemoryError())
        first = await shell.connect()
        while not shell.made:
            await asyncio.sleep(0)
        second = await shell.connect()
        await shell.look_for(checks=2)
        assert await shell.greeting(second) == GREETING
        assert await shell.greeting(first) == b""
        assert await shell.greeting(await shell.connect()) == GREETING


async def test_a_listener_whose_socket_the_loop_has_closed_is_renewed(caplog: pytest.LogCaptureFixture) -> None:
    """uvloop closes it when the system's `accept` fails, for want of memory for example."""
    logging.getLogger("ottla").propagate = True
    async with listening() as shell:
        shell.loop.servers[0].close()
        await asyncio.sleep(0)
        client = await shell.connect()
        await shell.look_for(checks=2)
        assert await shell.greeting(client) == GREETING
    assert "listener PLAINTEXT: no client was accepted for a second" in caplog.text


async def test_a_listener_that_has_no_client_is_left_alone() -> None:
    async with listening() as shell:
        await shell.look_for(checks=5)
        assert await shell.greeting(await shell.connect()) == GREETING
        assert len(shell.loop.servers) == 1


async def test_a_renewal_that_fails_is_tried_again() -> None:
    async with listening() as shell:
        shell.loop.servers[0].close()
        await asyncio.sleep(0)
        create = shell.loop.create_server
        fails = [MemoryError(), OSError(24, "Too many open files")]

        async def create_server(make: Callable[[], asyncio.BaseProtocol], **keys: object) -> asyncio.Server:
            if fails:
                raise fails.pop()
            return await create(make, **keys)

        shell.loop.create_server = create_server  # type: ignore[method-assign]  # it fails at first
        client = await shell.connect()
        await shell.look_for(checks=6)
        assert not fails
        assert await shell.greeting(client) == GREETING


async def test_a_stopped_listener_refuses_clients() -> None:
    async with listening() as shell:
        shell.accepting.stop()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await shell.connect()
