"""The HTTP port on a real loop: an error while one connection is accepted must not end the port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from ottla.broker import http_port
from ottla.broker.accepting import LOOKS
from ottla.broker.http.server import HttpServer, plain
from ottla.broker.http_port import HttpPort

pytestmark = pytest.mark.both_loops


async def get(port: HttpPort) -> bytes:
    """The answer to a request; empty if the connection is closed without one."""
    reader, writer = await asyncio.open_connection(*port.address)
    try:
        writer.write(b"GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def watched(port: HttpPort, asked: asyncio.Task[bytes]) -> bytes:
    """The answer, while the port is watched as the server does it."""
    for _ in range(100 * LOOKS):
        if asked.done():
            break
        port.look()
        await asyncio.sleep(0)
    return await asyncio.wait_for(asked, 20)


@asynccontextmanager
async def listening() -> AsyncIterator[HttpPort]:
    asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
    port = HttpPort("127.0.0.1", 0, lambda: ({"/page": lambda: plain(HTTPStatus.OK, "here")}, {}))
    try:
        yield port
    finally:
        await port.stop()


def scarce(call: Callable[..., object], errors: list[Exception]) -> Callable[..., object]:
    """The call, after these errors."""

    def fails_first(*arguments: object, **keys: object) -> object:
        if errors:
            raise errors.pop()
        return call(*arguments, **keys)

    return fails_first


async def test_after_an_error_while_one_connection_is_accepted_others_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop reads such a listening socket no more: health checks and metrics would wait forever."""
    errors: list[Exception] = []
    monkeypatch.setattr(HttpServer, "protocol", scarce(HttpServer.protocol, errors))
    async with listening() as port:
        assert (await get(port)).startswith(b"HTTP/1.1 200")
        errors.append(MemoryError())
        first = asyncio.create_task(get(port))
        while errors:
            await asyncio.sleep(0)
        second = asyncio.create_task(get(port))
        assert (await watched(port, second)).startswith(b"HTTP/1.1 200")
        assert await first == b""


async def test_a_first_connection_for_which_there_is_no_memory_is_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [MemoryError(), OSError(24, "Too many open files")]
    monkeypatch.setattr(http_port, "Acceptor", scarce(http_port.Acceptor, errors))
    async with listening() as port:
        assert (await watched(port, asyncio.create_task(get(port)))).startswith(b"HTTP/1.1 200")
    assert not errors


async def test_a_port_at_which_no_connection_could_be_accepted_is_closed_by_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[Exception] = [MemoryError()]
    monkeypatch.setattr(http_port, "Acceptor", scarce(http_port.Acceptor, errors))
    async with listening() as port:
        asked = asyncio.create_task(get(port))
        while errors:
            await asyncio.sleep(0)
    assert await asked == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*port.address)
