"""One client's connection: frames in, requests started in order, replies out in order.

The way of the bytes: a read lands in the shared arena, or in a buffer of the connection's own when it holds part of a
frame; whole frames start where they lie, without a copy. What is left over is a partial frame, or frames that may not
start yet, and is kept in the connection's own buffer. A large frame is received directly into one, and goes to the log
as soon as it is whole, if a request template knows it (`broker/fast`).

The queue of slots: a request starts as soon as it is whole, unless the head of the queue *parks* (a long poll; then
nothing starts behind it) or the queue is full. Replies leave in the order of the requests, all of a turn in one send.

Reading pauses while the queue is full, the client does not take its replies, a turn has made enough of them or has
taken long enough (the rest of a read that asks for much waits for the next, and everybody gets a turn), enough of large
frames was read, the memory for requests is used up, or enough is stored behind a parked request. It never pauses for a
parked request alone, so that a client that goes away is noticed.

docs/decisions/handlers-without-tasks.md says why there is no task. The same class serves plaintext and TLS: it sees
only the transport. It decides nothing about requests: `Dispatcher` starts them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, Protocol, cast

from ottla.address import host_and_port, plain_host
from ottla.broker.net.bad_frame import describe_bad_size
from ottla.broker.net.buffers import LARGE_FRAME_BYTES
from ottla.broker.net.held_bytes import FIRST_BYTES, HeldBytes
from ottla.broker.net.sending import MOST_LEFT_BYTES, NO_DESCRIPTOR, send, unmapped_bytes
from ottla.broker.peer import Peer
from ottla.broker.runtime.slot import CloseConnection, Slot
from ottla.protocol.framing import SIZE, SIZE_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.net.connections import Connections
    from ottla.broker.runtime.answer_memory import Reservation
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.connection")

LARGE_SEND_BYTES = 256 << 10
"""Replies of one connection that are longer count for, and wait because of, `connections.TURN_SEND_BYTES`."""
LARGE_READ_BYTES = 4 << 20
"""So much of large frames is read of a client before others are: libuv reads a socket that stays full up to 32 times in
a row, which is 32 MB of frames of 1 MB, and appends between them."""
READS_ALONE = 16
"""A connection that has had so many reads in a row is taken for the only one that sends."""


class Dispatcher(Protocol):
    """Whoever starts requests."""

    def start(self, frame: memoryview, peer: Peer) -> list[Buffer] | Slot | None:
        """Start the request of one frame (without its length).

        An encoded reply (with its length), a slot that will be finished, or None when no reply is sent.
        Raises CloseConnection.
        """


# Why a connection does not read; any set bit pauses. (Plain ints: an IntFlag costs 0.3 us per look, on each frame.)
QUEUE, OUTPUT, MEMORY, PARKED, DRAIN, ENOUGH, LATER, READ = 1, 2, 4, 8, 16, 32, 64, 128


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; made by `Connections`, which shares the arena, the turn and the limits."""

    def __init__(self, shared: Connections, listener: str) -> None:
        self._shared = shared
        self._turn = shared.turn
        self._buffers = shared.buffers
        self._dispatcher = shared.dispatcher
        self._max_frame_bytes = shared.max_frame_bytes
        self._memory = shared.answer_memory
        self.peer = Peer(listener=listener, close=self.close, received=shared.buffers, hold=self._hold_answer)
        self.last_active_ms: float = shared.now_ms()
        self.was_active = False
        """Whether it has received or sent anything since `last_active_ms`; the sweep makes a time of it, since a look
        at the clock on each read costs more than it tells."""
        self.partial_since_ms: float | None = None
        self._transport: asyncio.Transport | None = None
        self._fd = NO_DESCRIPTOR
        self._piece: memoryview | None = None
        self._held: HeldBytes | None = None
        self._large_bytes = 0
        """Of large frames, since reading them last paused."""
        self._expected_bytes = 0
        """How long the next frame is, if it is as large as the one before; 0 where that was not large."""
        self._lent: HeldBytes | None = None
        """Where the newest read went, if that expected a large frame."""
        self._slots: deque[Slot] = deque()
        self._slot_bytes = 0
        self._pending_requests = 0
        self._out: list[Buffer] = []
        self._planned = False
        self._is_behind = False
        """Whether the transport may hold replies that the socket has not taken."""
        self._pause = 0
        self._long_turn = -1
        """The last turn that was long when this connection had started something in it."""
        self._closing: str | None = None
        self._is_draining = False
        self._reservation: Reservation | None = None
        """The memory of an answer that is there and has not left."""

    # -- what the event loop calls ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: note its addresses, or refuse it."""
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
        peer = self.peer
        name = transport.get_extra_info("peername")
        if name:
            peer.host, peer.port = plain_host(str(name[0])), int(name[1])
        local = transport.get_extra_info("sockname")
        if local:
            peer.local_address = (plain_host(str(local[0])), int(local[1]))
        # A client that has left only a little of a long answer holds all of its memory, so it goes on when it has all.
        transport.set_write_buffer_limits(high=MOST_LEFT_BYTES, low=0)
        peer.sends_maps = self._shared.sends_maps and transport.get_extra_info("sslcontext") is None
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if raw is not None and peer.sends_maps:
            self._fd = raw.fileno()
        refusal = self._shared.add(self)
        if refusal is not None:
            self._closing = refusal
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: nobody waits for its answers any more."""
        self._transport = None
        self._fd = NO_DESCRIPTOR
        if exc is not None and self._closing is None:
            level = logging.ERROR if isinstance(exc, OSError) and exc.errno == errno.EFAULT else logging.DEBUG
            LOG.log(level, "%s: connection lost: %s", self, exc)
        self._closing = self._closing or "lost"
        slots, self._slots = self._slots, deque()
        for slot in slots:
            slot.cancel()
        self._out.clear()
        self._let_go()
        self._drop_held()
        self._shared.later.discard(self)
        self._shared.remove(self)
        self.peer.end()

    def eof_received(self) -> bool:
        """The client sends no more: it is gone (Kafka's clients never close one half only)."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes: behind the bytes already held, else into the arena."""
        held, buffers = self._held, self._buffers
        try:
            if held is not None:
                if held.due:
                    return held.view[held.end : held.due]
                return held.room(self._max_frame_bytes, is_waiting=self._is_blocked())
            if (self._slots or self._pause) and self._is_blocked():
                return self._hold_next()
            expected_bytes = self._expected_bytes
            if expected_bytes:
                # A frame that is a little longer finds room, too.
                self._lent = lent = buffers.lend(expected_bytes + (expected_bytes >> 3))
                if lent is not None:
                    return lent.view[:expected_bytes]
                # None is taken: a client that sends nothing more would own it for as long as it stays.
            is_first = buffers.arena_turn != self._turn.number
            self._piece = piece = buffers.first_piece if is_first else buffers.arena_piece()
        except (MemoryError, OSError):
            # Raised to the loop it would end nothing there, for want of memory, and the socket stays readable.
            self._end_for_memory("to read into")
            self._lent = buffers.scrap
            return buffers.scrap.view
        return piece

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more came."""
        shared = self._shared
        shared.metrics.bytes_received += nbytes
        self.was_active = True
        if self._held is not None or self._lent is not None:
            self._read_into_own(nbytes)
            return
        if shared.last_reader is not self:
            shared.last_reader = self
            shared.reads_in_a_row = 0
        elif shared.reads_in_a_row < READS_ALONE:
            shared.reads_in_a_row += 1
        elif not self._turn.has_work:
            # Nobody else sends: the turn need not wait for the loop to come around. And requests that can be answered
            # at once need none: nothing is gathered, and nothing else is to be sent.
            start, transport, piece = 0, self._transport, self._piece
            if (
                not (self._slots or self._pause or self._out or self._closing or shared.later)
                and transport is not None
                and piece is not None
            ):
                hot_path = self.peer.hot_path
                answered = None if hot_path is None else hot_path.try_answer(piece, nbytes, shared.max_slots)
                if answered is not None:
                    answer, start = answered
                    self._send(transport, answer)
                    if start == nbytes:
                        return
            self._take_turn(start, nbytes)
            return
        self._buffers.keep_arena(self._run_piece(nbytes))

    def _read_into_own(self, nbytes: int) -> None:
        """`nbytes` more came into the buffer of this connection's own, or into the one that was lent for them.

        A large frame that is whole now is enough for a turn of its own, or needs none: its buffer takes the next one
        while that is warm, and the loop, which reads on as long as reads are filled, does not fill one after the other.
        """
        held, lent = self._held, self._lent
        if lent is self._buffers.scrap:
            self.abort()
            return
        self._large_bytes += nbytes
        if self._large_bytes >= LARGE_READ_BYTES:
            self._large_bytes = 0
            self._hold(READ)  # before anything else: what is answered at once may be, all the same
            self._plan()
        if held is not None:
            held.end = end = held.end + nbytes
            if end < held.due:
                return
            is_whole = end == held.due and not held.start and end > LARGE_FRAME_BYTES
        else:
            assert lent is not None
            held, end, self._lent = lent, nbytes, None
            is_whole = end == self._expected_bytes
        following = self._answer_large(held.view, end) if is_whole else 0
        if following == end:
            self._expected_bytes = end
            if lent is None:
                self._held = self.partial_since_ms = None
                self._buffers.give_back_now(held, self)
            return
        if lent is not None:
            self._buffers.own(lent)
            self._held, lent.end = lent, end
            expected_bytes = self._expected_bytes
            if SIZE_BYTES <= end < expected_bytes and SIZE.unpack_from(lent.view)[0] == expected_bytes - SIZE_BYTES:
                lent.start, lent.due = 0, expected_bytes
                self.partial_since_ms = self._shared.now_ms()
                return
        held.start += following  # there may be frames in front that have started, while one parks
        held.due = 0
        turn = self._turn
        if not is_whole or turn.has_work:
            self._run_held(held)
            return
        turn.has_work = self._planned = True
        try:
            self._run_held(held)
        finally:
            turn.end(self._end_turn)

    def _answer_large(self, view: memoryview, end: int) -> int:
        """Answer the frame in `view[:end]` at once if that may be; where the next one begins, 0 when it must wait."""
        shared, transport, hot_path = self._shared, self._transport, self.peer.hot_path
        if (
            hot_path is None
            or transport is None
            or self._slots
            or self._pause & ~READ
            or self._closing
            or shared.later
            or self._turn.is_long
        ):
            return 0
        answered = hot_path.try_answer(view, end, shared.max_slots)
        if answered is None:
            return 0
        answer, following = answered
        self._out += answer
        self._plan()
        return following

    def _take_turn(self, start: int, nbytes: int) -> None:
        """Begin a turn with what came into the arena from `start` on, and end it."""
        turn, piece = self._turn, self._piece
        assert piece is not None
        turn.has_work = self._planned = True
        try:
            start = self._start_frames(piece, start, nbytes)
            if start < nbytes and self._closing is None:
                self._keep(piece[start:nbytes])
        finally:
            turn.end(self._end_turn)

    def pause_writing(self) -> None:
        """The client does not take its replies: start nothing more."""
        self._hold(OUTPUT)

    def resume_writing(self) -> None:
        """It takes them again."""
        self._memory.note_taken(self)
        self._release(OUTPUT)
        self._plan()

    # -- what slots, handlers and the shared registry call ------------------------------------------------------

    def slot_finished(self, slot: Slot) -> None:
        """A pending answer is there: move what may leave to the output."""
        slots = self._slots
        if not slots or slots[0] is not slot:
            self._slot_bytes += slot.size_bytes
            return
        while True:
            slots.popleft()
            self._pending_requests -= slot.requests
            if slot.close_reason is not None:
                self.close(slot.close_reason)
                break
            if slot.buffers is not None:
                self._out += slot.buffers
            if not slots or not slots[0].is_done:
                break
            slot = slots[0]
            self._slot_bytes -= slot.size_bytes
        if not self._planned:
            self._plan()

    def close(self, reason: str, *, level: int = logging.WARNING) -> None:
        """End the connection at the end of this turn, after the replies that are there; one log line says why."""
        if self._closing is None:
            self._closing = reason
            LOG.log(level, "%s: closing: %s", self, reason)
            self._plan()

    def drain(self) -> None:
        """Read no more, and end once the requests that have started are answered; long polls are cut short."""
        self._is_draining = True
        self._hold(DRAIN)
        self._drop_held()
        for slot in list(self._slots):
            if slot.parks:
                self._slots.remove(slot)
                self._pending_requests -= slot.requests
                slot.cancel()
        self._plan()

    def abort(self) -> None:
        """End it now."""
        self._closing = self._closing or "aborted"
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_waiting(self) -> bool:
        """Whether a started request has no answer yet, or an answer has not left."""
        return bool(self._slots) or bool(self._out) or bool(self._transport and self._transport.get_write_buffer_size())

    def __str__(self) -> str:
        peer = self.peer
        software = f" ({peer.software})" if peer.software else ""
        return f"{host_and_port(peer.host, peer.port)}{software} on {peer.listener}"

    # -- frames ---------------------------------------------------------------------------------------------------

    def _run_piece(self, nbytes: int) -> int:
        """Start what came into the arena, and keep what is left over; how many bytes the turn looks at in place."""
        piece = self._piece
        assert piece is not None
        self._piece = None
        start = self._start_frames(piece, 0, nbytes)
        if start < nbytes and self._closing is None:
            self._keep(piece[start:nbytes])
        return start

    def _start_frames(self, view: memoryview, start: int, end: int, *, is_due: bool = False) -> int:
        """Start the whole frames of `view[start:end]` as far as they may; where the first unstarted one begins.

        `is_due` says that this connection has waited for its turn: others that wait do not come first.
        """
        peer, slots, turn, later = self.peer, self._slots, self._turn, self._shared.later
        started = ready_bytes = 0
        while end - start >= SIZE_BYTES and self._closing is None:
            if (slots or self._pause) and self._is_blocked():
                break
            if turn.is_long or (later and not is_due):
                if started:
                    self._long_turn = turn.number
                self._wait_for_turn()
                break
            reply: list[Buffer] | Slot | None
            hot_path = peer.hot_path
            if hot_path is not None:
                most, newest = self._shared.max_slots - self._pending_requests, slots[-1] if slots else None
                begun = hot_path.start(view, start, end, most, newest)
                if begun is not None:
                    reply, start, count = begun
                    started += count
                    if reply is newest:
                        self._pending_requests += count
                    else:
                        ready_bytes += self._take_reply(reply, has_more=start < end)
                        if ready_bytes >= self._shared.max_slot_bytes:
                            self._hold(ENOUGH)
                    continue
            (size_bytes,) = SIZE.unpack_from(view, start)
            if not 0 < size_bytes <= self._max_frame_bytes:
                self.close(
                    describe_bad_size(size_bytes, bytes(view[start : min(start + 8, end)]), self._max_frame_bytes)
                )
                break
            following = start + SIZE_BYTES + size_bytes
            if following > end:
                break
            try:
                reply = self._dispatcher.start(view[start + SIZE_BYTES : following], peer)
            except (CloseConnection, MemoryError) as error:
                self._end_for(error)
                break
            started += 1
            start = following
            if reply is not None:
                ready_bytes += self._take_reply(reply, has_more=following < end)
                if ready_bytes >= self._shared.max_slot_bytes:
                    self._hold(ENOUGH)
        if started > 1:
            self._note_pipelined(ready_bytes)
        if started and not is_due and self._out and not self._planned:
            self._plan()
        return start

    def _note_pipelined(self, ready_bytes: int) -> None:
        """One read brought several requests, whose answers take so much until the turn ends."""
        self._turn.is_pipelined = True
        if ready_bytes > LARGE_SEND_BYTES:
            self._memory.note_copied(ready_bytes)

    def _take_reply(self, reply: list[Buffer] | Slot, *, has_more: bool) -> int:
        """Put what a request gave behind what was there before; how many bytes may leave already, if that counts."""
        if isinstance(reply, Slot):
            self._queue(reply)
        elif self._slots:
            self._queue(Slot.finished(reply))
        else:
            self._out += reply
            if has_more:
                return sum(map(len, reply))
        return 0

    def _queue(self, slot: Slot) -> None:
        """Behind what was started before; a reply that is there already waits there for its turn."""
        slot.owner = self
        self._slots.append(slot)
        self._pending_requests += slot.requests
        self._slot_bytes += slot.size_bytes

    def _is_blocked(self) -> bool:
        """Whether no request may start: behind a parked one, a full queue, or output that is not taken."""
        slots = self._slots
        if self._pause & (OUTPUT | DRAIN | ENOUGH | LATER):
            return True
        if not slots:
            return False
        if slots[-1].parks:
            return True
        return self._pending_requests >= self._shared.max_slots or self._slot_bytes >= self._shared.max_slot_bytes

    def _run_held(self, held: HeldBytes, *, is_due: bool = False) -> None:
        """Start what may start of the held bytes, and keep the rest in order."""
        start, end = held.start, held.end
        held.start = new_start = self._start_frames(held.view, start, end, is_due=is_due)
        if self._closing is not None:
            self._drop_held()  # it may be full, and until the turn ends the loop asks where the next read goes
            return
        if new_start == end:
            self._expected_bytes = end if end - start > LARGE_FRAME_BYTES else 0
            self._drop_held()
        elif new_start > 0 and not self._is_blocked():
            tail = held.view[new_start:end]
            self._drop_held()
            self._keep(tail)
        else:
            self._make_room(held)
        self._update_pauses()

    def _keep(self, tail: memoryview) -> None:
        """Hold the beginning of a frame, or frames that may not start yet."""
        self._held = held = self._buffers.hold(tail, self, self._max_frame_bytes)
        self._make_room(held)
        self._update_pauses()

    def _hold_next(self) -> memoryview:
        """The next read goes into a buffer of the connection's own."""
        self._lent = None
        self._held = held = self._buffers.take(FIRST_BYTES)
        return held.view

    def _make_room(self, held: HeldBytes) -> None:
        """There are bytes that wait: see that the next read has room, or pause until it may have."""
        is_blocked = self._is_blocked()
        if self.partial_since_ms is None and not is_blocked:
            self.partial_since_ms = self._shared.now_ms()
        if not held.is_full:
            if not is_blocked:
                held.expect(self._max_frame_bytes)
        elif is_blocked:
            self._hold(PARKED)
        elif not self._pause & MEMORY and not self._grow(held):
            self._hold(MEMORY)
            self._buffers.wait(self._memory_came)

    def _grow(self, held: HeldBytes) -> bool:
        """Give what is held a longer buffer; False when the memory for requests is used up."""
        larger = self._buffers.grown(held, self, self._max_frame_bytes)
        if larger is None:
            return False
        self._held = larger
        return True

    def _memory_came(self) -> None:
        """Somebody gave bytes back: try again."""
        held = self._held
        if held is None or self._closing is not None:
            return
        if not held.is_full or self._grow(held):
            self._update_pauses()  # it may have been full behind what blocked it, too
            self._release(MEMORY)
        else:
            self._buffers.wait(self._memory_came)

    def _drop_held(self) -> None:
        """Nothing waits here any more."""
        held, self._held = self._held, None
        self.partial_since_ms = None
        if held is not None:
            self._buffers.give_back(held)
            self._buffers.release_exemption(self)

    # -- the end of the turn --------------------------------------------------------------------------------------

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            try:
                self._turn.send_at_end(self._end_turn)
            except BaseException:
                self._planned = False
                raise

    def _end_turn(self) -> None:
        """Start what an answer has unblocked, send all replies in one call, close if that was decided."""
        self._planned = False
        transport, out = self._transport, self._out
        if transport is None:
            return
        if (
            self._slots
            or self._pause
            or self._held is not None
            or self._closing is not None
            or self._shared.large_bytes
        ):
            self._end_full_turn(transport)
        elif out:
            self._out = []
            self.was_active = True
            self._send(transport, out)

    def _end_full_turn(self, transport: asyncio.Transport) -> None:
        """`_end_turn` where there is more to it than replies to send."""
        if self._closing is not None and transport.is_closing():
            self._out.clear()  # what became ready after it was closed and before its end is noticed
            self._let_go()
            return
        shared = self._shared
        if self._pause & READ:
            self._release(READ)
        if self._pause & LATER:
            shared.later.discard(self)
            self._release(LATER)
        if self._held is not None and self._closing is None and not self._is_draining:
            self._run_held(self._held, is_due=True)
        out = self._out
        if shared.has_sent_enough and sum(map(len, out)) > LARGE_SEND_BYTES:  # by now: what has just begun counts too
            self._hold(ENOUGH)
            self._plan()
            return
        if self._reservation is not None and not self._slots:
            self._let_go()  # from here on it counts as unsent, if the client does not take it
        if out:
            self._out = []
            self.was_active = True
            self._send(transport, out)
        if self._pause & ENOUGH and self._reservation is None:
            self._release(ENOUGH)
            self._plan()
        if self._pause or self._slots:
            self._update_pauses()
        if self._closing is not None:
            transport.close()
        elif self._is_draining and not self._slots:
            self._closing = "drained"
            transport.close()

    def _hold_answer(self, reservation: Reservation) -> None:
        """The answer that comes next takes so much memory: nothing more starts until it has left."""
        self._reservation = reservation
        self._hold(ENOUGH)

    def _end_for(self, error: CloseConnection | MemoryError) -> None:
        """A request could not be started."""
        if isinstance(error, MemoryError):
            self._end_for_memory("for its request")
        else:
            self._shared.metrics.malformed_requests += 1
            self.close(str(error))

    def _end_for_memory(self, what_for: str) -> None:
        """The system gives no memory: what needs some ends, so that there is."""
        self._shared.memory_reserve.let_go()
        self.close(f"the system gives no memory {what_for}")

    def _let_go(self) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def _wait_for_turn(self) -> None:
        """The requests of this turn have held the loop for long enough: go on in a later one.

        Who has started something in this turn comes behind those that have not.
        """
        self._shared.later.add(self)
        self._hold(LATER)
        if self._long_turn == self._turn.number:
            self._turn.last(self._plan)
        else:
            self._plan()

    def _send(self, transport: asyncio.Transport, replies: Sequence[Buffer]) -> None:
        """Give replies to the socket, or to its transport where that has not sent all of earlier ones yet."""
        shared = self._shared
        size_bytes = 0
        for reply in replies:
            size_bytes += len(reply)
        fd = self._fd
        if self._is_behind and transport.get_write_buffer_size():
            fd = NO_DESCRIPTOR
        self._is_behind = not send(transport, fd, replies, size_bytes)
        shared.metrics.bytes_sent += size_bytes
        if size_bytes > LARGE_SEND_BYTES:
            shared.note_large_send(size_bytes)
        if self._pause & OUTPUT:
            self._memory.note_unsent(self, unmapped_bytes(replies))

    # -- pausing ----------------------------------------------------------------------------------------------------

    def _update_pauses(self) -> None:
        """After requests started or replies left: read again where nothing stands against it."""
        full = self._pending_requests >= self._shared.max_slots or self._slot_bytes >= self._shared.max_slot_bytes
        if full:
            self._hold(QUEUE)
        elif self._pause & QUEUE:
            self._release(QUEUE)
        if self._pause & PARKED and (self._held is None or not self._held.is_full):
            self._release(PARKED)

    def _hold(self, reason: int) -> None:
        if not self._pause and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._pause |= reason

    def _release(self, reason: int) -> None:
        before = self._pause
        self._pause &= ~reason
        if before and not self._pause and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
