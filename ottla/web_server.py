"""A small HTTP/1.1 server for the console and the schema registry: JSON bodies, and answers that stream lines.

One request after the other on a connection. Everything that a peer may send is limited: the head (431), the body (413),
the time until both are complete and the time that it may take to read an answer (the connection is closed), and the
number of connections. It knows no path: `answer` maps a request to a response, and `refuse` a refusal. Bodies in chunks
are refused (411): no browser sends them, and no client of a schema registry.

It is not the broker's server (`ottla.broker.http`), which accepts no bodies, streams nothing and belongs to the broker.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 4 * 1024 * 1024
"""A record's value as base64, with a key and headers, for the default `max.request.size` of 1 MB and more."""
MAX_QUERY_FIELDS = 30
MAX_CONNECTIONS = 64
REQUEST_TIMEOUT_S = 15.0
"""For a head that is begun and its body. A connection may be idle for as long, too: browsers open another one."""
WRITE_TIMEOUT_S = 15.0
LINGER_TIMEOUT_S = 2.0
"""How long the rest of a refused request is read and forgotten."""
_END_OF_HEAD = b"\r\n\r\n"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Of a header (RFC 9110, `token`)."""
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""In no header: a line feed alone would begin another one for some programs (RFC 9112, 2.2)."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request. Names of headers are in lower case; `path` is decoded, segment by segment."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer: a body, or `stream`, whose pieces are sent as they come until the peer disconnects."""

    status: HTTPStatus
    content_type: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None


class BadRequest(Exception):
    """A request that this server cannot accept. The status and one line for people."""

    def __init__(self, status: HTTPStatus, line: str) -> None:
        super().__init__(line)
        self.status = status


Answer = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[BadRequest], Response]


def refusal(refused: BadRequest) -> Response:
    """The answer to a request that is refused: one line, as JSON."""
    import json

    body = json.dumps({"error": str(refused)}).encode()
    return Response(refused.status, "application/json", body)


class WebServer:
    """Serves what `answer` returns. `start` listens, `stop` closes the port and every connection.

    `name`: what it is, for the line about a bug; `refuse`: the body of a refusal, also of those that `answer` raises.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        name: str = "console",
        refuse: Refuse = refusal,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._answer = answer
        self._name = name
        self._refuse = refuse
        self._request_timeout_s = request_timeout_s
        self._write_timeout_s = write_timeout_s
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES - len(_END_OF_HEAD))
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and the connections."""
        if self._server is not None:
            self._server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of start_server always runs in a task
        self._connections.add(task)
        try:
            if len(self._connections) <= self._max_connections:
                while await self._serve_one(reader, writer):
                    pass
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            writer.transport.abort()
        except asyncio.CancelledError:
            pass  # the server ends
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the next request; whether another one may follow."""
        try:
            async with asyncio.timeout(self._request_timeout_s):
                request = await read_request(reader)
        except BadRequest as refused:
            await self._write(writer, self._refuse(refused), keeps_alive=False)
            await _linger(reader, writer)
            return False
        if request is None:
            return False
        try:
            response = await self._answer(request)
        except BadRequest as refused:
            response = self._refuse(refused)
        except Exception:  # a bug in one answer must not end the server; it is logged with its traceback
            logger.exception("%s /%s failed", request.method, "/".join(request.path))
            line = BadRequest(HTTPStatus.INTERNAL_SERVER_ERROR, f"a bug of the {self._name}: see what it has logged")
            response = self._refuse(line)
        if response.stream is not None:
            await self._stream(reader, writer, response, response.stream)
            return False
        keeps_alive = request.headers.get("connection", "").lower() != "close"
        await self._write(writer, response, keeps_alive=keeps_alive)
        return keeps_alive

    async def _write(self, writer: asyncio.StreamWriter, response: Response, *, keeps_alive: bool) -> None:
        more = {"Content-Length": str(len(response.body)), "Connection": "keep-alive" if keeps_alive else "close"}
        writer.write(_head(response, more) + response.body)
        async with asyncio.timeout(self._write_timeout_s):
            await writer.drain()

    async def _stream(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        response: Response,
        stream: AsyncIterator[bytes],
    ) -> None:
        """Send the pieces until they end, or the peer closes its side or sends anything else."""
        pieces = asyncio.ensure_future(self._send_pieces(writer, response, stream))
        closed = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((pieces, closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in (pieces, closed):
                one.cancel()
            results = await asyncio.gather(pieces, closed, return_exceptions=True)
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        if isinstance(results[0], Exception):
            raise results[0]

    async def _send_pieces(
        self, writer: asyncio.StreamWriter, response: Response, stream: AsyncIterator[bytes]
    ) -> None:
        writer.write(_head(response, {"Connection": "close"}))
        async for piece in stream:
            writer.write(piece)
            async with asyncio.timeout(self._write_timeout_s):
                await writer.drain()


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and forget what the peer still sends: a connection that is closed with unread bytes is reset, and the peer
    may lose the answer (RFC 9112, 9.6).
    """
    writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_TIMEOUT_S):
            while await reader.read(MAX_HEAD_BYTES):
                pass


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of a connection; None at its end. Raises BadRequest."""
    try:
        head = await reader.readuntil(_END_OF_HEAD)
    except asyncio.LimitOverrunError:
        line = f"a head has {MAX_HEAD_BYTES} bytes at most"
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, line) from None
    except asyncio.IncompleteReadError as ended:
        if not ended.partial:
            return None
        raise BadRequest(HTTPStatus.BAD_REQUEST, "the connection ended inside of a head") from None
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0") or not words[1].startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "this is not a request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in rest[:-2]:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value) or name.lower() in headers:
            raise BadRequest(HTTPStatus.BAD_REQUEST, "a header is malformed, or there twice")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers:
        raise BadRequest(HTTPStatus.LENGTH_REQUIRED, "bodies in chunks are not supported")
    if words[2] == "HTTP/1.0":
        headers["connection"] = "close"  # its clients wait for the end of the connection
    path, query = _target(words[1])
    return Request(words[0], path, query, headers, await _body(reader, headers.get("content-length", "0")))


def _target(target: str) -> tuple[tuple[str, ...], dict[str, str]]:
    path, _, query = target.partition("?")
    with suppress(ValueError):
        fields = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict")
        return tuple(unquote(part, errors="strict") for part in path.split("/")[1:]), dict(fields)
    raise BadRequest(HTTPStatus.BAD_REQUEST, "the target of the request is malformed")


async def _body(reader: asyncio.StreamReader, length: str) -> bytes:
    if not (length.isascii() and length.isdecimal() and len(length) <= 20):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "Content-Length is malformed")
    if int(length) > MAX_BODY_BYTES:
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has {MAX_BODY_BYTES:,} bytes at most")
    return await reader.readexactly(int(length))


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing of other hosts, no code in the page itself, and no way from a text to HTML (Trusted Types)."""


def _head(response: Response, more: Mapping[str, str]) -> bytes:
    headers = {
        "Content-Type": response.content_type,
        "Cache-Control": "no-store",
        "Content-Security-Policy": POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
        **more,
    }
    lines = [f"HTTP/1.1 {response.status.value} {response.status.phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
