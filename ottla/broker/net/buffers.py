"""Memory for received bytes until their turn ends.

There are two kinds of memory. The *arena* is one buffer for all connections: each read gets the piece after the last
one, and all of it is free again when the turn's batches are appended. A connection that holds a partial frame, or
frames that may not start yet, *owns* a buffer. That grows with the received bytes (64 KiB, doubling) and never with the
announced length. Owned buffers come from a small pool and return to it, because fresh pages fault in one by one (four
times the cost of a 1 MB read).

Both begin at a page boundary. The C library's large blocks begin 16 bytes after one, and on some processors the
kernel's copy out of a socket takes several times as long there (`benchmarks/receive_copy.py`).

Owned bytes count against `queued.max.request.bytes`. When that is used up, a connection that wants more must stop
reading, except one (the *exempt*): otherwise partial frames could hold all of it and none would ever be complete.

Copies that outlive their turn count, too (`note_copied`: batches of old clients that wait for their conversion). While
there are any, no connection is exempt: else one complete request after the other could become a copy.

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
"""The longest read into the arena. It has room for a producer's default requests in flight (5 batches of 16 KiB), so
that one call reads a pipeline and splits no frame of it. A part of a large frame in it has to be copied once."""
LARGE_FRAME_BYTES = 64 << 10
"""After a frame longer than this, a connection receives the next one directly into its own buffer."""
POOL_BYTES = 16 << 20


class ReceiveBuffers:
    """Arena, pool and budget of one loop. `max_owned_bytes` is `queued.max.request.bytes`; -1 for no limit."""

    def __init__(self, turn: Turn, max_owned_bytes: int) -> None:
        self._turn = turn
        self._arena = memoryview(_pages(ARENA_BYTES))
        self.first_piece = self._arena[:READ_BYTES]
        """The result of `arena_piece` until the arena is used in a turn; `arena_turn` is the last turn that used it."""
        self._arena_position = 0
        self.arena_turn = -1
        self.scrap = HeldBytes(1)
        """A buffer for bytes that are not used: a connection without memory, which ends, reads into it."""
        self.pool = BufferPool(POOL_BYTES)
        self._retired: list[HeldBytes] = []
        self._waiting: deque[Callable[[], None]] = deque()
        self._exempt: object | None = None
        self.max_owned_bytes = max_owned_bytes if max_owned_bytes > 0 else 1 << 62
        self.owned_bytes = 0
        self._copied_bytes = 0

    def arena_piece(self) -> memoryview:
        """Room for one read. When little is left the turn's batches are appended now, and the arena starts over."""
        if self.arena_turn != self._turn.number:
            return self.first_piece
        position = self._arena_position
        if ARENA_BYTES - position < READ_BYTES:
            self._turn.flush()
            self._arena_position = 0
            return self.first_piece
        return self._arena[position : position + READ_BYTES]

    def keep_arena(self, length: int) -> None:
        """Keep the last piece's first `length` bytes until the turn ends: gathered batches refer to them."""
        number = self._turn.number
        if self.arena_turn != number:
            self.arena_turn = number
            self._arena_position = length
        else:
            self._arena_position += length

    def may_own(self, more_bytes: int, owner: object) -> bool:
        """Whether `owner` may own so many more bytes now. If not, it stops reading and calls `wait`."""
        if self.owned_bytes + more_bytes <= self.max_owned_bytes or self._exempt is owner:
            return True
        if self._exempt is None and not self._copied_bytes:
            self._exempt = owner
            return True
        return False

    def note_copied(self, size_bytes: int) -> None:
        """Count copies of received bytes that are kept beyond the turn."""
        self._copied_bytes += size_bytes
        self.owned_bytes += size_bytes

    def drop_copied(self, size_bytes: int) -> None:
        """Count copies that were dropped."""
        self._copied_bytes -= size_bytes
        self.owned_bytes -= size_bytes
        self._wake()

    def wait(self, callback: Callable[[], None]) -> None:
        """Call `callback` once bytes were given back; it calls `may_own` again."""
        self._waiting.append(callback)

    def take(self, capacity: int) -> HeldBytes:
        """An empty buffer of at least `capacity` bytes, from the pool if possible. Its owner has called `may_own`."""
        held = self.pool.fitting(capacity)
        if held is None:
            held = HeldBytes(capacity)
        else:
            self.pool.remove(held)
        self.owned_bytes += held.capacity
        held.start = held.end = held.due = 0
        return held

    def lend(self, capacity: int) -> HeldBytes | None:
        """Lend a buffer for a read that may bring nothing, or nothing that has to be held: it stays in the pool.

        Its reader takes it (`own`) before any other code can get it, or no longer uses it then. None if it would be too
        long for the pool, or the memory for requests is used up.
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
        """Make the reader of a lent buffer its owner."""
        self.pool.remove(held)
        self.owned_bytes += held.capacity
        held.start = held.end = held.due = 0

    def hold(self, tail: memoryview, owner: object, max_frame_bytes: int) -> HeldBytes:
        """A buffer with the rest of a read, and with room for more if the frame is longer and memory allows it."""
        length = len(tail)
        total = first_frame_bytes(tail, max_frame_bytes)
        wanted = max(length, min(total, FIRST_BYTES))
        if total > wanted and self.pool.fitting(total) is not None:  # a pooled one costs no new memory
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
        """Return a buffer. It is free when the turn has ended, since batches may still refer to it."""
        if not self._retired:
            self._turn.last(self._turn_ended)
        self._retired.append(held)

    def give_back_now(self, held: HeldBytes, owner: object) -> None:
        """Return a buffer to which nothing of the turn refers any more."""
        self.owned_bytes -= held.capacity
        self.pool.keep(held)
        if self._exempt is owner:
            self._exempt = None
        if self._waiting:
            self._wake()

    def release_exemption(self, owner: object) -> None:
        """End the exemption of `owner`: it holds no partial frame any more."""
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
    """Memory that begins at a page boundary; pages cost nothing until they are written to."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
