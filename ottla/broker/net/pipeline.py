"""The second layer of a connection: which of its requests start, in which order and turn, and when replies leave.

A request starts as soon as it is complete, unless the newest request in flight *parks* (a long poll; then nothing
starts after it) or too many are in flight (`reply_queue.py`). Requests that may not start yet wait in the connection's
own buffer (`frame_reader.py`). Replies leave in the order of the requests, all of a turn in one send. A connection with
much work in one turn continues in the next one, so that every connection gets a turn; any reason against reading pauses
it (`read_pauses.py`).

It decides nothing about requests: templates answer those that look like earlier ones, a `Dispatcher` starts all others.
There is no task or coroutine per request (docs/decisions/handlers-without-tasks.md).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, cast

from ottla.broker.net.frame_reader import FrameReader, describe_bad_size
from ottla.broker.net.read_pauses import (
    DRAIN,
    ENOUGH,
    LATER,
    MEMORY,
    NO_STARTS,
    PARKED,
    QUEUE,
    READ,
    THROTTLED,
    ReadPauses,
)
from ottla.broker.net.reply_queue import NOTHING, ReplyQueue
from ottla.broker.net.shared import LARGE_SEND_BYTES
from ottla.broker.peer import Peer
from ottla.broker.runtime.in_flight_request import CloseConnection, InFlightRequest
from ottla.protocol.framing import SIZE, SIZE_BYTES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ottla.broker.net.held_bytes import HeldBytes
    from ottla.broker.net.shared import SharedState
    from ottla.broker.runtime.answer_memory import Reservation
    from ottla.broker.runtime.timers import Timer
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.connection")

LARGE_READ_BYTES = 4 << 20
"""The most bytes of large frames that are read from a client before others are read: libuv reads a full socket up to 32
times in a row, which is 32 MB of frames of 1 MB, with appends between them."""


class RequestPipeline(ReadPauses, ABC):
    """See the module. It can pause and end its transport, and nothing else.

    Attributes:
        peer: the client, as requests see it.
        closing: why the connection ends, None while it does not.
        dispatcher: starts its requests: the broker's dispatcher, or the one before the login (`Door`).
        reader: the buffers of its reads, and requests that have not started.
        queue: its requests in flight, and replies that may leave.
    """

    __slots__ = (
        "_is_planned",
        "_large_bytes",
        "_long_turn",
        "_reservation",
        "_shared",
        "_throttle",
        "closing",
        "dispatcher",
        "peer",
        "queue",
        "reader",
    )

    transport: asyncio.Transport | None

    def __init__(self, shared: SharedState, listener: str) -> None:
        super().__init__()
        self._shared = shared
        self.peer = Peer(shared.endpoint(listener), owner=self)
        door = shared.doors.get(listener)
        self.dispatcher = shared.dispatcher if door is None else door.open(self.peer)
        max_frame_bytes = shared.max_frame_bytes if door is None else door.max_frame_bytes
        self.reader = FrameReader(shared, max_frame_bytes, self)
        self.queue = ReplyQueue(self, shared)
        self._large_bytes = 0
        """Bytes of large frames, since reading them last paused."""
        self._is_planned = False
        self._long_turn = -1
        """The last turn that became long after this connection had started a request in it."""
        self._reservation: Reservation | None = None
        """The memory of an answer that is ready and has not left."""
        self._throttle: Timer | None = None
        """Ends the time for which the connection is muted."""
        self.closing: str | None = None

    @abstractmethod
    def send(self, replies: Sequence[Buffer]) -> None:
        """Write replies to the socket."""

    # -- the life of the connection -----------------------------------------------------------------------------------

    def close(self, reason: str, *, level: int = logging.WARNING) -> None:
        """End the connection at the end of this turn, after the replies that are ready; one log line has the reason."""
        if self.closing is None:
            self.closing = reason
            self.peer.hot_path = None  # so that the fast path need not check whether the connection ends
            LOG.log(level, "%s: closing: %s", self.peer, reason)
            self.plan()

    def close_for_memory(self, what_for: str) -> None:
        """Close: the system gives no memory, and a connection that needs some must end."""
        self._shared.memory_reserve.let_go()
        self.close(f"the system gives no memory {what_for}")

    def close_after(self, wait_ms: float, reason: str) -> None:
        """Close it after `wait_ms`, without reading; does nothing if it has ended by then."""
        self._shared.timers.at(self._shared.now_ms() + wait_ms, lambda: self._close_unheard(reason))

    def _close_unheard(self, reason: str) -> None:
        if self.transport is not None:
            self.closing = self.closing or reason
            self.abort()

    def _end_for(self, error: CloseConnection | MemoryError) -> None:
        """Close: a request could not be started."""
        if isinstance(error, MemoryError):
            self.close_for_memory("for its request")
        else:
            self._shared.metrics.malformed_requests += 1
            self.close(str(error))

    def _end_for_size(self, size_bytes: int, begins: memoryview) -> None:
        """Close: a frame is too long; `begins` are its first bytes."""
        max_frame_bytes = self.reader.max_frame_bytes
        is_stranger = max_frame_bytes != self._shared.max_frame_bytes
        key = "sasl.server.max.receive.size" if is_stranger else "socket.request.max.bytes"
        self.close(describe_bad_size(size_bytes, bytes(begins), max_frame_bytes, key))

    def admit(self, *, is_watched: bool) -> None:
        """Admit requests: the client has authenticated (`Peer.authenticated`)."""
        self.reader.max_frame_bytes = self._shared.max_frame_bytes
        if not is_watched:
            self.dispatcher = self._shared.dispatcher

    def abort(self) -> None:
        """End the connection now."""
        self.closing = self.closing or "aborted"
        self.peer.hot_path = None
        if self.transport is not None:
            self.transport.abort()

    def drain(self) -> None:
        """Read no more, and end when the started requests are answered; long polls end now."""
        self.pause_reading(DRAIN)
        self.reader.drop()
        self.queue.cut_short()
        self.plan()

    def end(self) -> None:
        """Drop all answers: the connection has ended."""
        self.queue.end()
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle = None
        self._release_reservation()
        self.reader.end()
        self._shared.later.discard(self)
        self.peer.end()

    @property
    def is_waiting(self) -> bool:
        """Whether a started request has no answer yet, or an answer has not left."""
        transport = self.transport
        unsent = transport is not None and transport.get_write_buffer_size()
        return bool(self.queue.in_flight or self.queue.out or unsent)

    # -- what a read has brought --------------------------------------------------------------------------------------

    def read_into_own(self, nbytes: int) -> None:
        """Handle `nbytes` more in this connection's own buffer, or in the lent one.

        A large frame that is complete now gets its own turn, or needs none. So its buffer can take the next one while
        it is in the cache, and the loop, which reads as long as reads are full, does not fill one buffer after another.
        """
        reader = self.reader
        if self.closing is not None and reader.discards:
            self.abort()
            return
        self._large_bytes += nbytes
        if self._large_bytes >= LARGE_READ_BYTES:
            self._large_bytes = 0
            self.pause_reading(READ)  # before anything else: an immediate answer is possible nevertheless
            self.plan()
        held = reader.received(nbytes)
        if held is None:
            return
        following = self._answer_large(held.view, held.end) if reader.is_whole else 0
        if following == held.end:
            reader.reuse(held)
            return
        is_whole, turn = reader.is_whole, self._shared.turn
        if not reader.own(held, following):
            return
        if not is_whole or turn.has_work:
            self._run_held(held)
            return
        turn.has_work = self._is_planned = True
        try:
            self._run_held(held)
        finally:
            turn.end(self._end_turn)

    def _answer_large(self, view: memoryview, end: int) -> int:
        """Answer the frame in `view[:end]` now, if possible. Returns where the next one begins, 0 if it must wait."""
        shared, hot_path = self._shared, self.peer.hot_path
        if (
            hot_path is None
            or self.transport is None
            or self.queue.in_flight
            or self.pause_reasons & ~READ
            or self.closing
            or shared.later.waiting
            or self._shared.turn.is_long
        ):
            return 0
        answered = hot_path.try_answer(view, end, shared.max_in_flight)
        if answered is None:
            return 0
        answer, following = answered
        if self._is_planned:
            self.queue.let_out(answer)
        else:
            self.send(answer)
        return following

    def take_turn(self, start: int, nbytes: int, *, is_clear: bool) -> None:
        """Begin a turn with the received bytes in the arena from `start` on, and end it.

        `is_clear`: no other request of this connection was in flight when they were read.
        """
        turn, piece = self._shared.turn, self.reader.piece
        assert piece is not None
        turn.has_work = self._is_planned = True
        try:
            start = self._start_frames(piece, start, nbytes)
            if start < nbytes and self.closing is None:
                self._keep(piece[start:nbytes])
            turn.serves_one = is_clear and not turn.is_pipelined
        finally:
            turn.end(self._end_turn)

    def run_piece(self, nbytes: int) -> int:
        """Start the requests in the arena, and keep the rest; return how many bytes the turn uses in place."""
        piece, self.reader.piece = self.reader.piece, None
        assert piece is not None
        start = self._start_frames(piece, 0, nbytes)
        if start < nbytes and self.closing is None:
            self._keep(piece[start:nbytes])
        return start

    def _start_frames(self, view: memoryview, start: int, end: int, *, is_due: bool = False) -> int:
        """Start the complete frames of `view[start:end]` that may start; return where the first other one begins.

        `is_due`: this connection has waited for its turn, and others that wait do not come first.
        """
        shared, peer, queue, reader = self._shared, self.peer, self.queue, self.reader
        turn, later = shared.turn, shared.later.waiting
        started = ready_bytes = 0
        while end - start >= SIZE_BYTES and self.closing is None:
            in_flight = queue.in_flight
            if (in_flight or self.pause_reasons) and self.is_blocked():
                break
            if turn.is_long or (later and not is_due):
                if started:
                    self._long_turn = turn.number
                self._wait_for_turn()
                break
            reply: list[Buffer] | InFlightRequest | None
            hot_path = peer.hot_path
            if hot_path is not None:
                most, newest = shared.max_in_flight - queue.requests, in_flight[-1] if in_flight else None
                begun = hot_path.start(view, start, end, most, newest)
                if begun is not None:
                    reply, start, count = begun
                    started += count
                    if reply is newest:
                        queue.requests += count
                    else:
                        ready_bytes += self._take_reply(reply, has_more=start < end)
                        if ready_bytes >= shared.max_pending_bytes:
                            self.pause_reading(ENOUGH)
                    continue
            (size_bytes,) = SIZE.unpack_from(view, start)
            if not 0 < size_bytes <= reader.max_frame_bytes:
                self._end_for_size(size_bytes, view[start : min(start + 8, end)])
                break
            following = start + SIZE_BYTES + size_bytes
            if following > end:
                break
            try:
                reply = self.dispatcher.start(view[start + SIZE_BYTES : following], peer)
            except (CloseConnection, MemoryError) as error:
                self._end_for(error)
                break
            started += 1
            start = following
            if reply is not None:
                ready_bytes += self._take_reply(reply, has_more=following < end)
                if ready_bytes >= shared.max_pending_bytes:
                    self.pause_reading(ENOUGH)
        if started > 1:
            self._note_pipelined(ready_bytes)
        if started and not is_due and queue.out and not self._is_planned:
            self.plan()
        return start

    def _note_pipelined(self, ready_bytes: int) -> None:
        """Note that one read brought several requests, whose answers take so much memory until the turn ends."""
        self._shared.turn.is_pipelined = True
        if ready_bytes > LARGE_SEND_BYTES:
            self._shared.answer_memory.note_copied(ready_bytes)

    def _take_reply(self, reply: list[Buffer] | InFlightRequest, *, has_more: bool) -> int:
        """Add the reply of a request after those before it; return how many bytes may leave, if that matters."""
        if self.queue.add(reply) and has_more:
            return sum(map(len, cast("list[Buffer]", reply)))
        return 0

    def is_blocked(self) -> bool:
        """Whether no request may start: after a parked one, with a full queue, or for a reason in NO_STARTS."""
        return bool(self.pause_reasons & NO_STARTS) or (bool(self.queue.in_flight) and self.queue.blocks)

    def _run_held(self, held: HeldBytes, *, is_due: bool = False) -> None:
        """Start the held requests that may start, and keep the rest in order."""
        start = self._start_frames(held.view, held.start, held.end, is_due=is_due)
        if self.closing is not None:
            self.reader.drop()  # it may be full, and the loop may call `get_buffer` until the turn ends
            return
        self.reader.started(held, start, is_blocked=self.is_blocked())
        self._update_pauses()

    def _keep(self, tail: memoryview) -> None:
        """Hold the beginning of a frame, or frames that may not start yet."""
        self.reader.keep(tail, is_blocked=self.is_blocked())
        self._update_pauses()

    def memory_came(self) -> None:
        """Try to get room again: bytes were given back."""
        if self.closing is None and self.reader.grow_or_wait():
            self._update_pauses()  # the buffer may also have been full after a parked request
            self.resume_reading(MEMORY)

    # -- the end of the turn ------------------------------------------------------------------------------------------

    def replies_moved(self) -> None:
        """Plan the end of the turn: replies may leave, or requests without a reply have ended."""
        if not self.queue.in_flight:
            self._shared.turn.serves_one = False  # answered before the sync (acks=1): no client waits for that
        if not self._is_planned:
            self.plan()

    def send_alone(self, reply: list[Buffer]) -> None:
        """Send the only reply, of a request that has waited until the end of this turn or until its deadline.

        It leaves immediately, if this connection has nothing else to do at the turn's end.
        """
        if (
            self._is_planned
            or self.pause_reasons
            or self.reader.held is not None
            or self.closing is not None
            or (self._shared.large_bytes and self._shared.has_sent_enough)
            or self.transport is None
        ):
            self.queue.let_out(reply)
            self.replies_moved()
        else:
            self.send(reply)

    def plan(self) -> None:
        """Have `_end_turn` called at the end of this turn."""
        if not self._is_planned:
            self._is_planned = True
            try:
                self._shared.turn.send_at_end(self._end_turn)
            except BaseException:
                self._is_planned = False
                raise

    def _end_turn(self) -> None:
        """Start requests that an answer has unblocked, send all replies in one call, close if that was decided."""
        self._is_planned = False
        transport, queue = self.transport, self.queue
        if transport is None:
            return
        try:
            if (
                self.queue.in_flight
                or self.pause_reasons
                or self.reader.held is not None
                or self.closing is not None
                or self._shared.large_bytes
            ):
                self._end_full_turn(transport)
            elif queue.out:
                out, queue.out = queue.out, NOTHING  # `queue.take()`, inlined
                self.send(out)
        except MemoryError:  # replies may be lost, and the client must not wait for them
            self._shared.memory_reserve.let_go()
            self.abort()

    def _end_full_turn(self, transport: asyncio.Transport) -> None:
        """`_end_turn` if there is more to do than to send replies."""
        if self.closing is not None and transport.is_closing():
            self.queue.take()  # replies that became ready after the close and before `connection_lost`
            self._release_reservation()
            return
        shared, queue = self._shared, self.queue
        if self.pause_reasons & READ:
            self.resume_reading(READ)
        held = self.reader.held
        if held is not None and self.closing is None and not (self.pause_reasons & (LATER | DRAIN)):
            self._run_held(held, is_due=True)
        # Checked after `_run_held`: replies of the requests that it started count, too.
        if shared.has_sent_enough and sum(map(len, queue.out)) > LARGE_SEND_BYTES:
            self.pause_reading(ENOUGH)
            self.plan()
            return
        if self._reservation is not None and not self.queue.in_flight:
            self._release_reservation()  # from now on it counts as unsent, if the client does not take it
        if queue.out:
            self.send(queue.take())
        if self.pause_reasons & ENOUGH and self._reservation is None:
            self.resume_reading(ENOUGH)
            self.plan()
        if self.pause_reasons or self.queue.in_flight:
            self._update_pauses()
        if self.closing is not None:
            transport.close()
        elif self.pause_reasons & DRAIN and not self.queue.in_flight:
            self.closing = "drained"
            transport.close()

    def take_later_turn(self) -> None:
        """Start the requests that have waited for a turn, and end it."""
        self.resume_reading(LATER)
        self._end_turn()

    # -- what it waits for --------------------------------------------------------------------------------------------

    def hold_answer(self, reservation: Reservation) -> None:
        """Start nothing more until the next answer has left: it takes the memory of `reservation`."""
        self._reservation = reservation
        self.pause_reading(ENOUGH)

    def throttle(self, duration_ms: float) -> None:
        """Read and start nothing for so long, or until the end of an earlier call, if that is later."""
        if self.transport is None:
            return
        until_ms = self._shared.now_ms() + duration_ms
        if self._throttle is not None:
            if self._throttle.deadline_ms >= until_ms:
                return
            self._throttle.cancel()
        self.pause_reading(THROTTLED)
        self._throttle = self._shared.timers.at(until_ms, self._end_throttle)

    def _end_throttle(self) -> None:
        self._throttle = None
        self.reader.owe_from_now()
        self.resume_reading(THROTTLED)
        self.plan()

    def _release_reservation(self) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def _wait_for_turn(self) -> None:
        """Continue in a later turn: the requests of this one have held the loop for long enough.

        A connection that has started something in this turn comes after those that have not.
        """
        self.pause_reading(LATER)
        if self._long_turn == self._shared.turn.number:
            self._shared.turn.last(self._wait_after_others)
        else:
            self._shared.later.add(self)

    def _wait_after_others(self) -> None:
        """Wait after the connections that began to wait in the turn that ends now."""
        if self.transport is not None:
            self._shared.later.add(self)

    def _update_pauses(self) -> None:
        """After requests started or replies left: read again if no reason is left."""
        queue = self.queue
        if queue.is_full:
            self.pause_reading(QUEUE)
        elif self.pause_reasons & QUEUE:
            self.resume_reading(QUEUE)
        if self.pause_reasons & PARKED and self.reader.has_room:
            self.resume_reading(PARKED)
