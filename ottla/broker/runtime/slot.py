"""The place of one request in its connection's queue, from its start until its reply leaves.

The dispatcher makes a slot for a request whose answer is pending, and finishes it with encoded bytes; the connection
lets replies leave in the order of the slots. Requests that follow one another and are answered together share one
slot: `requests` says how many (`produce_run.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.types import Buffer


class CloseConnection(Exception):
    """The connection must end: its message is the reason, for one log line."""


class SlotOwner(Protocol):
    """A connection, as a slot sees it."""

    def slot_finished(self, slot: Slot) -> None:
        """`slot` is done; called once."""


class Slot:
    """A started request. `buffers` is its encoded reply once `is_done`, or None when no reply is sent.

    Nothing may start behind one that `parks`. `close_reason` says that the connection must end in place of a reply.
    """

    __slots__ = ("buffers", "close_reason", "is_done", "owner", "parks", "pending", "requests", "size_bytes")

    def __init__(self, pending: Pending[Any] | None) -> None:
        self.pending = pending
        self.parks = pending is not None and pending.parks
        self.owner: SlotOwner | None = None
        self.is_done = False
        self.requests = 1
        self.buffers: list[Buffer] | None = None
        self.size_bytes = 0
        self.close_reason: str | None = None

    @classmethod
    def finished(cls, buffers: list[Buffer]) -> Slot:
        """A slot whose reply was there at once, and waits behind one that is pending."""
        slot = cls(None)
        slot.finish(buffers)
        return slot

    def cancel(self) -> None:
        """Nobody waits for the reply any more."""
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
            self.owner.slot_finished(self)
