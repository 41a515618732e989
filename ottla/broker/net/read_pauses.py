"""The first layer of a connection: back-pressure, the reasons for which it does not read, of which any pauses it.

A connection is one object in three layers, each a class over the one before it: this one, `pipeline.py`,
`connection.py`. A broker has thousands of idle ones, and one object takes less memory than three that know one another.
"""

from __future__ import annotations

from typing import Final, Protocol

# Plain ints and not an IntFlag, which costs 0.3 us per look, on each frame.
QUEUE: Final = 1
"""As many requests are in flight, or as many bytes of replies wait, as one connection may have."""
OUTPUT: Final = 2
"""The client does not take its replies."""
MEMORY: Final = 4
"""The memory for requests is used up (`queued.max.request.bytes`)."""
PARKED: Final = 8
"""Enough is stored after a parked request."""
DRAIN: Final = 16
"""The broker is stopping."""
ENOUGH: Final = 32
"""Enough was answered for one turn, or an answer takes much memory until it has left."""
LATER: Final = 64
"""The requests of this turn have taken long enough: the rest of a read waits for the next."""
READ: Final = 128
"""Enough of large frames was read: other connections are read first."""
THROTTLED: Final = 256
"""A quota is used up (KIP-219)."""

NO_STARTS: Final = OUTPUT | DRAIN | ENOUGH | LATER | THROTTLED
"""Under these no request starts either, not even one that is there already."""


class PausableTransport(Protocol):
    """Of an asyncio transport what is needed here."""

    def pause_reading(self) -> None:
        """Read no more."""

    def resume_reading(self) -> None:
        """Read again."""

    def is_closing(self) -> bool:
        """Whether it is about to end: it must be neither paused nor resumed then."""


class ReadPauses:
    """The reasons of one connection, as a set of bits in `pause_reasons`. `transport` is None before the client has
    connected, and once it is gone.
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
        """`reason` holds no longer: read again, if there is no other."""
        before = self.pause_reasons
        self.pause_reasons &= ~reason
        if before and not self.pause_reasons and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
