"""One client's connection as asyncio's protocol: reads go where there is room, and what they bring into the pipeline.

The same class serves plaintext and TLS: it sees only the transport. What starts, and when its reply leaves, is decided
in `pipeline.py`; where reads go, in `frame_reader.py`. Only the shortest way is here: the requests of a client that is
alone and that templates answer (`broker/fast`) need neither.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import TYPE_CHECKING, Protocol, cast

<<<<<<< HEAD
from ottla.address import host_and_port, plain_host
from ottla.broker.net.bad_frame import describe_bad_size
from ottla.broker.net.buffers import LARGE_FRAME_BYTES
from ottla.broker.net.held_bytes import FIRST_BYTES, HeldBytes
from ottla.broker.net.sending import MOST_LEFT_BYTES, NO_DESCRIPTOR, send, unmapped_bytes
from ottla.broker.peer import Peer
from ottla.broker.runtime.slot import CloseConnection, Slot
from ottla.protocol.framing import SIZE, SIZE_BYTES
=======
from ottla.broker.net.pipeline import RequestPipeline
from ottla.broker.net.read_pauses import OUTPUT
from ottla.broker.net.sending import MOST_LEFT_BYTES, NO_DESCRIPTOR
>>>>>>> ceac472 (Net: a thin asyncio protocol over a request pipeline, a frame reader, a reply queue, pauses and a sender)

if TYPE_CHECKING:
    from ottla.broker.net.shared import SharedState

LOG = logging.getLogger("ottla.connection")

READS_ALONE = 16
"""A connection that has had so many reads in a row is taken for the only one that sends."""


class Registry(Protocol):
    """What counts connections (`Connections`)."""

    def add(self, connection: Connection) -> str | None:
        """Count a new connection; the reason when it may not stay."""

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; made by `Connections`.

    Attributes:
        pipeline: its requests and replies.
        peer: the client, as requests see it.
        last_active_ms: when the sweep last found that it had received or sent anything. (A look at the clock on each
            read costs more than it is worth.)
    """

    def __init__(self, shared: SharedState, registry: Registry, listener: str) -> None:
        self._shared = shared
        self._registry = registry
        self._turn = shared.turn
        self._buffers = shared.buffers
        self.pipeline = pipeline = RequestPipeline(shared, listener)
        self.peer = pipeline.peer
        self._reader = pipeline.reader
        self._queue = pipeline.queue
        self._in_flight = pipeline.queue.in_flight
        self._pauses = pipeline.pauses
        self.last_active_ms: float = shared.now_ms()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: note its addresses, or refuse it."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
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
        self._pauses.transport = transport
        self.pipeline.sender.begin(transport, raw.fileno() if raw is not None and peer.sends_maps else NO_DESCRIPTOR)
        refusal = self._registry.add(self)
        if refusal is not None:
            self.pipeline.closing = refusal
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: nobody waits for its answers any more."""
        pipeline = self.pipeline
        self._pauses.transport = None
        pipeline.sender.end()
        if exc is not None and pipeline.closing is None:
            level = logging.ERROR if isinstance(exc, OSError) and exc.errno == errno.EFAULT else logging.DEBUG
            LOG.log(level, "%s: connection lost: %s", self, exc)
        pipeline.closing = pipeline.closing or "lost"
        pipeline.end()
        self._registry.remove(self)

    def eof_received(self) -> bool:
        """The client sends no more: it is gone (Kafka's clients never close one half only)."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        reader, buffers = self._reader, self._buffers
        try:
            if reader.held is None and not (reader.expected_bytes or self._in_flight or self._pauses.reasons):
                # Of what `next_buffer` does only this much, without the call.
                is_first = buffers.arena_turn != self._turn.number
                reader.piece = piece = buffers.first_piece if is_first else buffers.arena_piece()
                return piece
            return reader.next_buffer(is_blocked=self.pipeline.is_blocked())
        except (MemoryError, OSError):
            # Raised to the loop it would end nothing there, for want of memory, and the socket stays readable.
            self.pipeline.close_for_memory("to read into")
            return reader.discard()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more came."""
        shared, reader, pipeline = self._shared, self._reader, self.pipeline
        shared.metrics.bytes_received += nbytes
        pipeline.was_active = True
        if reader.held is not None or reader.lent is not None:
            if reader.discards:
                pipeline.abort()
            else:
                pipeline.read_into_own(nbytes)
            return
        if shared.last_reader is not self:
            shared.last_reader = self
            shared.reads_in_a_row = 0
        elif shared.reads_in_a_row < READS_ALONE:
            shared.reads_in_a_row += 1
        elif not self._turn.has_work:
            # Nobody else sends: the turn need not wait for the loop to come around. And requests that can be answered
            # at once need none: nothing is gathered, and nothing else is to be sent.
            start, piece, hot_path = 0, reader.piece, self.peer.hot_path
            if (
                hot_path is not None
                and piece is not None
                and not (self._in_flight or self._pauses.reasons or self._queue.out or pipeline.closing or shared.later)
            ):
                answered = hot_path.try_answer(piece, nbytes, shared.max_slots)
                if answered is not None:
                    answer, start = answered
                    pipeline.sender.send(answer)
                    if start == nbytes:
                        return
            pipeline.take_turn(start, nbytes)
            return
        self._buffers.keep_arena(pipeline.run_piece(nbytes))

    def pause_writing(self) -> None:
        """The client does not take its replies: start nothing more."""
        self._pauses.hold(OUTPUT)

    def resume_writing(self) -> None:
        """It takes them again."""
        self._shared.answer_memory.note_taken(self.pipeline)
        self._pauses.release(OUTPUT)
        self.pipeline.plan()

    def __str__(self) -> str:
<<<<<<< HEAD
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
=======
        return str(self.peer)


def _plain_host(host: str) -> str:
    """An IPv4 address as such, also where a dual-stack socket shows it as `::ffff:192.0.2.1`."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host
>>>>>>> ceac472 (Net: a thin asyncio protocol over a request pipeline, a frame reader, a reply queue, pauses and a sender)
