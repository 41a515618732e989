"""The in-flight requests of one connection, in order of arrival, and the replies that may leave.

Replies leave in the order of their requests, whichever is done first. A reply that is ready immediately, with no
request before it, never enters the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.runtime.in_flight_request import InFlightRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.types import Buffer


class QueueOwner(Protocol):
    """A connection, as its queue sees it."""

    def replies_moved(self) -> None:
        """Note that replies may leave, or requests without a reply have ended."""

    def send_alone(self, reply: list[Buffer]) -> None:
        """Send the reply of the only request in flight; no other reply waits."""

    def close(self, reason: str) -> None:
        """End the connection in place of a reply."""


class QueueLimits(Protocol):
    """The limits of one connection, the same for all (`SharedState`)."""

    @property
    def max_in_flight(self) -> int:
        """The most requests in flight."""

    @property
    def max_pending_bytes(self) -> int:
        """The most bytes of replies that wait after a request in flight."""


class _Ended:
    """The owner in place of a connection that has ended: it does nothing."""

    def replies_moved(self) -> None:
        """Send nothing."""

    def send_alone(self, reply: list[Buffer]) -> None:
        """Send nothing."""

    def close(self, reason: str) -> None:
        """Do nothing: it is closed."""


_ENDED = _Ended()


NOTHING: Final = ()
"""In place of an empty list: an idle connection has no list objects."""


class ReplyQueue:
    """See the module.

    Attributes:
        in_flight: the requests, the oldest first; changed only here.
        requests: their number (one entry may represent several).
        size_bytes: the size of the ready replies that wait among them.
        out: replies that may leave, in order; changed only here.
    """

    __slots__ = ("_limits", "_owner", "in_flight", "out", "requests", "size_bytes")

    def __init__(self, owner: QueueOwner, limits: QueueLimits) -> None:
        self._owner: QueueOwner = owner
        self._limits = limits
        # Never an empty list. An empty deque takes 700 bytes more, and the entries are few.
        self.in_flight: list[InFlightRequest] | tuple[()] = NOTHING
        self.requests = 0
        self.size_bytes = 0
        self.out: list[Buffer] | tuple[()] = NOTHING

    @property
    def is_full(self) -> bool:
        """Whether no more requests may be in flight."""
        limits = self._limits
        return self.requests >= limits.max_in_flight or self.size_bytes >= limits.max_pending_bytes

    @property
    def blocks(self) -> bool:
        """Whether nothing may start after what is in flight: the newest request parks, or the queue is full."""
        if not self.in_flight:
            return False
        return self.in_flight[-1].parks or self.is_full

    def add(self, reply: list[Buffer] | InFlightRequest) -> bool:
        """Add the reply of a request after those before it; return whether it may leave already."""
        if isinstance(reply, InFlightRequest):
            self._queue(reply)
        elif self.in_flight:
            self._queue(InFlightRequest.finished(reply))
        else:
            self.let_out(reply)
            return True
        return False

    def let_out(self, reply: Sequence[Buffer]) -> None:
        """Add a reply to those that may leave: no request before it is in flight."""
        if self.out:
            self.out += reply
        else:
            self.out = [*reply]

    def add_parked(self, request: InFlightRequest) -> None:
        """Add a request that waits after those before it."""
        request.owner = self
        if self.in_flight:
            self.in_flight.append(request)
        else:
            self.in_flight = [request]
        self.requests += 1

    def _queue(self, request: InFlightRequest) -> None:
        request.owner = self
        if self.in_flight:
            self.in_flight.append(request)
        else:
            self.in_flight = [request]
        self.requests += request.requests
        self.size_bytes += request.size_bytes

    def request_finished(self, request: InFlightRequest) -> None:
        """Move the replies that may leave to `out`: a pending request has its answer."""
        in_flight = self.in_flight
        if not in_flight or in_flight[0] is not request:
            self.size_bytes += request.size_bytes
            return
        while True:
            del in_flight[0]
            self.requests -= request.requests
            if not in_flight:
                self.in_flight = NOTHING
            if request.close_reason is not None:
                self._owner.close(request.close_reason)
                break
            if request.buffers is not None:
                if self.out:  # `let_out`, inlined
                    self.out += request.buffers
                else:
                    self.out = [*request.buffers]
            if not in_flight or not in_flight[0].is_done:
                break
            request = in_flight[0]
            self.size_bytes -= request.size_bytes
        self._owner.replies_moved()

    def parked_answered(self, request: InFlightRequest, reply: list[Buffer]) -> None:
        """Answer a request that has waited: nearly always the only one, whose reply then leaves immediately."""
        if len(self.in_flight) == 1 and not self.out:
            self.in_flight = NOTHING
            self.requests -= 1
            self._owner.send_alone(reply)
        else:
            request.finish(reply)

    def take(self) -> Sequence[Buffer]:
        """Remove and return the replies that may leave."""
        out, self.out = self.out, NOTHING
        return out

    def cut_short(self) -> None:
        """End long polls without an answer: the broker stops."""
        for request in list(self.in_flight):
            if request.parks:
                self.in_flight = [each for each in self.in_flight if each is not request] or NOTHING
                self.requests -= request.requests
                request.cancel()

    def end(self) -> None:
        """Cancel all requests: the connection has ended."""
        waiting, self.in_flight = self.in_flight, NOTHING
        for request in waiting:
            request.cancel()
        self.out = NOTHING
        self._owner = _ENDED  # a reference cycle would keep both until a garbage collection
