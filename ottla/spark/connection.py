"""One blocking connection to one broker: versions agreed upon, requests out, responses in, everything with a deadline.

`send` and `receive` are apart so that a request can be on its way while the last response is decoded. Responses come in
the order of the requests; one with another correlation id, or larger than MAX_RESPONSE_BYTES, ends the connection.
A response lies in its own numpy buffer with PADDING_BYTES behind it (see ottla.spark.varints). numpy leaves that memory
untouched, so what is announced costs address space only, and memory as bytes arrive.

Any OSError (TimeoutError, refused, reset), and BrokerUnavailable when the peer closes, means: this connection is over.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.framing import SIZE_BYTES, frame, frame_size_bytes
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode_buffers
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure
from ottla.spark.varints import PADDING_BYTES
from ottla.version import __version__

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.spark.client_options import ClientSettings
    from ottla.spark.option_values import Address

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""Far above what a Fetch asks for, since one batch is returned whole however large it is."""

SOFTWARE_NAME = "ottla-spark"
SOFTWARE_VERSION = __version__.replace("+", "-")

_OLDEST_USED = {ApiKey.PRODUCE: 3, ApiKey.FETCH: 4, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 4}
"""Older ones carry messages of formats before v2, answer with lists of offsets, and in Metadata cannot say that looking
at a topic must not create it.
"""

R = TypeVar("R", bound=Response)


class Received(NamedTuple):
    """The bytes of a response: `buffer[:size_bytes]`, and padding behind them."""

    buffer: npt.NDArray[np.uint8]
    size_bytes: int
    version: int
    body_position: int


class _Sent(NamedTuple):
    api_key: ApiKey
    version: int
    correlation_id: int
    deadline: float


class Connection:
    """Connects at once; raises OSError or BrokerUnavailable without a broker, ProtocolFailure when it is none."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._in_flight: deque[_Sent] = deque()
        self._next_correlation_id = 0
        self._socket = socket.create_connection(
            (address.host, address.port), timeout=settings.connect_timeout_ms / 1000
        )
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._broker_versions = self._ask_versions()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket; answers still under way are lost."""
        self._socket.close()

    def version(self, api_key: ApiKey, at_most: int | None = None) -> int:
        """Return the newest version that both sides speak, and not above `at_most`.

        Raises ProtocolFailure when there is none.
        """
        api = REGISTRY[api_key]
        least, most = self._broker_versions.get(api_key, (0, -1))
        oldest = _OLDEST_USED.get(api_key, api.min_version)
        newest = min(api.max_version, most, api.max_version if at_most is None else at_most)
        if newest < max(oldest, least):
            raise ProtocolFailure(
                f"{self._address} does not speak {api.name} {oldest} to {api.max_version}; "
                "this source needs Kafka 0.11 or later"
            )
        return newest

    def call(self, request: Request, response: type[R]) -> R:
        """Send a request and wait for its response."""
        self.send(request)
        received = self.receive()
        return self.parse(received, response)

    def send(self, request: Request, version: int | None = None, wait_ms: int = 0) -> None:
        """Send a request at `version` (the newest if None); `wait_ms` is what the broker may take on purpose."""
        api_key = ApiKey(type(request).message_key)
        if version is None:
            version = self.version(api_key)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(api_key, version, correlation_id, self._settings.client_id)
        deadline = time.monotonic() + (self._settings.request_timeout_ms + wait_ms) / 1000
        self._socket.settimeout(self._settings.request_timeout_ms / 1000)
        self._socket.sendall(b"".join(frame([header, *encode_buffers(request, version)])))
        self._in_flight.append(_Sent(api_key, version, correlation_id, deadline))

    def receive(self) -> Received:
        """Wait for the response to the oldest request that has none yet."""
        sent = self._in_flight.popleft()
        size_field = bytearray(SIZE_BYTES)
        self._fill(memoryview(size_field), sent.deadline)
        try:
            size_bytes = frame_size_bytes(size_field, 0, MAX_RESPONSE_BYTES) or 0
            buffer = np.empty(size_bytes + PADDING_BYTES, np.uint8)
            self._fill(buffer.data[:size_bytes], sent.deadline)
            correlation_id, body = decode_response_header(sent.api_key, sent.version, buffer.data[:size_bytes])
        except MalformedMessage as broken:
            raise ProtocolFailure(f"{self._address} does not answer as a Kafka broker: {broken}") from None
        if correlation_id != sent.correlation_id:
            raise ProtocolFailure(f"{self._address} answered request {correlation_id}, not {sent.correlation_id}")
        return Received(buffer, size_bytes, sent.version, body)

    def parse(self, received: Received, response: type[R]) -> R:
        """Decode a response; its records are views of the received buffer."""
        try:
            return decode(
                response, received.buffer.data[: received.size_bytes], received.version, received.body_position
            )
        except MalformedMessage as broken:
            raise ProtocolFailure(f"{self._address} does not answer as a Kafka broker: {broken}") from None

    def _fill(self, target: memoryview, deadline: float) -> None:
        filled = 0
        while filled < len(target):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer within {self._settings.request_timeout_ms} ms")
            self._socket.settimeout(left)
            count = self._socket.recv_into(target[filled:])
            if not count:
                raise BrokerUnavailable(f"{self._address} closed the connection")
            filled += count

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """ApiVersions; a broker that does not know our newest version answers in version 0, and is asked again so."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        self.send(request, REGISTRY[ApiKey.API_VERSIONS].max_version)
        received = self.receive()
        if self._is_version_refusal(received):
            self.send(ApiVersionsRequest(), 0)
            received = self.receive()
        response = self.parse(received, ApiVersionsResponse)
        if response.error_code:
            raise ProtocolFailure(f"{self._address} refused ApiVersions: {ErrorCode.of(response.error_code).name}")
        return {item.api_key: (item.min_version, item.max_version) for item in response.api_keys}

    @staticmethod
    def _is_version_refusal(received: Received) -> bool:
        """The error code comes first at every version, so it can be read before it is known which version answers."""
        code = received.buffer[received.body_position : received.body_position + 2].tobytes()
        return code == int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
