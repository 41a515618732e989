"""The second layer of a connection: which of its requests start, in which order and turn, and when replies leave.

A request starts as soon as it is whole, unless the newest request in flight *parks* (a long poll; then nothing starts
after it) or too many are in flight (`reply_queue.py`). What may not start yet waits in the connection's own buffer
(`frame_reader.py`). Replies leave in the order of the requests, all of a turn in one send. A connection that asks for
much in one turn continues in the next one, so that every connection gets a turn; any reason against reading pauses it
(`read_pauses.py`).

It decides nothing about requests: templates answer those that look like earlier ones, a `Dispatcher` starts the others.
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
"""So much of large frames is read of a client before others are: libuv reads a socket that stays full up to 32 times in
a row, which is 32 MB of frames of 1 MB, and appends between them."""


class RequestPipeline(ReadPauses, ABC):
    """See the module. Of its transport it knows how to pause and how to end it.

    Attributes:
        peer: the client, as requests see it.
        closing: why the connection ends, None while it does not.
        dispatcher: what starts its requests: the broker's, or what stands in front of it (`Door`).
        reader: where its reads go, and what has not started.
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
        """Of large frames, since reading them last paused."""
        self._is_planned = False
        self._long_turn = -1
        """The last turn that was long when this connection had started something in it."""
        self._reservation: Reservation | None = None
        """The memory of an answer that is there and has not left."""
        self._throttle: Timer | None = None
        """Ends the time for which the connection is muted."""
        self.closing: str | None = None

    @abstractmethod
    def send(self, replies: Sequence[Buffer]) -> None:
        """Give replies to the socket."""

    # -- the life of the connection -----------------------------------------------------------------------------------

    def close(self, reason: str, *, level: int = logging.WARNING) -> None:
        """End the connection at the end of this turn, after the replies that are there; one log line says why."""
        if self.closing is None:
            self.closing = reason
            self.peer.hot_path = None  # so that the fast path need not ask whether the connection ends
            LOG.log(level, "%s: closing: %s", self.peer, reason)
            self.plan()

    def close_for_memory(self, what_for: str) -> None:
        """The system gives no memory: what needs some ends, so that there is."""
        self._shared.memory_reserve.let_go()
        self.close(f"the system gives no memory {what_for}")

    def admit(self, *, is_watched: bool) -> None:
        """The client has authenticated: see `Peer.authenticated`."""
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
        """Read no more, and end once the requests that have started are answered; long polls are cut short."""
        self.pause_reading(DRAIN)
        self.reader.drop()
        self.queue.cut_short()
        self.plan()

    def end(self) -> None:
        """The connection has ended: its answers are dropped."""
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
        """`nbytes` more came into the buffer of this connection's own, or into the one that was lent for them.

        A large frame that is whole now is enough for a turn of its own, or needs none: its buffer takes the next one
        while that is warm, and the loop, which reads on as long as reads are filled, does not fill one after the other.
        """
        reader = self.reader
        if self.closing is not None and reader.discards:
            self.abort()
            return
        self._large_bytes += nbytes
        if self._large_bytes >= LARGE_READ_BYTES:
            self._large_bytes = 0
            self.pause_reading(READ)  # before anything else: what is answered at once may be, all the same
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
        """Answer the frame in `view[:end]` at once if that may be; where the next one begins, 0 when it must wait."""
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
        """Begin a turn with what came into the arena from `start` on, and end it.

        `is_clear` says that no other request of this connection was in flight when that was read.
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
        """Start what came into the arena, and keep what is left over; how many bytes the turn looks at in place."""
        piece, self.reader.piece = self.reader.piece, None
        assert piece is not None
        start = self._start_frames(piece, 0, nbytes)
        if start < nbytes and self.closing is None:
            self._keep(piece[start:nbytes])
        return start

    def _start_frames(self, view: memoryview, start: int, end: int, *, is_due: bool = False) -> int:
        """Start the whole frames of `view[start:end]` as far as they may; where the first unstarted one begins.

        `is_due` says that this connection has waited for its turn: others that wait do not come first.
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
        """One read brought several requests, whose answers take so much until the turn ends."""
        self._shared.turn.is_pipelined = True
        if ready_bytes > LARGE_SEND_BYTES:
            self._shared.answer_memory.note_copied(ready_bytes)

    def _take_reply(self, reply: list[Buffer] | InFlightRequest, *, has_more: bool) -> int:
        """Put the reply of a request after those before it; how many bytes may leave already, if that counts."""
        if self.queue.add(reply) and has_more:
            return sum(map(len, cast("list[Buffer]", reply)))
        return 0

    def is_blocked(self) -> bool:
        """Whether no request may start: behind a parked one, a full queue, or output that is not taken."""
        return bool(self.pause_reasons & NO_STARTS) or (bool(self.queue.in_flight) and self.queue.blocks)

    def _run_held(self, held: HeldBytes, *, is_due: bool = False) -> None:
        """Start what may start of the held bytes, and keep the rest in order."""
        start = self._start_frames(held.view, held.start, held.end, is_due=is_due)
        if self.closing is not None:
            self.reader.drop()  # it may be full, and until the turn ends the loop asks where the next read goes
            return
        self.reader.started(held, start, is_blocked=self.is_blocked())
        self._update_pauses()

    def _keep(self, tail: memoryview) -> None:
        """Hold the beginning of a frame, or frames that may not start yet."""
        self.reader.keep(tail, is_blocked=self.is_blocked())
        self._update_pauses()

    def memory_came(self) -> None:
        """Somebody gave bytes back: try again."""
        if self.closing is None and self.reader.grow_or_wait():
            self._update_pauses()  # it may have been full behind what blocked it, too
            self.resume_reading(MEMORY)

    # -- the end of the turn ------------------------------------------------------------------------------------------

    def replies_moved(self) -> None:
        """Replies may leave, or requests have been answered that have none."""
        if not self._is_planned:
            self.plan()

    def send_alone(self, reply: list[Buffer]) -> None:
        """Send the only reply there is, of a request that has waited until the end of this turn or its time was over.

        That is at once, where nothing else of this connection has to be done at the turn's end.
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
        """Start what an answer has unblocked, send all replies in one call, close if that was decided."""
        self._is_planned = False
        transport, queue = self.transport, self.queue
        if transport is None:
            return
        if (
            self.queue.in_flight
            or self.pause_reasons
            or self.reader.held is not None
            or self.closing is not None
            or self._shared.large_bytes
        ):
            self._end_full_turn(transport)
        elif queue.out:
            out, queue.out = queue.out, NOTHING  # `queue.take()`, without the call
            self.send(out)

    def _end_full_turn(self, transport: asyncio.Transport) -> None:
        """`_end_turn` where there is more to it than replies to send."""
        if self.closing is not None and transport.is_closing():
            self.queue.take()  # what became ready after it was closed and before its end is noticed
            self._release_reservation()
            return
        shared, queue = self._shared, self.queue
        if self.pause_reasons & READ:
            self.resume_reading(READ)
        held = self.reader.held
        if held is not None and self.closing is None and not (self.pause_reasons & (LATER | DRAIN)):
            self._run_held(held, is_due=True)
        # By now: what has just begun counts, too.
        if shared.has_sent_enough and sum(map(len, queue.out)) > LARGE_SEND_BYTES:
            self.pause_reading(ENOUGH)
            self.plan()
            return
        if self._reservation is not None and not self.queue.in_flight:
            self._release_reservation()  # from here on it counts as unsent, if the client does not take it
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
        """Start what has waited for a turn, and end it."""
        self.resume_reading(LATER)
        self._end_turn()

    def hold_answer(self, reservation: Reservation) -> None:
        """The answer that comes next takes so much memory: nothing more starts until it has left."""
        self._reservation = reservation
        self.pause_reading(ENOUGH)

    def throttle(self, duration_ms: float) -> None:
        """Read and start nothing for so long, or for as long as an earlier call has said, if that is longer."""
        if self.transport is None:
            return
        until_ms = self._shared.now_ms() + duration_ms
        if self._throttle is not None:
            if self._throttle.deadline_ms >= until_ms:
                return
            self._throttle.cancel()
        self.pause_reading(THROTTLED)
        self._throttle = self._shared.timers.at(until_ms, self._end_throttle)

    def close_after(self, wait_ms: float, reason: str) -> None:
        """Close it in a while, unheard; nothing where it has ended by then."""
        self._shared.timers.at(self._shared.now_ms() + wait_ms, lambda: self._close_unheard(reason))

    def _close_unheard(self, reason: str) -> None:
        if self.transport is not None:
            self.closing = self.closing or reason
            self.abort()

    def _end_throttle(self) -> None:
        self._throttle = None
        self.reader.owe_from_now()
        self.resume_reading(THROTTLED)
        self.plan()

    def _end_for(self, error: CloseConnection | MemoryError) -> None:
        """A request could not be started."""
        if isinstance(error, MemoryError):
            self.close_for_memory("for its request")
        else:
            self._shared.metrics.malformed_requests += 1
            self.close(str(error))

    def _end_for_size(self, size_bytes: int, begins: memoryview) -> None:
        """A frame that may not be so long, with its first bytes."""
        max_frame_bytes = self.reader.max_frame_bytes
        is_stranger = max_frame_bytes != self._shared.max_frame_bytes
        key = "sasl.server.max.receive.size" if is_stranger else "socket.request.max.bytes"
        self.close(describe_bad_size(size_bytes, bytes(begins), max_frame_bytes, key))

    def _release_reservation(self) -> None:
        reservation, self._reservation = self._reservation, None
        if reservation is not None:
            reservation.release()

    def _wait_for_turn(self) -> None:
        """The requests of this turn have held the loop for long enough: go on in a later one.

        A connection that has started something in this turn comes after those that have not.
        """
        self.pause_reading(LATER)
        if self._long_turn == self._shared.turn.number:
            self._shared.turn.last(self._wait_after_others)
        else:
            self._shared.later.add(self)

    def _wait_after_others(self) -> None:
        """Behind the connections that began to wait in the turn that ends now."""
        if self.transport is not None:
            self._shared.later.add(self)

    def _update_pauses(self) -> None:
        """After requests started or replies left: read again where nothing stands against it."""
        queue = self.queue
        if queue.is_full:
            self.pause_reading(QUEUE)
        elif self.pause_reasons & QUEUE:
            self.resume_reading(QUEUE)
        if self.pause_reasons & PARKED and self.reader.has_room:
            self.resume_reading(PARKED)
