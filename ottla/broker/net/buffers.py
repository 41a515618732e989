"""Memory for received bytes until their turn ends.

Two kinds of memory. The *arena* is one buffer for all connections: each read gets the piece behind the last one, and
the whole is free again when the turn's batches are appended. A connection that holds a partial frame, or frames that
may not start yet, *owns* a buffer, which grows with the bytes that came (64 KiB, doubling) and never with the length
that was announced. Owned buffers are taken from and go back to a small pool, because fresh pages fault in one by one
(four times the cost of a 1 MB read).

Both begin at a page. The C library's large blocks begin 16 bytes after one, and on some processors the kernel's copy
out of a socket takes several times as long there (`benchmarks/receive_copy.py`).

Owned bytes count against `queued.max.request.bytes`. A connection that wants more when it is used up must stop
reading, except one (the *exempt*): otherwise partial frames could hold all of it and none would ever be whole.

So do copies that outlive their turn (`note_copied`: what old clients produce waits for its conversion). While there are
any, no connection is exempt: else one whole request after the other could become a copy.

Rule for all callers: a view of received bytes is valid until the end of the turn in which its request started.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.net.buffer_pool import BufferPool
from ottla.broker.net.held_bytes import FIRST_BYTES, HeldBytes, first_frame_bytes

if TYPE_CHECKING:
    from ottla.broker.runtime.turn import Turn

ARENA_BYTES = 1 << 20
READ_BYTES = 256 << 10
"""A read into the arena is at most this long. Long enough for what a producer has under way by default (5 batches of
16 KiB), so that a pipeline is read by one call and no frame of it is cut; what it holds of a large frame has to be
copied once."""
LARGE_FRAME_BYTES = 64 << 10
"""From here on a connection receives its next frame directly into a buffer of its own."""
POOL_BYTES = 16 << 20


class ReceiveBuffers:
    """Arena, pool and budget of one loop. `max_owned_bytes` is `queued.max.request.bytes`; -1 for no limit."""

    def __init__(self, turn: Turn, max_owned_bytes: int) -> None:
        self._turn = turn
        self._arena = memoryview(_pages(ARENA_BYTES))
        self.first_piece = self._arena[:READ_BYTES]
        """What `arena_piece` gives until the arena is used in a turn; `arena_turn` says in which it was."""
        self._arena_position = 0
        self.arena_turn = -1
        self.scrap = HeldBytes(1)
        """Where a connection reads bytes that are not used: there was no memory for it, and it ends."""
        self.pool = BufferPool(POOL_BYTES)
        self._retired: list[HeldBytes] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._exempt: object | None = None
        self.max_owned_bytes = max_owned_bytes if max_owned_bytes > 0 else 1 << 62
        self.owned_bytes = 0
        self._copied_bytes = 0

    def arena_piece(self) -> memoryview:
        """Room for one read. When little is left the turn's batches are appended at once, and the arena starts over."""
        if self.arena_turn != self._turn.number:
            return self.first_piece
        position = self._arena_position
        if ARENA_BYTES - position < READ_BYTES:
            self._turn.flush()
            self._arena_position = 0
            return self.first_piece
        return self._arena[position : position + READ_BYTES]

    def keep_arena(self, length: int) -> None:
        """The last piece holds `length` bytes that a gathered batch looks at: leave them alone until the turn ends."""
        number = self._turn.number
        if self.arena_turn != number:
            self.arena_turn = number
            self._arena_position = length
        else:
            self._arena_position += length

    def may_own(self, more_bytes: int, owner: object) -> bool:
        """Whether `owner` may own that much more now. If not it stops reading and calls `wait`."""
        if self.owned_bytes + more_bytes <= self.max_owned_bytes or self._exempt is owner:
            return True
        if self._exempt is None and not self._copied_bytes:
            self._exempt = owner
            return True
        return False

    def note_copied(self, size_bytes: int) -> None:
        """So many received bytes were copied, and are kept beyond the turn."""
        self._copied_bytes += size_bytes
        self.owned_bytes += size_bytes

    def drop_copied(self, size_bytes: int) -> None:
        """Copies of so many bytes are gone."""
        self._copied_bytes -= size_bytes
        self.owned_bytes -= size_bytes
        self._wake()

    def wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` once bytes were given back; it asks `may_own` again."""
        self._waiting.append(callback)

    def take(self, capacity: int) -> HeldBytes:
        """An empty buffer of at least `capacity` bytes, a warm one if there is. Its owner has asked `may_own`."""
        held = self.pool.fitting(capacity)
        if held is None:
            held = HeldBytes(capacity)
        else:
            self.pool.remove(held)
        self.owned_bytes += held.capacity
        held.start = held.end = held.due = 0
        return held

    def lend(self, capacity: int) -> HeldBytes | None:
        """A buffer for a read that may bring nothing, or nothing that has to be held: it stays in the pool.

        Its reader makes it its own (`own`) before anybody else is called, or is done with it then. None where it would
        be too long for the pool, or the memory for requests is used up.
        """
        if capacity > POOL_BYTES // 4 or self.owned_bytes + capacity > self.max_owned_bytes:
            return None
        pool = self.pool
        held = pool.fitting(capacity)
        if held is None:
            held = HeldBytes(capacity)
            pool.make_room(held.capacity)
            pool.keep(held)
        return held

    def own(self, held: HeldBytes) -> None:
        """What was lent is its reader's now."""
        self.pool.remove(held)
        self.owned_bytes += held.capacity
        held.start = held.end = held.due = 0

    def hold(self, tail: memoryview, owner: object, max_frame_bytes: int) -> HeldBytes:
        """What is left of a read: with room for more where the frame is longer and memory allows it."""
        length = len(tail)
        total = first_frame_bytes(tail, max_frame_bytes)
        wanted = max(length, min(total, FIRST_BYTES))
        if total > wanted and self.pool.fitting(total) is not None:  # a warm one costs no new memory
            wanted = total
        if not self.may_own(wanted, owner):
            wanted = length
        held = self.take(wanted)
        held.fill(tail)
        return held

    def grown(self, held: HeldBytes, owner: object, max_frame_bytes: int) -> HeldBytes | None:
        """The same bytes in a buffer twice as long, at most to the end of the frame; None when the memory for requests
        is used up.
        """
        view = held.view[held.start : held.end]
        length = len(view)
        wanted = min(max(2 * length, FIRST_BYTES), max(first_frame_bytes(view, max_frame_bytes), length + 1))
        if not self.may_own(wanted, owner):
            return None
        larger = self.take(wanted)
        larger.fill(view)
        self.give_back(held)
        return larger

    def give_back(self, held: HeldBytes) -> None:
        """Its owner is done with it; others get it when the turn has ended, since batches may still look at it."""
        if not self._retired:
            self._turn.last(self._turn_ended)
        self._retired.append(held)

    def give_back_now(self, held: HeldBytes, owner: object) -> None:
        """Its owner is done with it, and nothing of the turn looks at it."""
        self.owned_bytes -= held.capacity
        self.pool.keep(held)
        if self._exempt is owner:
            self._exempt = None
        if self._waiting:
            self._wake()

    def release_exemption(self, owner: object) -> None:
        """`owner` holds no partial frame any more."""
        if self._exempt is owner:
            self._exempt = None
            self._wake()

    def _turn_ended(self) -> None:
        retired, self._retired = self._retired, []
        for held in retired:
            self.owned_bytes -= held.capacity
            self.pool.keep(held)
        self._wake()

    def _wake(self) -> None:
        if self._waiting and (self._exempt is None or self.owned_bytes < self.max_owned_bytes):
            waiting, self._waiting = self._waiting, deque()
            for callback in waiting:
                callback()


def _pages(size_bytes: int) -> mmap.mmap:
    """Memory that begins at a page; pages cost nothing until they are written to."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
