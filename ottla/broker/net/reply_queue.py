"""The requests of one connection that are in flight, in the order in which they came, and the replies that may leave.

Replies leave in the order of their requests, whatever is done first. A reply that is there at once, and that nothing
stands in front of, never enters the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.broker.runtime.in_flight_request import InFlightRequest

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer


class ReplySender(Protocol):
    """A connection, as its queue sees it."""

    def replies_moved(self) -> None:
        """Replies may leave, or requests have been answered that have none."""

    def send_alone(self, reply: list[Buffer]) -> None:
        """The only request in flight has been answered, and no reply waits before it."""

    def close(self, reason: str) -> None:
        """An answer says that the connection must end."""


class _Ended:
    """What stands in place of a connection that has ended."""

    def replies_moved(self) -> None:
        """Nobody sends them."""

    def send_alone(self, reply: list[Buffer]) -> None:
        """Nobody sends it."""

    def close(self, reason: str) -> None:
        """It is closed."""


_ENDED = _Ended()


class ReplyQueue:
    """See the module.

    `max_requests` and `max_bytes` say how many requests may be in flight, and how many bytes of replies may wait after
    one that is.

    Attributes:
        in_flight: the requests, the oldest first; always the same object.
        requests: how many they are (one entry may stand for several).
        size_bytes: of the replies that wait among them.
        out: replies that may leave, in order.
    """

    __slots__ = ("_max_bytes", "_max_requests", "_sender", "in_flight", "out", "requests", "size_bytes")

    def __init__(self, sender: ReplySender, max_requests: int, max_bytes: int) -> None:
        self._sender: ReplySender = sender
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self.in_flight: list[InFlightRequest] = []  # an empty deque takes 700 bytes more; these are few
        self.requests = 0
        self.size_bytes = 0
        self.out: list[Buffer] = []

    @property
    def is_full(self) -> bool:
        """Whether no more requests may be in flight."""
        return self.requests >= self._max_requests or self.size_bytes >= self._max_bytes

    @property
    def blocks(self) -> bool:
        """Whether nothing may start after what is in flight: the newest request parks, or the queue is full."""
        in_flight = self.in_flight
        return bool(in_flight) and (in_flight[-1].parks or self.is_full)

    def add(self, reply: list[Buffer] | InFlightRequest) -> bool:
        """Put the reply of a request after those before it; whether it may leave already."""
        if isinstance(reply, InFlightRequest):
            self._queue(reply)
        elif self.in_flight:
            self._queue(InFlightRequest.finished(reply))
        else:
            self.out += reply
            return True
        return False

    def add_parked(self, request: InFlightRequest) -> None:
        """Put a request that waits after those before it."""
        request.owner = self
        self.in_flight.append(request)
        self.requests += 1

    def _queue(self, request: InFlightRequest) -> None:
        request.owner = self
        self.in_flight.append(request)
        self.requests += request.requests
        self.size_bytes += request.size_bytes

    def request_finished(self, request: InFlightRequest) -> None:
        """A pending answer is there: move what may leave to `out`."""
        in_flight = self.in_flight
        if not in_flight or in_flight[0] is not request:
            self.size_bytes += request.size_bytes
            return
        while True:
            del in_flight[0]
            self.requests -= request.requests
            if request.close_reason is not None:
                self._sender.close(request.close_reason)
                break
            if request.buffers is not None:
                self.out += request.buffers
            if not in_flight or not in_flight[0].is_done:
                break
            request = in_flight[0]
            self.size_bytes -= request.size_bytes
        self._sender.replies_moved()

    def parked_answered(self, request: InFlightRequest, reply: list[Buffer]) -> None:
        """The answer of one that has waited: nearly always the only one, which then leaves at once."""
        in_flight = self.in_flight
        if len(in_flight) == 1 and not self.out:
            in_flight.clear()
            self.requests -= 1
            self._sender.send_alone(reply)
        else:
            request.finish(reply)

    def take(self) -> list[Buffer]:
        """What may leave; it leaves now."""
        out, self.out = self.out, []
        return out

    def cut_short(self) -> None:
        """Long polls end without an answer: the broker stops."""
        for request in list(self.in_flight):
            if request.parks:
                self.in_flight.remove(request)
                self.requests -= request.requests
                request.cancel()

    def end(self) -> None:
        """Nobody waits for any answer any more."""
        waiting = list(self.in_flight)
        self.in_flight.clear()
        for request in waiting:
            request.cancel()
        self.out.clear()
        self._sender = _ENDED  # a circle to the connection would hold both until the garbage collector comes
