"""A small HTTP/1.1 server for people and probes, on a separate port: `/livez`, `/readyz`, `/metrics`, operations.

It answers GET and HEAD for pages and POST for operations, one request after the other on a connection, and supports no
bodies. An operation is refused (403) unless it comes from a loopback address, not from a web page, and has a header
that no form can send (`operations.py`). A request that is meant for another host is 421 (`ottla/addressed.py`).
Everything that a client may send is limited: the size of the head (431), the time until the head is complete (the
connection is closed), requests per connection, and connections. A request that it cannot parse is 400, an unknown path
404, another method 405.

It is used instead of a library because it is one page, needs no dependency, and starts in no time; the broker's port
never speaks HTTP. Asyncio is used only here and in `ottla.broker.server` and `process`. Paths are served by `pages.py`
and `operations.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

from ottla.addressed import is_loopback, is_named
from ottla.broker.runtime.pending import Pending

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES = 8 * 1024
HEAD_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 10.0
MAX_REQUESTS_PER_CONNECTION = 1_000
MAX_CONNECTIONS = 100
BYTES_PER_WRITE = 256 * 1024
"""The part of a long page that is written before other requests run: copying it takes 0.1 ms."""
_END_OF_HEAD = b"\r\n\r\n"


class Page(NamedTuple):
    """An answer: status, type and body; `allow` lists the methods in a 405."""

    status: HTTPStatus
    content_type: str
    body: bytes
    allow: str = ""


Answer: TypeAlias = "Page | Pending[Page]"
"""A long answer is pending, so that the broker's requests run meanwhile."""
Pages = Mapping[str, Callable[[], Answer]]
Operations = Mapping[str, Callable[[Mapping[str, str]], Answer]]
"""The operations, by path; an operation gets the fields of the query."""

MAX_QUERY_FIELDS = 10
MARK = "x-ottla"
"""A header that an operation must have, with any value, unless its Content-Type is JSON."""


class BadRequest(Exception):
    """A head that is not HTTP/1.x as this server supports it."""


class _Head(NamedTuple):
    method: str
    path: str
    keeps_alive: bool
    query: str = ""
    is_from_a_page: bool = False
    """Whether the browser's headers show that a web page has made the request."""
    host: str = ""
    """The value of `Host`, in lower case; empty where there is none."""
    is_marked: bool = False
    """Whether it has what a page of another origin may not send without a preflight: a custom header, or JSON."""


class HttpServer:
    """Serves `pages` and `operations` by path. `start` listens, `stop` closes the port and every connection. Where
    another object listens, `protocol` makes the protocol of a new connection.

    `names` are the names that requests may use for this machine besides its addresses, see `ottla/addressed.py`.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Pages,
        operations: Operations | None = None,
        *,
        names: Collection[str] = (),
        head_timeout_s: float = HEAD_TIMEOUT_S,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._operations = operations or {}
        self._names = (host, *names)
        self._is_for_this_machine = is_loopback(host)
        self._head_timeout_s = head_timeout_s
        self._write_timeout_s = write_timeout_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    def replace(self, pages: Pages, operations: Operations) -> None:
        """Serve these from the next request on."""
        self._pages = pages
        self._operations = operations

    @property
    def connection_count(self) -> int:
        """Connections that are open, or still have data that the peer has not read."""
        return len(self._connections)

    @property
    def address(self) -> tuple[str, int]:
        """The bound address; the port is the real one even if 0 was requested."""
        if self._server is None:
            raise RuntimeError("the HTTP server is not started")
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def start(self) -> None:
        """Bind and listen. Raises OSError when the address is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.protocol, self._host or None, self._port, reuse_address=True)
        self._is_for_this_machine = all(is_loopback(str(one.getsockname()[0])) for one in self._server.sockets)

    def protocol(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=MAX_HEAD_BYTES - len(_END_OF_HEAD), loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._serve, loop=loop)

    async def stop(self) -> None:
        """Close the port, if it is this object that listens, and the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # a coroutine of start_server always runs in a task
        self._connections.add(task)
        try:
            if len(self._connections) <= MAX_CONNECTIONS:
                await self._talk(reader, writer)
            writer.close()
            async with asyncio.timeout(self._write_timeout_s):
                await writer.wait_closed()
        except (ConnectionError, TimeoutError):
            # The peer has disconnected or was too slow: its unread data would stay in memory as long as it wants.
            writer.transport.abort()
        except asyncio.CancelledError:
            pass  # the broker stops, and no client is left to answer
        finally:
            self._connections.discard(task)
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(MAX_REQUESTS_PER_CONNECTION):
            try:
                head = await self._read_head(reader)
            except asyncio.LimitOverrunError:
                error = plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head has {MAX_HEAD_BYTES} bytes at most")
                await self._write(writer, error, with_body=True, keeps_alive=False)
                return
            except BadRequest as error:
                page = plain(HTTPStatus.BAD_REQUEST, str(error))
                await self._write(writer, page, with_body=True, keeps_alive=False)
                return
            if head is None:
                return
            page = await self._answer(head, str((writer.get_extra_info("peername") or [""])[0]))
            await self._write(writer, page, with_body=head.method != "HEAD", keeps_alive=head.keeps_alive)
            if not head.keeps_alive:
                return

    async def _read_head(self, reader: asyncio.StreamReader) -> _Head | None:
        """The next request's head; None at the end of the connection. Raises BadRequest, LimitOverrunError."""
        try:
            async with asyncio.timeout(self._head_timeout_s):
                data = await reader.readuntil(_END_OF_HEAD)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise BadRequest("the connection ended inside of a head") from None
            return None
        return parse_head(data)

    async def _answer(self, head: _Head, peer_host: str) -> Page:
        page, operation = self._pages.get(head.path), self._operations.get(head.path)
        if (operation is not None or self._is_for_this_machine) and not is_named(head.host, self._names):
            wanted = "ask by its address or as localhost, or name it in ottla.http.listener"
            return plain(HTTPStatus.MISDIRECTED_REQUEST, f"{head.host[:100]!r} is not this broker: {wanted}")
        if page is None and operation is None:
            return plain(HTTPStatus.NOT_FOUND, f"there is: {' '.join(sorted([*self._pages, *self._operations]))}")
        try:
            if operation is not None:
                return await _page_of(_operate(operation, head, peer_host))
            if page is None or head.method not in ("GET", "HEAD"):
                return plain(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only", allow="GET, HEAD")
            return await _page_of(page())
        except Exception:  # a bug in a page must not end the server; it is logged with its traceback
            logger.exception("the HTTP page %s failed", head.path)
            return plain(HTTPStatus.INTERNAL_SERVER_ERROR, "see the log")

    async def _write(self, writer: asyncio.StreamWriter, page: Page, *, with_body: bool, keeps_alive: bool) -> None:
        lines = [
            f"HTTP/1.1 {page.status.value} {page.status.phrase}",
            f"Content-Type: {page.content_type}",
            f"Content-Length: {len(page.body)}",
            "Cache-Control: no-store",
            f"Connection: {'keep-alive' if keeps_alive else 'close'}",
        ]
        if page.content_type.startswith("text/html"):
            lines.append("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'")
        if page.allow:
            lines.append(f"Allow: {page.allow}")
        head = "\r\n".join(lines).encode("latin-1") + _END_OF_HEAD
        body = page.body if with_body else b""
        async with asyncio.timeout(self._write_timeout_s):
            writer.write(head + body[:BYTES_PER_WRITE])
            await writer.drain()
            for start in range(BYTES_PER_WRITE, len(body), BYTES_PER_WRITE):
                await asyncio.sleep(0)  # other requests run, even if the kernel accepts everything immediately
                writer.write(body[start : start + BYTES_PER_WRITE])
                await writer.drain()


def parse_head(data: bytes) -> _Head:
    """Parse the head: method, path and query, headers, whether the connection stays open. Raises BadRequest."""
    lines = data[: -len(_END_OF_HEAD)].split(b"\r\n")
    parts = lines[0].split(b" ")
    if len(parts) != 3 or not parts[0].isalpha() or not parts[1].startswith(b"/"):
        raise BadRequest("this is not an HTTP request")
    method, target, version = parts
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest("HTTP/1.1 and HTTP/1.0 only")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name != name.strip():
            raise BadRequest("a header line is broken")
        if name.lower() in (b"content-length", b"host") and name.lower() in headers:
            raise BadRequest(f"{name.lower().decode()} comes twice")
        headers[name.lower()] = value.strip().lower()
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        raise BadRequest("requests with a body are not served")
    connection = headers.get(b"connection", b"")
    keeps_alive = connection != b"close" if version == b"HTTP/1.1" else connection == b"keep-alive"
    try:
        path, _, query = target.decode("ascii").partition("?")
    except UnicodeDecodeError:
        raise BadRequest("the path is not ASCII") from None
    is_from_a_page = b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"
    host = headers.get(b"host", b"").decode("latin-1")
    media_type = headers.get(b"content-type", b"").partition(b";")[0].strip()
    is_marked = MARK.encode() in headers or media_type == b"application/json"
    return _Head(method.decode("ascii").upper(), path, keeps_alive, query, is_from_a_page, host, is_marked)


async def _page_of(answer: Answer) -> Page:
    """Wait for the page."""
    if not isinstance(answer, Pending):
        return answer
    page: asyncio.Future[Page] = asyncio.get_running_loop().create_future()

    def done(pending: Pending[Page]) -> None:
        if page.done():
            return  # the peer has disconnected
        if pending.response is not None:
            page.set_result(pending.response)
        else:
            page.set_exception(pending.error or RuntimeError("there is no page"))

    answer.then(done)
    return await page


def _operate(operation: Callable[[Mapping[str, str]], Answer], head: _Head, peer_host: str) -> Answer:
    if head.method != "POST":
        return plain(HTTPStatus.METHOD_NOT_ALLOWED, "POST only", allow="POST")
    if not is_loopback(peer_host):
        return plain(HTTPStatus.FORBIDDEN, f"operations are asked from this machine, not from {peer_host}")
    if head.is_from_a_page:
        return plain(HTTPStatus.FORBIDDEN, "operations are not asked by web pages")
    if not head.is_marked:
        # A form of a web page can send neither; `Origin` alone would depend on the browser.
        return plain(
            HTTPStatus.FORBIDDEN, f"an operation needs a header `{MARK}: 1`, or Content-Type: application/json"
        )
    from urllib.parse import parse_qsl  # imported here, since most starts serve only pages

    try:
        fields = parse_qsl(
            head.query, keep_blank_values=True, strict_parsing=bool(head.query), max_num_fields=MAX_QUERY_FIELDS
        )
    except ValueError:
        return plain(HTTPStatus.BAD_REQUEST, "the query is broken")
    if len(dict(fields)) != len(fields):
        return plain(HTTPStatus.BAD_REQUEST, "a field of the query comes twice")
    return operation(dict(fields))


def plain(status: HTTPStatus, text: str, *, allow: str = "") -> Page:
    """A page of one line of text."""
    return Page(status, "text/plain; charset=utf-8", f"{status.value} {status.phrase}: {text}\n".encode(), allow)
