"""Raw frames over a socket: for what no well-behaved client would send."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, decode, encode

PATIENCE_S = 30.0


class Wire:
    """One blocking connection to a broker. Every read has a bound, so a broker that hangs fails the test."""

    def __init__(self, port: int, client_id: str = "wire") -> None:
        self._client_id = client_id
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, content: bytes) -> None:
        """Bytes as they are, without a length before them."""
        self.socket.sendall(content)

    def send_frame(self, content: bytes) -> None:
        """One length-prefixed frame."""
        self.send(struct.pack(">i", len(content)) + content)

    def send_request(self, message: Request, version: int) -> int:
        """A request of Ottla's own classes; returns its correlation id."""
        self._correlation_id += 1
        header = encode_request_header(type(message).message_key, version, self._correlation_id, self._client_id)
        self.send_frame(header + encode(message, version))
        return self._correlation_id

    def read_frame(self) -> bytes:
        """The content of the next frame; `ConnectionError` when the broker hung up."""
        (size,) = struct.unpack(">i", self._read_exactly(4))
        return self._read_exactly(size)

    def _read_exactly(self, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            piece = self.socket.recv(count - len(content))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            content += piece
        return bytes(content)

    def call(self, message: Request, version: int) -> Any:
        """Send a request and decode its response."""
        self.send_request(message, version)
        return self.read_answer(type(message), version)

    def read_answer(self, request: type[Request], version: int) -> Any:
        """The response to the request that was sent last, of which `request` is the class."""
        frame = self.read_frame()
        key = request.message_key
        found, position = decode_response_header(key, version, frame)
        assert found == self._correlation_id
        return decode(REGISTRY[ApiKey(key)].response, frame, version, position)

    def is_closed_by_peer(self) -> bool:
        """Whether the broker ends the connection, with nothing more sent."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
