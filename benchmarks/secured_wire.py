"""The client of a secured broker for `secured.py`: prepared frames over TLS and after SASL, by plain blocking sockets.

Only the broker's CPU counts, so a client in Python is enough. `load.c` has neither TLS nor SASL.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TypeVar

import frames
from transactions import answered, frame

from ottla.client_core.sasl import Login, converse
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

WAIT_S = 60.0
RECEIVE_BYTES = 1 << 20
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2

R = TypeVar("R", bound=Response)
_INT16, _INT64 = struct.Struct(">h"), struct.Struct(">q")


class Refused(Exception):
    """The broker answered an error."""


@dataclass(frozen=True)
class Access:
    """How a client reaches a broker: by TLS, with a login, or neither."""

    context: ssl.SSLContext | None = None
    login: Login | None = None


@dataclass
class Round:
    """The times of a round of requests, as the client sees them."""

    sent_bytes: int = 0
    received_bytes: int = 0
    times_s: list[float] = field(default_factory=list)
    """From the first byte that is passed to the kernel to the last of the answer."""


class Wire:
    """One connection, logged in."""

    def __init__(self, host: str, port: int, access: Access) -> None:
        plain = socket.create_connection((host, port), WAIT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if access.context is None else access.context.wrap_socket(plain, server_hostname=host)
        self._room = memoryview(bytearray(RECEIVE_BYTES))
        self._start = self._end = 0
        if access.login is not None:
            try:
                self._log_in(access.login)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _log_in(self, login: Login) -> None:
        handshake = self._ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION)
        if handshake.error_code:
            raise Refused(ErrorCode.of(handshake.error_code).name)
        conversation = converse(login, f"{time.perf_counter_ns():x}")
        token = next(conversation)
        while True:
            answer = self._ask(
                SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, AUTHENTICATE_VERSION
            )
            if answer.error_code:
                raise Refused(f"{ErrorCode.of(answer.error_code).name} {answer.error_message or ''}")
            try:
                token = conversation.send(answer.auth_bytes)
            except StopIteration:
                return

    def _ask(self, request: Request, kind: type[R], version: int) -> R:
        self._socket.sendall(frame(request, version))
        head, size = self._answer(RECEIVE_BYTES)
        assert len(head) == size
        return answered(head[4:], kind, version)

    def _answer(self, wanted: int) -> tuple[bytes, int]:
        """The first `wanted` bytes of the next answer, with its length before them, and the size of the whole."""
        head = bytearray()
        size, missing = 0, 4
        while missing or not size:
            if self._start == self._end:
                count = self._socket.recv_into(self._room)
                if not count:
                    raise Refused("the broker closed the connection")
                self._start, self._end = 0, count
            piece = self._room[self._start : min(self._end, self._start + missing)]
            head += piece[: max(0, wanted + 4 - len(head))]
            self._start += len(piece)
            missing -= len(piece)
            if not missing and not size:
                missing = int.from_bytes(head, "big")
                size = 4 + missing
        return bytes(head), size

    def run(self, exchange: frames.Exchange, inflight: int, requests: int, step: int = 0, span: int = 0) -> Round:
        """Send a request `requests` times, with `inflight` in flight; a Fetch requests the `step` records after the
        last ones, and begins again after `span`. Raises Refused for an answer with an error.
        """
        data = bytearray(exchange.frame)
        done, left, offset = Round(), requests, 0
        under_way: deque[float] = deque()
        while left or under_way:
            while left and len(under_way) < inflight:
                if exchange.offset_at >= 0:
                    _INT64.pack_into(data, exchange.offset_at, offset)
                    offset = (offset + step) % span
                under_way.append(time.perf_counter())
                self._socket.sendall(data)
                done.sent_bytes += len(data)
                left -= 1
            head, size = self._answer(exchange.error_at + 2)
            done.times_s.append(time.perf_counter() - under_way.popleft())
            done.received_bytes += size
            (code,) = _INT16.unpack_from(head, exchange.error_at)
            if code:
                raise Refused(ErrorCode.of(code).name)
        return done
