"""One TCP connection to a broker: requests go out as they come, answers are matched to them and decoded.

`send` writes at once and returns a future, so that many requests are under way together and their order is the order of
the calls. A broker answers in that order too; an answer that matches no request, that cannot be decoded, or that does
not come in time ends the connection, and with it every request on it (`ConnectionLost`), because what follows cannot be
trusted. The receive buffer grows with the bytes that came, not with the length that was announced; a frame is a buffer
of its own, so that records may be views into it for as long as someone holds them.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ottla.client.errors import ClientTimeout, ConnectionLost, KafkaError, UnsupportedByBroker
from ottla.client.metrics import ConnectionMetrics
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.framing import SIZE_BYTES, frame, frame_size_bytes
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode_buffers
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.client.options import ClientOptions
    from ottla.protocol.types import Buffer

SOFTWARE_NAME = "ottla"
SOFTWARE_VERSION = __version__.replace("+", "-")
"""The package's version, in the characters that brokers allow (KIP-511)."""
_HEAD_BYTES = 64 * 1024
_FIRST_BODY_BYTES = 1024 * 1024
_MAX_CORRELATION_ID = 2**31 - 1
OLDEST_USED = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1}
"""Older ones carry messages of formats before v2, or answer with lists of offsets."""
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_ERROR_CODE = struct.Struct(">h")

R = TypeVar("R", bound=Response)


class _Waiting(Generic[R]):
    """A request whose answer is awaited."""

    __slots__ = ("answer", "api_key", "response", "sent_at", "timer", "version")

    def __init__(
        self, api_key: int, version: int, response: type[R], answer: asyncio.Future[R], sent_at: float
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.response = response
        self.answer = answer
        self.sent_at = sent_at
        self.timer: asyncio.TimerHandle | None = None


class Connection(asyncio.BufferedProtocol):
    """See the module. Made by `connect`; `is_open` until `close` or the end of the socket."""

    def __init__(self, address: str, options: ClientOptions, metrics: ConnectionMetrics | None = None) -> None:
        self.address = address
        self.is_open = False
        self.is_writable = True
        """Whether the socket takes bytes; a sender that does not wait for answers has to look."""
        self.on_writable: Callable[[], None] | None = None
        """Called once when `is_writable` is true again, or the connection is not open any more."""
        self.versions: dict[int, tuple[int, int]] = {}
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._metrics = metrics or ConnectionMetrics(self._loop.time())
        self._used_at = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting[Response]] = {}
        self._correlation_id = 0
        self._head = bytearray(_HEAD_BYTES)
        self._filled = 0
        self._body: bytearray | None = None
        self._body_bytes = 0

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    # Requests ---------------------------------------------------------------------------------------------------

    def version_for(self, request: type[Request], at_most: int = 2**15 - 1) -> int:
        """Return the highest version of an API that both sides know; raises UnsupportedByBroker when there is none."""
        ours = REGISTRY[request.message_key]
        oldest = OLDEST_USED.get(ours.key, ours.min_version)
        lowest, highest = self.versions.get(request.message_key, (1, 0))
        version = min(ours.max_version, highest, at_most)
        if version < max(oldest, lowest):
            theirs = f"{lowest}-{highest}" if highest >= lowest else "none"
            raise UnsupportedByBroker(
                f"{ours.name}: the broker at {self.address} speaks versions {theirs}, "
                f"this client {oldest}-{min(ours.max_version, at_most)}"
            )
        return version

    def send(
        self, request: Request, response: type[R], version: int, timeout_ms: int | None = None
    ) -> asyncio.Future[R]:
        """Write a request and return the future of its answer.

        The future ends in ConnectionLost when the connection does, in ClientTimeout when no answer comes within
        `timeout_ms` (None: `request_timeout_ms`), which also ends the connection. Cancelling it lets the answer come
        and drops it. Raises ConnectionLost at once when the connection is not open.
        """
        correlation_id = self._write(request, version)
        answer: asyncio.Future[R] = self._loop.create_future()
        waiting = _Waiting(request.message_key, version, response, answer, self._used_at)
        limit_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        waiting.timer = self._loop.call_later(limit_ms / 1000, self._on_timeout, correlation_id, limit_ms)
        self._waiting[correlation_id] = waiting  # type: ignore[assignment]  # a _Waiting[R] for some R: its own decode fills it
        return answer

    def send_only(self, request: Request, version: int) -> None:
        """Write a request that has no answer (Produce with acks=0); raises ConnectionLost when not open."""
        self._write(request, version)

    def _write(self, request: Request, version: int) -> int:
        if not self.is_open or self._transport is None:
            raise ConnectionLost(f"not connected to {self.address}")
        correlation_id = self._correlation_id
        self._correlation_id = 0 if correlation_id == _MAX_CORRELATION_ID else correlation_id + 1
        header = encode_request_header(request.message_key, version, correlation_id, self._options.client_id)
        buffers = frame([header, *encode_buffers(request, version)])
        self._transport.writelines(buffers)
        self._used_at = self._loop.time()
        self._metrics.sent_bytes.add(sum(map(len, buffers)), self._used_at)
        return correlation_id

    def _on_timeout(self, correlation_id: int, limit_ms: int) -> None:
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            return
        name = REGISTRY[waiting.api_key].name
        if not waiting.answer.done():
            waiting.answer.set_exception(ClientTimeout(f"{self.address} did not answer {name} within {limit_ms} ms"))
        self.close(f"{name} was not answered within {limit_ms} ms")

    # The life of the socket -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        self._metrics.connections.add(1, self._loop.time())
        self._size_socket_buffers(transport)
        self._watch_idleness()

    def _size_socket_buffers(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("socket")
        sizes = (
            (socket.SO_SNDBUF, self._options.send_buffer_bytes),
            (socket.SO_RCVBUF, self._options.receive_buffer_bytes),
        )
        for which, size_bytes in sizes:
            if size_bytes >= 0 and peer is not None:
                peer.setsockopt(socket.SOL_SOCKET, which, size_bytes)

    def _watch_idleness(self) -> None:
        """Close the connection when no request used it for `connections_max_idle_ms`; look again if one did."""
        limit_s = self._options.connections_max_idle_ms / 1000
        if limit_s <= 0 or not self.is_open:
            return
        now = self._loop.time()
        used_at = now if self._waiting else self._used_at
        if now - used_at >= limit_s:
            self.close("nobody used the connection for connections_max_idle_ms")
            return
        self._idle_timer = self._loop.call_at(used_at + limit_s, self._watch_idleness)

    def pause_writing(self) -> None:
        """Called by asyncio: the broker reads more slowly than we write."""
        self.is_writable = False

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self.is_writable = True
        self._tell_writer()

    def _tell_writer(self) -> None:
        callback, self.on_writable = self.on_writable, None
        if callback is not None:
            callback()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self.close(str(exc) if exc else "the broker closed the connection")
        if not self.closed.done():
            self.closed.set_result(None)

    def finish(self) -> None:
        """Take no more requests and let those that are written leave: the broker ends the connection behind them.

        `closed` tells when it has; `close` ends a connection that takes too long.
        """
        if self.is_open and self._transport is not None:
            self._end_use()
            self._transport.write_eof()

    def close(self, reason: str = "the client closed the connection") -> None:
        """End the connection now; whatever waits ends in ConnectionLost with the reason."""
        if self.is_open:
            self._end_use()
        if self._transport is not None:
            self._transport.abort()
        self._tell_writer()
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for request in waiting:
            if request.timer is not None:
                request.timer.cancel()
            if not request.answer.done():
                request.answer.set_exception(ConnectionLost(f"{self.address}: {reason}"))
                request.answer.exception()  # seen: whoever asked may be gone, which is nothing to complain about

    def _end_use(self) -> None:
        self.is_open = False
        self._metrics.connections_closed.add(1, self._loop.time())
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    # Answers ----------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio: where the next bytes go."""
        if self._body is not None:
            return memoryview(self._body)[self._filled :]
        return memoryview(self._head)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio: so many bytes came."""
        if not self.is_open:
            return
        self._filled += nbytes
        try:
            if self._body is None:
                self._take_frames()
            elif self._filled == len(self._body):
                self._grow_or_finish(self._body)
        except MalformedMessage as malformed:
            self.close(f"the broker's answer makes no sense: {malformed}")

    def _take_frames(self) -> None:
        """Dispatch every whole frame of the head; a partial one moves to a body of its own."""
        head, filled, position = self._head, self._filled, 0
        limit = self._options.receive_message_max_bytes
        while self.is_open and filled - position >= SIZE_BYTES:
            size_bytes = frame_size_bytes(memoryview(head)[:filled], position, limit)
            if size_bytes is None:
                break
            position += SIZE_BYTES
            if position + size_bytes <= filled:
                self._dispatch(bytes(head[position : position + size_bytes]))
                position += size_bytes
                continue
            self._body = bytearray(min(size_bytes, _FIRST_BODY_BYTES))
            self._body_bytes = size_bytes
            self._filled = filled - position
            self._body[: self._filled] = memoryview(head)[position:filled]
            return
        rest = filled - position
        head[:rest] = head[position:filled]
        self._filled = rest

    def _grow_or_finish(self, body: bytearray) -> None:
        if len(body) < self._body_bytes:
            # Not resized in place: asyncio still holds a view of it.
            larger = bytearray(min(self._body_bytes, 2 * len(body)))
            larger[: len(body)] = body
            self._body = larger
            return
        self._body = None
        self._filled = 0
        self._dispatch(body)

    def _dispatch(self, data: Buffer) -> None:
        if len(data) < SIZE_BYTES:
            raise MalformedMessage(f"a response of {len(data)} bytes has no correlation id")
        correlation_id = int.from_bytes(data[:4], "big", signed=True)
        waiting = self._waiting.get(correlation_id)
        if waiting is None:
            raise MalformedMessage(f"it has correlation id {correlation_id}, which no request has")
        answer = waiting.answer
        now = self._loop.time()
        self._metrics.received_bytes.add(SIZE_BYTES + len(data), now)
        self._metrics.latency_ms.add((now - waiting.sent_at) * 1000, now)
        if not answer.done():
            message = _decode_answer(waiting, data)
            answer.set_result(message)
        del self._waiting[correlation_id]
        if waiting.timer is not None:
            waiting.timer.cancel()


def _decode_answer(waiting: _Waiting[Response], data: Buffer) -> Response:
    _, position = decode_response_header(waiting.api_key, waiting.version, data)
    version = waiting.version
    if waiting.api_key == ApiKey.API_VERSIONS and len(data) >= position + 2:
        # A broker that does not know the version answers in version 0 (KIP-511).
        (code,) = _ERROR_CODE.unpack_from(data, position)
        version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
    return decode(waiting.response, data, version, position)


async def connect(host: str, port: int, options: ClientOptions, metrics: ConnectionMetrics | None = None) -> Connection:
    """Connect, agree on versions, and return the open connection.

    Raises ConnectionLost, ClientTimeout, or KafkaError when the broker refuses.
    """
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    limit_ms = options.socket_connection_setup_timeout_ms
    try:
        async with asyncio.timeout(limit_ms / 1000):
            _, connection = await loop.create_connection(lambda: Connection(address, options, metrics), host, port)
    except TimeoutError:
        raise ClientTimeout(f"{address} did not accept a connection within {limit_ms} ms") from None
    except OSError as failed:
        raise ConnectionLost(f"cannot connect to {address}: {_reason(failed)}") from None
    except (ValueError, OverflowError) as failed:  # brokers tell addresses, and not all that they tell can be one
        raise ConnectionLost(f"{address!r} is no address: {failed}") from None
    try:
        connection.versions = await _negotiate(connection, limit_ms)
    except BaseException:
        connection.close()
        raise
    return connection


def _reason(failed: OSError) -> str:
    """Why there is no connection, in the system's words: asyncio has its own, and strings those of a name's several
    addresses together.
    """
    if isinstance(failed, socket.gaierror):
        return failed.strerror or str(failed)
    numbers = [failed.errno] if failed.errno else [int(number) for number in _ERRNO.findall(str(failed))]
    return ", ".join(dict.fromkeys(os.strerror(number) for number in numbers)) or str(failed)


async def _negotiate(connection: Connection, timeout_ms: int) -> dict[int, tuple[int, int]]:
    request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
    answer = await connection.send(request, ApiVersionsResponse, 3, timeout_ms)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = await connection.send(ApiVersionsRequest(), ApiVersionsResponse, 0, timeout_ms)
    if answer.error_code:
        code = ErrorCode.of(answer.error_code)
        raise KafkaError(code, f"{connection.address} refused ApiVersions: {code.message}")
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
