"""Memory for the answers of all connections: the bytes of an answer count from before they are read until the client
has taken them (docs/limits.md).

Two kinds of bytes share one bound, `ottla.connections.max.unsent.bytes`. *Reserved* bytes belong to answers that are
being read, converted, or about to be sent. *Unsent* bytes are those that a client does not take. Bytes that the kernel
sends from the page cache are neither, and need no reservation.

A read that finds no room waits in a queue (the line), first come, first served. A connection has at most one place in
it, since nothing starts after a Fetch that waits. The line always advances: if nothing is reserved, the first read is
admitted after `PATIENCE_MS`, whatever its size. To make room for it, the connections whose clients have left their
answers for the longest time are closed. A read that has waited for `WAIT_MOST_MS` is answered without records, before
its client gives up and asks again on another connection.

Runs on the broker's thread, and knows neither Fetch nor sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.broker.runtime.turn import Turn

SHARES: Final = 8
"""One answer takes at most this fraction (1/8) of the bound. Exception: a batch that is larger is sent whole."""
SHARES_IN_LINE: Final = 64
"""The same while other reads wait."""
LEAST_SHARE_BYTES: Final = 64 * 1024
PATIENCE_MS: Final = 1_000
"""How long clients may leave their answers while a read waits for room, before a connection is closed for it."""
WAIT_MOST_MS: Final = 15_000
"""Half of what old clients wait for an answer (`socket.timeout.ms` 30 s)."""


class Holder(Protocol):
    """A connection whose client does not take its answers."""

    def close(self, reason: str) -> None:
        """Log why it ends."""

    def abort(self) -> None:
        """End it now."""


class Reservation:
    """Bytes of one answer. Its holder gives it back exactly once; a second time has no effect."""

    __slots__ = ("_memory", "size_bytes")

    def __init__(self, memory: AnswerMemory, size_bytes: int) -> None:
        self._memory = memory
        self.size_bytes = size_bytes

    def resize(self, size_bytes: int) -> None:
        """Set the real size. It may be more than was reserved: those bytes are in memory already."""
        self._memory.note_resized(self, size_bytes)

    def release(self) -> None:
        """Give the bytes back: they have been sent, or count as unsent from now on."""
        self._memory.note_released(self)


class Place:
    """A place in the line."""

    __slots__ = ("came", "since_ms", "size_bytes")

    def __init__(self, size_bytes: int, since_ms: float, came: Callable[[Reservation | None], None]) -> None:
        self.size_bytes = size_bytes
        self.since_ms = since_ms
        self.came = came


class AnswerMemory:
    """The bound and the line of one broker. `max_bytes` is `ottla.connections.max.unsent.bytes`."""

    def __init__(self, max_bytes: int, turn: Turn, timers: Timers, now_ms: Callable[[], float]) -> None:
        self.max_bytes = max_bytes
        self.reserved_bytes = 0
        self.unsent_bytes = 0
        self.closed_connections = 0
        """Closed since the start because their answers were not taken and other answers needed the room."""
        self._turn = turn
        self._timers = timers
        self._now_ms = now_ms
        self._reservations: set[Reservation] = set()
        self._unsent: dict[Holder, int] = {}
        """Ordered by when the client stopped taking its answers."""
        self._line: deque[Place] = deque()
        self._timer: Timer | None = None
        self._is_planned = False
        self._copied_turn = -1
        self._copied_bytes = 0

    # -- what is read ---------------------------------------------------------------------------------------------

    @property
    def share_bytes(self) -> int:
        """The most bytes that one answer should reserve now."""
        return max(self.max_bytes // (SHARES_IN_LINE if self._line else SHARES), LEAST_SHARE_BYTES)

    @property
    def waiting(self) -> int:
        """How many reads are in the line."""
        return len(self._line)

    def reserve(self, size_bytes: int) -> Reservation | None:
        """Reserve so many bytes, if there is room and no read waits; else None, and the caller uses `wait`."""
        if self._line or not self._has_room(size_bytes, 0):
            return None
        return self._reserved(size_bytes)

    def wait(self, size_bytes: int, came: Callable[[Reservation | None], None]) -> Callable[[], None]:
        """Call `came` with the reservation when it is this read's turn, or with None when that took too long.

        The returned function gives up the place (the connection has ended); `came` is not called then. The caller may
        hold no bytes of the answer while it waits.
        """
        place = Place(size_bytes, self._now_ms(), came)
        self._line.append(place)
        if self._timer is None:
            self._plan_look()
        return partial(self._leave, place)  # the place does not refer to it: no reference cycle keeps what was read

    def note_resized(self, reservation: Reservation, size_bytes: int) -> None:
        """See `Reservation.resize`."""
        if reservation in self._reservations:
            self.reserved_bytes += size_bytes - reservation.size_bytes
            reservation.size_bytes = size_bytes
            self._plan_step()

    def note_released(self, reservation: Reservation) -> None:
        """See `Reservation.release`."""
        if reservation in self._reservations:
            self._reservations.discard(reservation)
            self.reserved_bytes -= reservation.size_bytes
            self._plan_step()

    def _reserved(self, size_bytes: int) -> Reservation:
        reservation = Reservation(self, size_bytes)
        self._reservations.add(reservation)
        self.reserved_bytes += size_bytes
        return reservation

    def _has_room(self, size_bytes: int, waited_ms: float) -> bool:
        if self.reserved_bytes + self.unsent_bytes + size_bytes <= self.max_bytes:
            return True
        return not self._reservations and (not self._unsent or waited_ms >= PATIENCE_MS)

    # -- what one turn may read -----------------------------------------------------------------------------------

    def note_copied(self, size_bytes: int) -> None:
        """Count bytes of memory with which this turn has answered requests, and which are sent at its end. Once they
        reach a share of the bound, requests that have not begun wait for the next turn.
        """
        turn = self._turn
        if self._copied_turn != turn.number:
            self._copied_turn, self._copied_bytes = turn.number, 0
        self._copied_bytes += size_bytes
        if self._copied_bytes >= self.max_bytes // SHARES:
            turn.is_long = True

    @property
    def is_turn_full(self) -> bool:
        """Whether answers that need not be made in this turn wait for the next one."""
        return self._copied_turn == self._turn.number and self._copied_bytes >= self.max_bytes // SHARES

    # -- what is not taken ----------------------------------------------------------------------------------------

    def note_unsent(self, holder: Holder, size_bytes: int) -> None:
        """`holder` keeps so many more bytes for a client that does not take them. If all connections keep too many,
        the one that has kept some for the longest time is closed. While no bytes are reserved the last one stays: a
        single answer may be larger than the bound.
        """
        self._unsent[holder] = self._unsent.get(holder, 0) + size_bytes
        self.unsent_bytes += size_bytes
        self._close_oldest()

    def note_taken(self, holder: Holder) -> None:
        """Note that the client has taken all bytes that `holder` kept, or that the connection has ended."""
        size_bytes = self._unsent.pop(holder, 0)
        if size_bytes:
            self.unsent_bytes -= size_bytes
            self._plan_step()

    def _close_oldest(self) -> None:
        """Make room by closing connections whose clients do not take their answers."""
        while self.reserved_bytes + self.unsent_bytes > self.max_bytes and len(self._unsent) > (
            0 if self._reservations else 1
        ):
            oldest = next(iter(self._unsent))
            self.note_taken(oldest)
            self.closed_connections += 1
            oldest.close(
                "its answers are not taken, and the memory for such answers is used up:"
                f" ottla.connections.max.unsent.bytes={self.max_bytes}"
            )
            oldest.abort()

    # -- the line -------------------------------------------------------------------------------------------------

    def _plan_step(self) -> None:
        """Bytes came back: admit waiting reads when the connection that returned the bytes no longer uses them."""
        if self._line and not self._is_planned:
            self._is_planned = True
            self._turn.last(self._step)

    def _step(self) -> None:
        self._is_planned = False
        try:
            self._let_in(self._now_ms())
        except BaseException:
            self._plan_step()  # for those after the one that failed: there may be room for them
            raise
        finally:
            self._plan_look()

    def _let_in(self, now_ms: float) -> None:
        line = self._line
        while line:
            place = line[0]
            waited_ms = now_ms - place.since_ms
            if waited_ms >= WAIT_MOST_MS:
                line.popleft()
                place.came(None)
            elif self._has_room(place.size_bytes, waited_ms):
                line.popleft()
                reservation = self._reserved(place.size_bytes)
                self._close_oldest()
                place.came(reservation)
            else:
                break

    def _plan_look(self) -> None:
        """Plan to check the first of the line again, even if no bytes come back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            place, now_ms = self._line[0], self._now_ms()
            patient_ms, late_ms = place.since_ms + PATIENCE_MS, place.since_ms + WAIT_MOST_MS
            self._timer = self._timers.at(patient_ms if now_ms < patient_ms else late_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        self._step()

    def _leave(self, place: Place) -> None:
        if place in self._line:
            self._line.remove(place)
            if self._line:
                self._plan_step()
            else:
                self._plan_look()  # the next read that comes waits from its own time on
