"""One client's connection as asyncio's protocol, the third and last layer of it: from the socket, and to the socket.

The same class serves plaintext and TLS: it sees only the transport. What starts, and when its reply leaves, is decided
in `pipeline.py`; where reads go, in `frame_reader.py`. Only the shortest way is here, from the socket and back: the
requests of a client that is alone and that templates answer (`broker/fast`) need neither.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING, Protocol, cast

from ottla.address import plain_host
from ottla.broker.net.pipeline import RequestPipeline
from ottla.broker.net.read_pauses import OUTPUT
from ottla.broker.net.reply_pieces import MOST_LEFT_BYTES, behind, joined, unmapped_bytes
from ottla.broker.net.shared import LARGE_SEND_BYTES
from ottla.broker.peer import UNKNOWN_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.net.shared import SharedState
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.connection")

MAX_PIECES = 1024
"""Of one `writev` (IOV_MAX)."""
NO_DESCRIPTOR = -1
READS_ALONE = 16
"""A connection that has had so many reads in a row is taken for the only one that sends."""


class Registry(Protocol):
    """What counts connections (`Connections`)."""

    def add(self, connection: Connection) -> str | None:
        """Count a new connection; the reason when it may not stay."""

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""


class Connection(RequestPipeline, asyncio.BufferedProtocol):
    """The protocol of one connection; made by `Connections`.

    The socket is written to directly where the transport has nothing waiting, by `_fd`. That is plaintext on uvloop
    only, where the descriptor is the stream; TLS, and every other loop, get all from the transport, and `_fd` is
    NO_DESCRIPTOR.

    Attributes:
        has_received, has_sent: whether it has, since the sweep of silent connections looked last.
        last_active_ms: when the sweep last found that it had received or sent anything. (A look at the clock on each
            read costs more than it is worth.)
        handshake_since_ms: since when the client owes the rest of its TLS handshake, or of its authentication; None
            where it owes nothing.
    """

    __slots__ = (
        "_fd",
        "_is_behind",
        "_is_clear",
        "_registry",
        "handshake_since_ms",
        "has_received",
        "has_sent",
        "last_active_ms",
    )

    def __init__(self, shared: SharedState, registry: Registry, listener: str) -> None:
        super().__init__(shared, listener)
        self._registry = registry
        self._fd = NO_DESCRIPTOR
        self._is_behind = True
        """Whether the transport may hold replies that the socket has not taken, or has to be given all."""
        self._is_clear = False
        """Whether nothing of this connection stood before the newest read, which went into the arena."""
        self.has_sent = False
        self.has_received = True  # to connect counts, too; so its time is that of a sweep, one number for many
        self.last_active_ms = 0.0
        self.handshake_since_ms: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: note its addresses, or refuse it."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
        peer = self.peer
        name = transport.get_extra_info("peername")
        if name:
            peer.host, peer.port = sys.intern(plain_host(str(name[0]))), int(name[1])
        local = transport.get_extra_info("sockname")
        address = (plain_host(str(local[0])), int(local[1])) if local else UNKNOWN_ADDRESS
        is_tls = transport.get_extra_info("sslcontext") is not None
        peer.endpoint = self._shared.endpoint(peer.endpoint.listener, address, is_tls=is_tls)
        # A client that has left only a little of a long answer holds all of its memory, so it goes on when it has all.
        transport.set_write_buffer_limits(high=MOST_LEFT_BYTES, low=0)
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if raw is not None and peer.endpoint.sends_maps:
            self._fd, self._is_behind = raw.fileno(), False
        self.transport = transport
        refusal = self._registry.add(self)
        if refusal is not None:
            self.closing = refusal
            transport.abort()
        elif peer.authentication is not None:
            peer.authentication.begin()

    def handshake_done(self) -> None:
        """The TLS handshake is done, and `peer.principal` is who the client's certificate names."""
        self.handshake_since_ms = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: nobody waits for its answers any more."""
        self.transport, self._fd, self._is_behind = None, NO_DESCRIPTOR, True
        if exc is not None and self.closing is None:
            level = logging.ERROR if isinstance(exc, OSError) and exc.errno == errno.EFAULT else logging.DEBUG
            LOG.log(level, "%s: connection lost: %s", self, exc)
        self.closing = self.closing or "lost"
        self.end()
        self._registry.remove(self)

    def eof_received(self) -> bool:
        """The client sends no more: it is gone (Kafka's clients never close one half only)."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        reader = self.reader
        try:
            if reader.held is None and not (reader.expected_bytes or self.queue.in_flight or self.pause_reasons):
                # Of what `next_buffer` does only this much, without the call.
                shared = self._shared
                buffers = shared.buffers
                if buffers.arena_turn != shared.turn.number:
                    reader.piece = piece = buffers.first_piece
                else:
                    reader.piece = piece = buffers.arena_piece()
                self._is_clear = True
                return piece
            self._is_clear = False
            may_block = self.queue.in_flight or self.pause_reasons
            return reader.next_buffer(is_blocked=bool(may_block) and self.is_blocked())
        except (MemoryError, OSError):
            # Raised to the loop it would end nothing there, for want of memory, and the socket stays readable.
            self._is_clear = False
            self.close_for_memory("to read into")
            return reader.discard()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more came."""
        shared, reader = self._shared, self.reader
        shared.metrics.bytes_received += nbytes
        self.has_received = True
        piece, hot_path = reader.piece, self.peer.hot_path
        if not self._is_clear or piece is None:
            if reader.held is not None or reader.lent is not None:
                self.read_into_own(nbytes)
                return
            hot_path = None  # what it has brought may not be answered at once
        elif shared.later.waiting:
            hot_path = None
        elif hot_path is not None and hot_path.fetch is not None:
            parked = hot_path.try_park(piece, nbytes)
            if parked is not None:
                # Who only waits for others to send has nothing to do in a turn, and leaves them alone.
                self.queue.add_parked(parked)
                return
        turn = shared.turn
        if shared.last_reader is not self:
            shared.last_reader = self
            shared.reads_in_a_row = 0
        elif shared.reads_in_a_row < READS_ALONE:
            shared.reads_in_a_row += 1
        elif not turn.has_work:
            # No other client sends: the turn need not wait for the loop to come around. Requests that can be answered
            # at once need none: without work in the turn nothing is gathered, and no reply waits to be sent.
            start = 0
            if hot_path is not None and piece is not None:
                turn.is_alone = True
                try:
                    answered = hot_path.try_answer(piece, nbytes, shared.max_in_flight)
                    if answered is not None:
                        answer, start = answered
                        self.send(answer)
                finally:
                    turn.is_alone = False
                    behind = turn.behind
                    if behind is not None:  # one other has waited for what was appended
                        turn.behind = None
                        behind.look_alone()
                    if shared.turn.has_work:  # others have, or it goes on by the slow path
                        turn.end()
                if start == nbytes:
                    return
            self.take_turn(start, nbytes, is_clear=self._is_clear)
            return
        kept = self.run_piece(nbytes)
        if turn.has_work:  # a request that only waits keeps nothing of what was received
            shared.buffers.keep_arena(kept)

    def send(self, replies: Sequence[Buffer]) -> None:
        """Give replies to the socket, or to its transport where that has not sent all of earlier ones yet.

        The transport would write to the socket, too, but not before it has queued the bytes and come around to its
        queue. Order holds because a transport that has something waiting is never overtaken. What the client does not
        take counts for the memory of answers.
        """
        shared = self._shared
        self.has_sent = True
        if len(replies) == 1 and not self._is_behind:  # nearly always: in the fewest steps
            (reply,) = replies
            size_bytes = len(reply)
            try:
                sent = os.write(self._fd, reply)
            except OSError:  # full, or lost: the transport meets it again, and knows what to do
                sent = 0
        else:
            size_bytes = 0
            for reply in replies:  # `sum` and `map` take longer for as few as these are
                size_bytes += len(reply)
            if len(replies) > MAX_PIECES or (self._is_behind and self._must_queue()):
                sent = 0
            else:
                try:
                    sent = os.writev(self._fd, replies)
                except OSError:  # as above
                    sent = 0
        if sent != size_bytes:
            self._queue(replies, sent)
        elif self._is_behind:
            self._is_behind = False
        shared.metrics.bytes_sent += size_bytes
        if size_bytes > LARGE_SEND_BYTES:
            shared.note_large_send(size_bytes)

    def send_alone(self, reply: list[Buffer]) -> None:
        """As in `RequestPipeline`. Most such replies are one short piece, and nothing stands in its way."""
        piece = reply[0]
        size_bytes = len(piece)
        if (
            self._is_behind
            or len(reply) > 1
            or size_bytes > LARGE_SEND_BYTES
            or self._is_planned
            or self.pause_reasons
            or self.reader.held is not None
            or self.closing is not None
        ):
            super().send_alone(reply)
            return
        # `send`, without the call.
        self.has_sent = True
        try:
            sent = os.write(self._fd, piece)
        except OSError:
            sent = 0
        if sent != size_bytes:
            self._queue(reply, sent)
        self._shared.metrics.bytes_sent += size_bytes

    def _must_queue(self) -> bool:
        """Whether the transport has to be given all: there is no other way, or it has something waiting."""
        transport = self.transport
        return self._fd == NO_DESCRIPTOR or (transport is not None and transport.get_write_buffer_size() > 0)

    def _queue(self, replies: Sequence[Buffer], sent: int) -> None:
        """Give the transport what is left of `replies` after the first `sent` bytes."""
        assert self.transport is not None
        self._is_behind = True
        self.transport.writelines(joined(behind(replies, sent) if sent else replies))
        if self.pause_reasons & OUTPUT:
            self._shared.answer_memory.note_unsent(self, unmapped_bytes(replies))

    def pause_writing(self) -> None:
        """The client does not take its replies: start nothing more."""
        self.pause_reading(OUTPUT)

    def resume_writing(self) -> None:
        """It takes them again."""
        self._shared.answer_memory.note_taken(self)
        self.resume_reading(OUTPUT)
        self.plan()

    def __str__(self) -> str:
        return str(self.peer)
