"""Clients of a simulated broker: connections that send frames and take answers whenever the broker gives them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from kit.nodes import pass_time
from kit.transport import FakeTransport, feed

from ottla.broker.net.connections import Connections
from ottla.broker.net.read_pauses import THROTTLED
from ottla.broker.node import Node
from ottla.broker.principal import parse_principal
from ottla.broker.runtime.disk import POSTPONED_MS
from ottla.protocol.api import REGISTRY
from ottla.protocol.headers import decode_response_header, encode_request_header
from ottla.protocol.message import Request, Response, decode, encode

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.quota_meter import QuotaMeter
    from kit.simulator.users import User

Answered = Callable[[Response], None]
MOST_STEPS = 200
"""Turns in which an answer is made, at most."""
_LENGTH = struct.Struct(">i")


class LineTransport(FakeTransport):
    """What is written after the end goes nowhere, as on a socket."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep `data` for the client, if it is still there."""
        if not self.closed:
            super().write(data)


class Line:
    """One connection. Requests go out at once, answers are handed to their callbacks by `take`.

    `user`: whose it is, and who says whether an answer is one that this user may get; None where nobody asks.
    `meter`: which client it is to the quotas, and who says whether it waits as it has to; None for one without any.
    A frame that the broker does not read, because the client is over a quota, waits until it does.
    """

    def __init__(
        self, node: Node, connections: Connections, user: User | None = None, meter: QuotaMeter | None = None
    ) -> None:
        self._connection = connections.protocol("PLAINTEXT")
        self._transport = LineTransport() if user is None else LineTransport((user.who.host, 4242))
        self._connection.connection_made(self._transport)
        self._user = user
        if user is not None:
            self._connection.peer.principal = parse_principal(user.who.principal)
        self.written = self._transport.written
        """Answers that have come and were not taken yet."""
        self._meter = meter
        self._client_id = "simulated" if meter is None else meter.client_id
        self._unread = b""
        self._first_unread = 1
        """The correlation id from which on nothing has arrived as a whole."""
        self.is_corked = False
        """Whether frames are kept until `deliver`, so that one read brings them all."""
        self._correlation_id = 0
        self._asked: dict[int, tuple[int, int, Answered | None]] = {}

    def send(self, request: Request, version: int, then: Answered | None) -> None:
        """Let the frame arrive; `then(response)` once it is answered, None where no answer comes (acks=0)."""
        self._correlation_id += 1
        key = request.message_key
        if then is not None and self._user is not None:
            then = self._user.judged(request, then)
        body = encode_request_header(key, version, self._correlation_id, self._client_id) + encode(request, version)
        if self._meter is not None:
            then = self._meter.metered(key, len(body), then, is_alone=not self._asked)
        if then is not None:
            self._asked[self._correlation_id] = (key, version, then)
        self._unread += _LENGTH.pack(len(body)) + body
        if not self.is_corked:
            self.deliver()

    def deliver(self) -> None:
        """Let what was sent arrive, as far as the broker reads it."""
        if self._unread and not (self._transport.is_paused or self._transport.closed):
            data, self._unread = self._unread, b""
            self._unread = data[feed(self._connection, data) :]
            if not self._unread:
                self._first_unread = self._correlation_id + 1

    @property
    def is_held(self) -> bool:
        """Whether the broker has not read all that was sent."""
        return bool(self._unread)

    @property
    def is_answered(self) -> bool:
        """Whether all is answered that the broker has read."""
        return all(number >= self._first_unread for number in self._asked)

    @property
    def is_throttled(self) -> bool:
        """Whether the connection is muted for a quota."""
        return bool(self._connection.pause_reasons & THROTTLED)

    @property
    def waiting(self) -> int:
        """How many answers are still to come."""
        return len(self._asked)

    @property
    def is_closed(self) -> bool:
        """Whether the broker has ended the connection."""
        return self._transport.closed

    def take(self) -> None:
        """Hand over the answers that have come."""
        written = self._transport.written
        if not written:
            return
        data = bytes(written)
        written.clear()
        position = 0
        while position < len(data):
            (length,) = _LENGTH.unpack_from(data, position)
            body = data[position + 4 : position + 4 + length]
            position += 4 + length
            key, version, then = self._asked.pop(_LENGTH.unpack_from(body)[0])
            assert then is not None
            _, start = decode_response_header(key, version, body)
            then(decode(REGISTRY[key].response, body, version, start))

    def look(self) -> None:
        """Whether the connection is muted as it has to be, all answers taken. Raises Violation."""
        if self._meter is not None and not self.is_closed:
            self._meter.look(self)

    def end(self) -> None:
        """The client goes away."""
        if not self._transport.closed:
            self._transport.closed = True
        self._connection.connection_lost(None)


def settle(node: Node, line: Line) -> None:
    """Let the broker finish what it has under way, and its steps while anything of this line waits for them."""
    node.settle()
    line.take()
    for _ in range(MOST_STEPS):
        if not line.waiting:
            return
        node.run_due()
        node.settle()
        line.take()


def settle_postponed(node: Node, clock: ManualClock, line: Line) -> None:
    """As `settle`; if something of this line waits still, also let the time pass after which a sync is tried again that
    could not begin, because there was no descriptor.
    """
    settle(node, line)
    if line.waiting:
        pass_time(node, clock, POSTPONED_MS, step_ms=POSTPONED_MS)
        settle(node, line)
