"""A connection as a state machine over bytes: requests become bytes to send, received bytes become answers.

`begin` starts the handshake, whose requests appear in `bytes_to_send` like all others. When it is done `is_ready` is
true, and `send` takes requests. Each gets a correlation id and a deadline, and is in flight until its answer comes, the
driver calls `end`, or `overdue` reports that it waited too long. Answers are matched by correlation id. Brokers answer
in the order of the requests; `in_order` checks that.

`begin_again` starts another handshake on a connection that is ready, by which a client logs in again before its session
ends (KIP-368). A broker accepts no other request during it, so later requests are held back until it is done; the
answers to earlier requests still come.

A violation of the protocol raises MalformedMessage: a frame of an impossible size, an answer to no request, a body that
cannot be decoded. The bytes after it cannot be trusted, so the driver then ends the connection: `end` returns the
requests in flight; whether the broker has acted on them is unknown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from ottla.client_core.handshake import Settled
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.framing import frame
from ottla.protocol.headers import decode_response_header, encode_request_header, has_response_tags
from ottla.protocol.message import Request, Response, decode, encode_buffers

if TYPE_CHECKING:
    from ottla.client_core.frames import FrameReader
    from ottla.client_core.handshake import Handshake, Question, Versions
    from ottla.protocol.types import Buffer

MAX_CORRELATION_ID = 2**31 - 1
MAX_HANDSHAKE_FRAME_BYTES = 1024 * 1024
"""The limit of an answer before the first handshake is done: until then the listener may be no broker."""
_CORRELATION_ID = struct.Struct(">i")
_read_correlation_id = _CORRELATION_ID.unpack_from
_ERROR_CODE = struct.Struct(">h")
_BARE_HEADER_BYTES = _CORRELATION_ID.size + 1
"""The size of a header whose section of tagged fields is empty."""

C = TypeVar("C")
R = TypeVar("R", bound=Response)


class InFlight(Generic[C]):
    """A request that waits for its answer. `context` is the driver's, None for a request of the handshake."""

    __slots__ = ("api_key", "context", "correlation_id", "deadline", "has_tagged_answer", "sent_at", "version")

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        sent_at: float,
        deadline: float,
        context: C | None,
        *,
        has_tagged_answer: bool,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.sent_at = sent_at
        self.deadline = deadline
        self.context = context
        self.has_tagged_answer = has_tagged_answer
        """Whether the answer's header has tagged fields."""


class RequestTemplate(Protocol):
    """The bytes of a request, encoded once, except for the parts that vary."""

    def frame(self, correlation_id: int, varying: Buffer, /) -> list[Buffer]:
        """Return the buffers of a request, its size included."""


class Answer(NamedTuple, Generic[C]):
    """The bytes that answer a request. `data` is the whole frame; it may be a view of the frame reader's buffer."""

    request: InFlight[C]
    data: Buffer
    body_position: int

    def decode(self, response: type[R]) -> R:
        """Return the message; its records are views of `data`. Raises MalformedMessage."""
        version = self.request.version
        if self.request.api_key == ApiKey.API_VERSIONS and len(self.data) >= self.body_position + 2:
            # A broker that does not know the version answers in version 0; each version begins with the code (KIP-511).
            (code,) = _ERROR_CODE.unpack_from(self.data, self.body_position)
            version = 0 if code == ErrorCode.UNSUPPORTED_VERSION else version
        return decode(response, self.data, version, self.body_position)


class Exchange(Generic[C]):
    """See the module. `frames` reads the broker's bytes; `handshake_timeout_s` is for each request of a handshake."""

    def __init__(
        self,
        client_id: str,
        frames: FrameReader,
        handshake: Handshake,
        *,
        handshake_timeout_s: float,
        in_order: bool = False,
    ) -> None:
        self.is_ready = False
        """Whether the handshake is done."""
        self.versions: Versions = {}
        """The versions that the broker accepts, after the handshake."""
        self.features: dict[str, int] = {}
        """The finalized level of each feature, as the broker reported it when the connection was made."""
        self.session_lifetime_ms = 0
        """How long the broker accepts requests after the handshake; 0: without end."""
        self.in_flight: dict[int, InFlight[C]] = {}
        """The requests that wait for answers, by correlation id, oldest first."""
        self._client_id = client_id
        self._frames = frames
        self._handshake = handshake
        self._handshake_timeout_s = handshake_timeout_s
        self._question: Question | None = None
        self._asked_by = -1
        """The correlation id of the handshake's question."""
        self._in_order = in_order
        self._next_correlation_id = 0
        self._outgoing: list[Buffer] = []
        """The buffers that `bytes_to_send` returns."""
        self._requests = self._outgoing
        """The list for new requests: the same one, but during a later handshake a list that waits for its end."""

    # Out --------------------------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Start the handshake."""
        self._frames.limit(MAX_HANDSHAKE_FRAME_BYTES)
        self._continue(None, now)

    def begin_again(self, handshake: Handshake, now: float) -> None:
        """Start another handshake on a connection that is ready; `is_settling` until it is done."""
        if not self.is_ready or self.is_settling:
            raise RuntimeError("another handshake before the end of the first")
        # Its first answer comes after those to earlier requests, and a broker may delay one of these on purpose.
        now = max([now, *(request.deadline for request in self.in_flight.values())])
        self._handshake = handshake
        self._requests = []
        self._continue(None, now)

    @property
    def is_settling(self) -> bool:
        """Whether a handshake is in progress."""
        return self._question is not None

    @property
    def settled(self) -> Settled:
        """The result of the last handshake."""
        return Settled(self.versions, self.features, self.session_lifetime_ms)

    def send(self, request: Request, version: int, now: float, deadline: float, context: C) -> InFlight[C]:
        """Add a request to the bytes to send; its answer is due at `deadline`. Raises UnencodableMessage."""
        if not self.is_ready:
            raise RuntimeError("a request before the end of the handshake")
        return self._put(self._requests, request, version, now, deadline, context)

    def send_template(self, request: InFlight[C], template: RequestTemplate, varying: Buffer) -> list[Buffer]:
        """As `send`, for a request from a template with its varying part; return the buffers to send now.

        They are those that `bytes_to_send` would return. `request` is complete except for its correlation id.
        """
        if not self.is_ready:
            raise RuntimeError("a request before the end of the handshake")
        correlation_id = self.take_correlation_id()
        buffers = template.frame(correlation_id, varying)
        request.correlation_id = correlation_id
        self.in_flight[correlation_id] = request
        if self._outgoing or self._requests is not self._outgoing:
            self._requests += buffers
            return self.bytes_to_send()
        return buffers

    def take_correlation_id(self) -> int:
        """Return the correlation id of the next request, which the driver frames; an id may stay unused.

        The driver puts the request into `in_flight` in the same step.
        """
        correlation_id = self._next_correlation_id
        self._next_correlation_id = 0 if correlation_id == MAX_CORRELATION_ID else correlation_id + 1
        return correlation_id

    def send_only(self, request: Request, version: int) -> None:
        """Add a request that has no answer (Produce with acks=0) to the bytes to send."""
        if not self.is_ready:
            raise RuntimeError("a request before the end of the handshake")
        self._encode(self._requests, request, version)

    @property
    def has_bytes_to_send(self) -> bool:
        """Whether `bytes_to_send` returns any."""
        return bool(self._outgoing)

    def bytes_to_send(self) -> list[Buffer]:
        """Return the buffers to send now, in order; they then count as sent."""
        buffers = self._outgoing[:]
        self._outgoing.clear()
        return buffers

    def _put(
        self,
        outgoing: list[Buffer],
        request: Request,
        version: int,
        now: float,
        deadline: float,
        context: C | None,
    ) -> InFlight[C]:
        correlation_id = self._encode(outgoing, request, version)
        has_tags = has_response_tags(request.message_key, version)
        sent = InFlight(
            request.message_key, version, correlation_id, now, deadline, context, has_tagged_answer=has_tags
        )
        self.in_flight[correlation_id] = sent
        return sent

    def _encode(self, outgoing: list[Buffer], request: Request, version: int) -> int:
        correlation_id = self._next_correlation_id
        header = encode_request_header(request.message_key, version, correlation_id, self._client_id)
        outgoing += frame([header, *encode_buffers(request, version)])
        self._next_correlation_id = 0 if correlation_id == MAX_CORRELATION_ID else correlation_id + 1
        return correlation_id

    # In ---------------------------------------------------------------------------------------------------------

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes from the broker; never empty."""
        return self._frames.buffer()

    def receive(self, count: int, now: float) -> Iterable[Answer[C]]:
        """Note that `count` bytes are in `buffer`; return the answers that are complete now, including the handshake's.

        Iterate to the end, unless the connection is given up. Raises MalformedMessage, and HandshakeRefused, after the
        answers before it.
        """
        if self._question is None:
            data = self._frames.received_alone(count)
            if data is not None:
                return (self._match(data),)
            count = 0
        return self._receive(count, now)

    def _receive(self, count: int, now: float) -> Iterator[Answer[C]]:
        for data in self._frames.received(count):
            answer = self._match(data)
            yield answer
            if self._question is not None and answer.request.correlation_id == self._asked_by:
                self._continue(answer.decode(self._question.response), now)

    def _match(self, data: Buffer) -> Answer[C]:
        (correlation_id,) = _read_correlation_id(data)
        if self._in_order and self.in_flight and correlation_id != (due := next(iter(self.in_flight))):
            raise MalformedMessage(f"it answered request {correlation_id}, not {due}")
        request = self.in_flight.get(correlation_id)
        if request is None:
            raise MalformedMessage(f"it has correlation id {correlation_id}, which no request has")
        if request.has_tagged_answer and len(data) > _CORRELATION_ID.size and not data[4]:
            body_position = _BARE_HEADER_BYTES  # as in nearly every answer
        else:
            _, body_position = decode_response_header(request.api_key, request.version, data)
        del self.in_flight[correlation_id]
        return tuple.__new__(Answer, (request, data, body_position))

    def _continue(self, message: Response | None, now: float) -> None:
        """Take a step of the handshake: pass it the answer to its last request, and send its next request."""
        try:
            # A generator that has not begun takes None, which its type cannot express.
            question = next(self._handshake) if message is None else self._handshake.send(message)
        except StopIteration as done:
            self.versions, self.features, self.session_lifetime_ms = done.value
            self._question = None
            self.is_ready = True
            self._frames.limit(None)
            if self._requests is not self._outgoing:
                self._outgoing += self._requests
                self._requests = self._outgoing
            return
        self._question = question
        deadline = now + self._handshake_timeout_s
        asked = self._put(self._outgoing, question.request, question.version, now, deadline, None)
        self._asked_by = asked.correlation_id

    # The end ----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when the first answer becomes overdue, None when no request waits."""
        return min((request.deadline for request in self.in_flight.values()), default=None)

    def overdue(self, now: float) -> InFlight[C] | None:
        """Return the oldest request whose answer did not come in time; the connection cannot be used after that."""
        return next((request for request in self.in_flight.values() if request.deadline <= now), None)

    def give_up(self, request: InFlight[C]) -> None:
        """Remove a request from those in flight; its answer would then violate the protocol."""
        self.in_flight.pop(request.correlation_id, None)

    def end(self) -> list[InFlight[C]]:
        """Return the requests in flight: the connection has ended, and whether the broker acted on them is unknown."""
        lost = list(self.in_flight.values())
        self.in_flight.clear()
        return lost
