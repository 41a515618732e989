"""The first layer of a connection: back-pressure, as a set of reasons for which it does not read. Any one pauses it.

A connection is one object in three layers, each a subclass of the one before it: this one, `pipeline.py`,
`connection.py`. A broker has thousands of idle connections, and one object takes less memory than three with references
to each other.
"""

from __future__ import annotations

from typing import Final, Protocol

# Plain ints and not an IntFlag, which costs 0.3 us per check, on each frame.
QUEUE: Final = 1
"""One connection's limit of requests in flight, or of waiting bytes of replies, is reached."""
OUTPUT: Final = 2
"""The client does not take its replies."""
MEMORY: Final = 4
"""The memory for requests is used up (`queued.max.request.bytes`)."""
PARKED: Final = 8
"""The buffer for requests after a parked one is full."""
DRAIN: Final = 16
"""The broker is stopping."""
ENOUGH: Final = 32
"""Enough was answered for one turn, or an answer takes much memory until it has left."""
LATER: Final = 64
"""The requests of this turn have taken long enough: the rest of a read waits for the next turn."""
READ: Final = 128
"""Enough bytes of large frames were read: other connections are read first."""
THROTTLED: Final = 256
"""A quota is used up (KIP-219)."""

NO_STARTS: Final = OUTPUT | DRAIN | ENOUGH | LATER | THROTTLED
"""With one of these no request starts either, not even a received one."""


class PausableTransport(Protocol):
    """The part of an asyncio transport that is needed here."""

    def pause_reading(self) -> None:
        """Read no more."""

    def resume_reading(self) -> None:
        """Read again."""

    def is_closing(self) -> bool:
        """Whether it is about to end: then it must be neither paused nor resumed."""


class ReadPauses:
    """The reasons of one connection, as a set of bits in `pause_reasons`. `transport` is None before the client has
    connected, and after it has gone.
    """

    __slots__ = ("pause_reasons", "transport")

    def __init__(self) -> None:
        self.pause_reasons = 0
        self.transport: PausableTransport | None = None

    def pause_reading(self, reason: int) -> None:
        """Read no more for `reason`."""
        if not self.pause_reasons and self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()
        self.pause_reasons |= reason

    def resume_reading(self, reason: int) -> None:
        """Remove `reason`, and read again if there is no other."""
        before = self.pause_reasons
        self.pause_reasons &= ~reason
        if before and not self.pause_reasons and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
