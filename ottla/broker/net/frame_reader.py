"""The reads of one connection: where they go, and the received bytes that have not started yet.

A read goes into the arena that all connections share, or into the connection's own buffer (`held`) if that holds part
of a frame, or frames that may not start yet. After a large frame another one of that size is expected: it is received
directly into a buffer that is *lent* from the pool, and which the connection takes only if its bytes have to stay.

The reader finds room and keeps bytes in order. The connection decides what may start: `is_blocked` in the calls here
means that nothing may start now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from ottla.broker.net.buffers import LARGE_FRAME_BYTES
from ottla.broker.net.held_bytes import FIRST_BYTES
from ottla.broker.net.read_pauses import MEMORY, PARKED
from ottla.protocol.framing import SIZE, SIZE_BYTES

if TYPE_CHECKING:
    from ottla.broker.net.buffers import ReceiveBuffers
    from ottla.broker.net.held_bytes import HeldBytes

_HTTP_METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"DELETE", b"CONNECT", b"PRI")
_TLS_HANDSHAKE = b"\x16\x03"


class ReaderOwner(Protocol):
    """A connection, as its reader sees it."""

    @property
    def pause_reasons(self) -> int:
        """The reasons why it does not read (`read_pauses.py`)."""

    def pause_reading(self, reason: int) -> None:
        """Read no more for `reason`."""

    def memory_came(self) -> None:
        """Call `grow_or_wait`: there may be memory for requests again."""


class ReaderShared(Protocol):
    """The part of `SharedState` that readers need."""

    @property
    def buffers(self) -> ReceiveBuffers:
        """The memory for received bytes."""

    def now_ms(self) -> float:
        """The monotonic clock."""


class _Ended:
    """The owner in place of a connection that has ended."""

    pause_reasons = 0

    def pause_reading(self, reason: int) -> None:
        """Do nothing: it reads no more."""

    def memory_came(self) -> None:
        """Do nothing: it needs no memory."""


_ENDED: Final = _Ended()


class FrameReader:
    """See the module. `owner` is called when there may be memory for requests again.

    Attributes:
        piece: the piece of the arena into which the newest read went, if it went there.
        held: the buffer of received bytes that wait; None if there are none.
        lent: the lent buffer of the newest read, if that expected a large frame.
        expected_bytes: the length of the next frame if it is as large as the one before; 0 if that was not large.
        max_frame_bytes: how long a frame may be; less than usual before a client has authenticated.
        is_whole: whether the newest read has completed one large frame, with nothing before it or after it.
        partial_since_ms: since when the client owes the rest of a frame; None if it does not.
    """

    __slots__ = (
        "_owner",
        "_shared",
        "expected_bytes",
        "held",
        "is_whole",
        "lent",
        "max_frame_bytes",
        "partial_since_ms",
        "piece",
    )

    def __init__(self, shared: ReaderShared, max_frame_bytes: int, owner: ReaderOwner) -> None:
        self._shared = shared
        self.max_frame_bytes = max_frame_bytes
        self._owner = owner
        self.piece: memoryview | None = None
        self.held: HeldBytes | None = None
        self.lent: HeldBytes | None = None
        self.expected_bytes = 0
        self.is_whole = False
        self.partial_since_ms: float | None = None

    # -- where the next read goes -----------------------------------------------------------------------------------

    def next_buffer(self, *, is_blocked: bool) -> memoryview:
        """The buffer for the next read: after the held bytes, in a lent buffer, or in the arena.

        Raises MemoryError, OSError if the system gives no memory.
        """
        held, buffers = self.held, self._shared.buffers
        if held is not None:
            if held.due:
                return held.view[held.end : held.due]
            return held.room(self.max_frame_bytes, is_waiting=is_blocked)
        if is_blocked:
            self.lent = None
            self.held = held = buffers.take(FIRST_BYTES)
            return held.view
        expected_bytes = self.expected_bytes
        if expected_bytes:
            # With room for a frame that is a little longer.
            self.lent = lent = buffers.lend(expected_bytes + (expected_bytes >> 3))
            if lent is not None:
                return lent.view[:expected_bytes]
            # Do not take one: a client that sends nothing more would own it for as long as it stays.
        self.piece = piece = buffers.arena_piece()
        return piece

    def discard(self) -> memoryview:
        """A buffer for the next read of a connection that ends because there is no memory: its bytes are ignored."""
        self.lent = scrap = self._shared.buffers.scrap
        return scrap.view

    @property
    def discards(self) -> bool:
        """Whether the newest read went into the buffer of `discard`."""
        return self.lent is self._shared.buffers.scrap

    # -- what a read has brought ------------------------------------------------------------------------------------

    def received(self, nbytes: int) -> HeldBytes | None:
        """Count `nbytes` more in this connection's own buffer, or in the lent one. Returns the buffer if anything in it
        may start, None while its frame is incomplete.
        """
        held, lent = self.held, self.lent
        if held is not None:
            held.end = end = held.end + nbytes
            if end < held.due:
                return None
            self.is_whole = end == held.due and not held.start and end > LARGE_FRAME_BYTES
            return held
        assert lent is not None
        self.lent = None
        lent.end = nbytes
        self.is_whole = nbytes == self.expected_bytes
        return lent

    def reuse(self, held: HeldBytes) -> None:
        """Reuse the buffer of a large frame from `received` that is answered: the next frame finds it in the cache."""
        self.expected_bytes = held.end
        if self.held is held:
            self.held = self.partial_since_ms = None
            self._shared.buffers.give_back_now(held, self)

    def own(self, held: HeldBytes, following: int) -> bool:
        """Keep the bytes from `following` on of the buffer from `received`; return whether anything in it may start.

        Frames before them may have started, of which one parks.
        """
        if self.held is not held:
            end = held.end
            self._shared.buffers.own(held)
            self.held, held.end = held, end
            expected_bytes = self.expected_bytes
            if SIZE_BYTES <= end < expected_bytes and SIZE.unpack_from(held.view)[0] == expected_bytes - SIZE_BYTES:
                held.due = expected_bytes
                self.partial_since_ms = self._shared.now_ms()
                return False
        held.start += following
        held.due = 0
        return True

    # -- what has to stay ---------------------------------------------------------------------------------------------

    def keep(self, tail: memoryview, *, is_blocked: bool) -> None:
        """Hold the beginning of a frame, or frames that may not start yet."""
        self.held = held = self._shared.buffers.hold(tail, self, self.max_frame_bytes)
        self._make_room(held, is_blocked=is_blocked)

    def started(self, held: HeldBytes, start: int, *, is_blocked: bool) -> None:
        """Keep the rest in order: the held frames before `start` have started."""
        before, end = held.start, held.end
        held.start = start
        if start == end:
            self.expected_bytes = end if end - before > LARGE_FRAME_BYTES else 0
            self.drop()
        elif start > 0 and not is_blocked:
            tail = held.view[start:end]
            self.drop()
            self.keep(tail, is_blocked=is_blocked)
        else:
            self._make_room(held, is_blocked=is_blocked)

    def owe_from_now(self) -> None:
        """Restart the time of a partial frame: it was not read for a while, so the client could not complete it."""
        if self.partial_since_ms is not None:
            self.partial_since_ms = self._shared.now_ms()

    def drop(self) -> None:
        """Drop the held bytes."""
        held, self.held = self.held, None
        self.partial_since_ms = None
        if held is not None:
            self._shared.buffers.give_back(held)
            self._shared.buffers.release_exemption(self)

    def end(self) -> None:
        """The connection has ended: hold neither bytes nor the connection."""
        self.drop()
        self.piece = self.lent = None
        self._owner = _ENDED

    def _make_room(self, held: HeldBytes, *, is_blocked: bool) -> None:
        """Ensure that the next read has room after the waiting bytes, or pause until it may have."""
        if self.partial_since_ms is None and not is_blocked:
            self.partial_since_ms = self._shared.now_ms()
        if not held.is_full:
            if not is_blocked:
                held.expect(self.max_frame_bytes)
        elif is_blocked:
            self._owner.pause_reading(PARKED)
        elif not self._owner.pause_reasons & MEMORY and not self._grow(held):
            self._owner.pause_reading(MEMORY)
            self._shared.buffers.wait(self._owner.memory_came)

    def grow_or_wait(self) -> bool:
        """Give the held bytes more room, now that bytes were given back; if there is none, wait again, return False."""
        held = self.held
        if held is not None and held.is_full and not self._grow(held):
            self._shared.buffers.wait(self._owner.memory_came)
            return False
        return True

    def _grow(self, held: HeldBytes) -> bool:
        """Move the held bytes to a longer buffer; False if the memory for requests is used up."""
        larger = self._shared.buffers.grown(held, self, self.max_frame_bytes)
        if larger is None:
            return False
        self.held = larger
        return True

    @property
    def has_room(self) -> bool:
        """Whether another read has room."""
        return self.held is None or not self.held.is_full


def describe_bad_size(
    size_bytes: int, start: bytes, max_frame_bytes: int, key: str = "socket.request.max.bytes"
) -> str:
    """The reason for closing a connection that announced such a frame. Its first bytes, `start`, may show another
    protocol. `key` is the configuration key of the limit.
    """
    if size_bytes <= 0:
        return f"a frame of {size_bytes} bytes"
    reason = f"a frame of {size_bytes} bytes is longer than {key}={max_frame_bytes}"
    if start.split(b" ")[0] in _HTTP_METHODS:
        return f"{reason}; this is HTTP ({start!r}), and the listener speaks Kafka's protocol"
    if start.startswith(_TLS_HANDSHAKE):
        return f"{reason}; this is a TLS handshake, and the listener speaks plaintext"
    return reason
