"""One in-flight request: in its connection's queue, from its start until its reply leaves.

The dispatcher makes one for a request whose answer is pending, and finishes it with encoded bytes; the connection sends
replies in the order of the requests. Requests that follow one another and are answered together share one entry of the
queue: `requests` is their number (`produce_run.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.types import Buffer


class CloseConnection(Exception):
    """The connection must end: its message is the reason, for one log line."""


class InFlightOwner(Protocol):
    """A connection, as its requests see it."""

    def request_finished(self, request: InFlightRequest) -> None:
        """`request` is done; called once."""

    def parked_answered(self, request: InFlightRequest, reply: list[Buffer]) -> None:
        """A request that has waited is answered: `reply` leaves, or the request is finished with it."""


class InFlightRequest:
    """A started request. `buffers` is its encoded reply once `is_done`, or None when no reply is sent.

    Nothing may start after a request that `parks`. With a `close_reason` the connection must end, without a reply.
    """

    __slots__ = ("buffers", "close_reason", "is_done", "owner", "parks", "pending", "requests", "size_bytes")

    def __init__(self, pending: Pending[Any] | None) -> None:
        self.pending = pending
        self.parks = pending is not None and pending.parks
        self.owner: InFlightOwner | None = None
        self.is_done = False
        self.requests = 1
        self.buffers: list[Buffer] | None = None
        self.size_bytes = 0
        self.close_reason: str | None = None

    @classmethod
    def finished(cls, buffers: list[Buffer]) -> InFlightRequest:
        """A request whose reply is ready, but waits for a pending request before it."""
        request = cls(None)
        request.finish(buffers)
        return request

    def cancel(self) -> None:
        """Give the request up: the connection has ended."""
        self.owner = None
        if self.pending is not None:
            self.pending.cancel()

    def finish(self, buffers: list[Buffer] | None, *, close_reason: str | None = None) -> None:
        """Give the encoded reply, None for no reply; or the reason to close."""
        self.buffers = buffers
        self.close_reason = close_reason
        self.is_done = True
        if buffers is not None:
            self.size_bytes = sum(map(len, buffers))
        if self.owner is not None:
            self.owner.request_finished(self)
