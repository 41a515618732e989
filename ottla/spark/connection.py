"""One blocking connection to one broker: the driver of `ottla.client_core.exchange` over a socket, every wait bounded.

`send` and `receive` are apart so that a request can be on its way while the last response is decoded. Responses come in
the order of the requests; one with another correlation id, or larger than MAX_RESPONSE_BYTES, ends the connection.
A response is read, without a copy, into its own numpy buffer with PADDING_BYTES behind it (see ottla.arrow.varints).
numpy leaves that memory untouched, so what is announced costs address space only, and memory as bytes arrive.

Any OSError (TimeoutError, refused, reset), and BrokerUnavailable when the peer closes, means: this connection is over.
"""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ottla.arrow.varints import PADDING_BYTES
from ottla.client_core.exchange import Answer, Exchange
from ottla.client_core.frames import FrameReader
from ottla.client_core.handshake import HandshakeRefused, negotiate
from ottla.client_core.versions import ANY_VERSION, OLDEST_USED, NoCommonVersion, newest_common
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES
from ottla.protocol.message import Request, Response
from ottla.spark.errors import BrokerUnavailable, ProtocolFailure
from ottla.version import __version__

if TYPE_CHECKING:
    import numpy.typing as npt

    from ottla.protocol.types import Buffer
    from ottla.spark.client_options import ClientSettings
    from ottla.spark.option_values import Address

MAX_RESPONSE_BYTES = 512 * 1024 * 1024
"""Far above what a Fetch asks for, since one batch is returned whole however large it is."""

SOFTWARE_NAME = "ottla-spark"

OLDEST_METADATA = 4
"""An older Metadata cannot say that looking at a topic must not create it."""
_OLDEST_USED = {**OLDEST_USED, ApiKey.METADATA: OLDEST_METADATA}

R = TypeVar("R", bound=Response)


class Connection:
    """Connects at once; raises OSError or BrokerUnavailable without a broker, ProtocolFailure when it is none."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._timeout_s = settings.request_timeout_ms / 1000
        # Only sizes are read ahead of their frames, and a frame's buffer is made whole at once: no byte is copied.
        frames = FrameReader(
            MAX_RESPONSE_BYTES, allocate=_padded, head_bytes=SIZE_BYTES, first_body_bytes=MAX_RESPONSE_BYTES
        )
        self._exchange: Exchange[bool] = Exchange(
            settings.client_id,
            frames,
            negotiate(SOFTWARE_NAME, __version__),
            handshake_timeout_s=self._timeout_s,
            in_order=True,
        )
        self._socket = socket.create_connection(
            (address.host, address.port), timeout=settings.connect_timeout_ms / 1000
        )
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if settings.receive_buffer_bytes > 0:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
            self._exchange.begin(time.monotonic())
            while not self._exchange.is_ready:
                self._flush()
                self._read_answer()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the socket; answers still under way are lost."""
        self._socket.close()

    def version(self, api_key: ApiKey, at_most: int = ANY_VERSION) -> int:
        """Return the newest version that both sides speak, and not above `at_most`.

        Raises ProtocolFailure when there is none.
        """
        try:
            return newest_common(self._exchange.versions, api_key, at_most, _OLDEST_USED)
        except NoCommonVersion as none:
            raise ProtocolFailure(
                f"{self._address} does not speak {none.api_name} {none.oldest} to {none.newest}; "
                "this source needs Kafka 0.11 or later"
            ) from None

    def call(self, request: Request, response: type[R]) -> R:
        """Send a request and wait for its response."""
        self.send(request)
        return self.parse(self.receive(), response)

    def send(self, request: Request, version: int | None = None, wait_ms: int = 0) -> None:
        """Send a request at `version` (the newest if None); `wait_ms` is what the broker may take on purpose."""
        if version is None:
            version = self.version(ApiKey(type(request).message_key))
        now = time.monotonic()
        self._exchange.send(request, version, now, now + self._timeout_s + wait_ms / 1000, True)
        self._flush()

    def receive(self) -> Answer[bool]:
        """Wait for the response to the oldest request that has none yet."""
        while (answer := self._read_answer()) is None:
            pass
        return answer

    def parse(self, answer: Answer[bool], response: type[R]) -> R:
        """Decode a response; its records are views of the received buffer."""
        try:
            return answer.decode(response)
        except MalformedMessage as broken:
            raise self._no_broker(broken) from None

    def _flush(self) -> None:
        if self._exchange.has_bytes_to_send:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join(self._exchange.bytes_to_send()))

    def _read_answer(self) -> Answer[bool] | None:
        """Read once, and return the answer that is whole with it, if one is."""
        left = (self._exchange.next_deadline() or 0.0) - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no answer within {self._settings.request_timeout_ms} ms")
        self._socket.settimeout(left)
        count = self._socket.recv_into(self._exchange.buffer())
        if not count:
            raise BrokerUnavailable(f"{self._address} closed the connection")
        try:
            # At most one: no byte of the next frame is read before this one is whole.
            answers = list(self._exchange.receive(count, time.monotonic()))
        except MalformedMessage as broken:
            raise self._no_broker(broken) from None
        except HandshakeRefused as refused:
            raise ProtocolFailure(f"{self._address} refused {refused.step}: {refused.code.name}") from None
        return answers[0] if answers else None

    def _no_broker(self, broken: MalformedMessage) -> ProtocolFailure:
        return ProtocolFailure(f"{self._address} does not answer as a Kafka broker: {broken}")


def _padded(size_bytes: int) -> Buffer:
    return np.empty(size_bytes + PADDING_BYTES, np.uint8).data


def buffer_of(answer: Answer[bool]) -> npt.NDArray[np.uint8]:
    """Return the buffer that an answer was read into, which has padding behind the answer."""
    exporter: npt.NDArray[np.uint8] = memoryview(answer.data).obj  # type: ignore[assignment]  # `_padded` made it
    return exporter
