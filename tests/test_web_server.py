"""The HTTP server of the console and the schema registry: its limits, and what malformed requests get."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from kit.console_page import read_head

from ottla.web_server import MAX_BODY_BYTES, MAX_HEAD_BYTES, Request, Response, WebServer


@asynccontextmanager
async def serving(server: WebServer) -> AsyncIterator[int]:
    port = await server.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await server.stop()


async def echo(request: Request) -> Response:
    if request.path == ("bug",):
        raise RuntimeError("a bug")
    seen = [request.method, request.path, dict(request.query), request.body.decode()]
    return Response(HTTPStatus.OK, "application/json", json.dumps(seen).encode())


async def exchange(data: bytes, server: WebServer | None = None) -> tuple[int, bytes]:
    """The status and the body of the answer to these bytes."""
    async with serving(server or WebServer(echo)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        status, headers = await read_head(reader)
        body = await reader.readexactly(int(headers["content-length"]))
        writer.close()
        return status, body


async def test_paths_and_queries_are_decoded_segment_by_segment() -> None:
    status, body = await exchange(b"GET /api/a%2Fb/%C3%A9?x=1%262&y= HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (status, json.loads(body)) == (200, ["GET", ["api", "a/b", "é"], {"x": "1&2", "y": ""}, ""])


async def test_several_requests_use_one_connection() -> None:
    async with serving(WebServer(echo)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for body in (b"one", b"two"):
            writer.write(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n" + body)
            _, headers = await read_head(reader)
            assert json.loads(await reader.readexactly(int(headers["content-length"])))[3] == body.decode()
        writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET http://h/ HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET /%ff HTTP/1.1\r\n\r\n", 400),
        (b"GET /?" + b"a=1&" * 40 + b" HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent Length: 1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nX: a\nContent-Length: 1\r\n\r\n", 400),
        (b"GET / HTTP/1.zz\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), 413),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    ],
)
async def test_what_the_server_cannot_accept_has_a_status_and_a_line(data: bytes, status: int) -> None:
    found, body = await exchange(data)
    assert (found, list(json.loads(body))) == (status, ["error"])


async def test_the_answer_to_a_request_that_is_too_long_arrives() -> None:
    """A close with unread bytes would be a reset, and a browser would show it as one."""
    async with serving(WebServer(echo)) as port, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        length = 2 * MAX_BODY_BYTES
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length)
        for _ in range(length // 65_536):
            writer.write(b"x" * 65_536)
            await writer.drain()
        status, _ = await read_head(reader)
        assert status == 413
        assert list(json.loads(await reader.read())) == ["error"]
        writer.close()


async def test_a_client_of_http_1_0_gets_the_end_of_the_connection() -> None:
    async with serving(WebServer(echo)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        writer.close()


async def test_the_longest_body_is_accepted() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % MAX_BODY_BYTES
    status, _ = await exchange(head + b"x" * MAX_BODY_BYTES)
    assert status == 200


async def test_a_bug_is_logged_and_the_server_continues(caplog: pytest.LogCaptureFixture) -> None:
    server = WebServer(echo)
    status, body = await exchange(b"GET /bug HTTP/1.1\r\n\r\n", server)
    assert (status, json.loads(body)) == (500, {"error": "a bug of the console: see what it has logged"})
    assert "RuntimeError: a bug" in caplog.text
    assert (await exchange(b"GET / HTTP/1.1\r\n\r\n"))[0] == 200


async def test_a_request_that_does_not_end_is_given_up() -> None:
    async with serving(WebServer(echo, request_timeout_s=0.05)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhal")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        writer.close()


async def test_more_connections_than_the_limit_are_closed() -> None:
    async with serving(WebServer(echo, max_connections=1)) as port, asyncio.timeout(10):
        first_reader, first = await asyncio.open_connection("127.0.0.1", port)
        first.write(b"GET / HTTP/1.1\r\n\r\n")
        await read_head(first_reader)  # so that it is being served
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        first.close()


async def test_a_stream_ends_when_its_reader_goes_away() -> None:
    ended = asyncio.Event()

    async def ticks() -> AsyncIterator[bytes]:
        try:
            yield b"one\n"
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def answer(_: Request) -> Response:
        return Response(HTTPStatus.OK, "application/x-ndjson", stream=ticks())

    async with serving(WebServer(answer)) as port, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await read_head(reader)
        assert await reader.readline() == b"one\n"
        writer.close()
        await ended.wait()
