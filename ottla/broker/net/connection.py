"""One client's connection as an asyncio protocol, its third and last layer: from the socket, and to the socket.

The same class serves plaintext and TLS: it sees only the transport. `pipeline.py` decides which requests start and when
replies leave; `frame_reader.py` decides where reads go. Only the fastest path is here, from the socket and back:
requests that templates answer (`broker/fast`), of the only active client, need neither.
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
    from ottla.broker.peer import FastPath
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.connection")

MAX_PIECES = 1024
"""The most pieces of one `writev` (IOV_MAX)."""
NO_DESCRIPTOR = -1
READS_ALONE = 16
"""After so many reads in a row a connection counts as the only one that sends."""


class Registry(Protocol):
    """The registry that counts connections (`Connections`)."""

    def add(self, connection: Connection) -> str | None:
        """Count a new connection; return the reason if it may not stay."""

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""


class Connection(RequestPipeline, asyncio.BufferedProtocol):
    """The protocol of one connection; made by `Connections`.

    If nothing waits in the transport, replies are written directly to the socket by `_fd`. That works for plaintext on
    uvloop only, where the descriptor is the stream. With TLS, and on every other loop, the transport writes everything,
    and `_fd` is NO_DESCRIPTOR.

    Attributes:
        has_received, has_sent: whether it has, since the last sweep of silent connections.
        last_active_ms: when the sweep last found that it had received or sent anything. (To read the clock at each
            read costs more than it is worth.)
        handshake_since_ms: since when the client owes the rest of its TLS handshake; None if it owes nothing. (A SASL
            login has its own deadline, `security/sasl/authentication.py`.)
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
        """Whether the transport may hold replies that the socket has not taken, or has to write everything."""
        self._is_clear = False
        """Whether nothing of this connection waited before the newest read, which went into the arena."""
        self.has_sent = False
        self.has_received = True  # connecting counts, too; the next sweep sets the time, one float object for many
        self.last_active_ms = 0.0
        self.handshake_since_ms: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the addresses of a client that has connected, or refuse it."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
        try:
            self._begin(transport)
        except MemoryError:
            # Raised to the loop, the connection would stay open, and nothing would ever read it.
            self._shared.memory_reserve.let_go()
            self.closing = self.closing or "the system gives no memory for it"
            transport.abort()

    def _begin(self, transport: asyncio.Transport) -> None:
        peer = self.peer
        name = transport.get_extra_info("peername")
        if name:
            peer.host, peer.port = sys.intern(plain_host(str(name[0]))), int(name[1])
        local = transport.get_extra_info("sockname")
        address = (plain_host(str(local[0])), int(local[1])) if local else UNKNOWN_ADDRESS
        is_tls = transport.get_extra_info("sslcontext") is not None
        peer.endpoint = self._shared.endpoint(peer.endpoint.listener, address, is_tls=is_tls)
        # The untaken end of a long answer keeps all of its memory, so writing resumes only when all is taken.
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

    @property
    def descriptor(self) -> int:
        """The descriptor of its socket; -1 if that is closed."""
        raw = None if self.transport is None else self.transport.get_extra_info("socket")
        return NO_DESCRIPTOR if raw is None else int(raw.fileno())

    def handshake_done(self) -> None:
        """Note the end of the TLS handshake; `peer.principal` is that of the client's certificate."""
        self.handshake_since_ms = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End the requests of a lost connection: no client waits for their answers."""
        self.transport, self._fd, self._is_behind = None, NO_DESCRIPTOR, True
        if exc is not None and self.closing is None:
            level = logging.ERROR if isinstance(exc, OSError) and exc.errno == errno.EFAULT else logging.DEBUG
            LOG.log(level, "%s: connection lost: %s", self, exc)
        self.closing = self.closing or "lost"
        self.end()
        self._registry.remove(self)

    def eof_received(self) -> bool:
        """Close: a client that sends no more has gone (Kafka's clients never close one direction only)."""
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next read."""
        reader = self.reader
        try:
            if reader.held is None and not (reader.expected_bytes or self.queue.in_flight or self.pause_reasons):
                # The common case of `next_buffer`, inlined.
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
            # Raised to the loop, it would end nothing there, since there is no memory, and the socket stays readable.
            self._is_clear = False
            self.close_for_memory("to read into")
            return reader.discard()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the `nbytes` of a read."""
        shared, reader = self._shared, self.reader
        shared.metrics.bytes_received += nbytes
        self.has_received = True
        piece, hot_path = reader.piece, self.peer.hot_path
        if not self._is_clear or piece is None:
            if reader.held is not None or reader.lent is not None:
                self.read_into_own(nbytes)
                return
            hot_path = None  # its requests may not be answered immediately
        elif shared.later.waiting:
            hot_path = None
        elif hot_path is not None and hot_path.fetch is not None:
            parked = hot_path.try_park(piece, nbytes)
            if parked is not None:
                # A client that only waits for other clients needs no turn, and does not count as one that sends.
                self.queue.add_parked(parked)
                return
        turn = shared.turn
        if shared.last_reader is not self:
            shared.last_reader = self
            shared.reads_in_a_row = 0
        elif shared.reads_in_a_row < READS_ALONE:
            shared.reads_in_a_row += 1
        elif not turn.has_work:
            # No other client sends: the turn need not wait for the next iteration of the loop. Requests that can be
            # answered immediately need no turn: as it has no work, nothing is gathered, and no reply waits to be sent.
            start = 0
            if hot_path is not None and piece is not None:
                turn.is_alone = True
                try:
                    answered = hot_path.try_answer(piece, nbytes, shared.max_in_flight)
                    if answered is not None:
                        answer, start = answered
                        self.send(answer)
                    elif self._sync_alone(hot_path, piece, nbytes):
                        start = nbytes
                finally:
                    turn.is_alone = False
                    behind = turn.behind
                    if behind is not None:  # one other Fetch waited for what was appended
                        turn.behind = None
                        behind.look_alone()
                    if shared.turn.has_work:  # several have, or the rest takes the slow path
                        turn.end()
                if start == nbytes:
                    return
            self.take_turn(start, nbytes, is_clear=self._is_clear)
            return
        try:
            kept = self.run_piece(nbytes)
            if turn.has_work:  # a request that only waits keeps nothing of what was received
                shared.buffers.keep_arena(kept)
        except BaseException:
            # There was no memory, perhaps. A batch that was gathered before that refers to the piece, also if the end
            # of the turn could not be planned: the next read must not overwrite it.
            shared.buffers.keep_arena(nbytes)
            raise

    def _sync_alone(self, hot_path: FastPath, piece: memoryview, nbytes: int) -> bool:
        """Append and sync the only request of the only client, and answer it, if this thread may do so now."""
        reply = hot_path.try_sync(piece, nbytes)
        if reply is None:
            return False
        if isinstance(reply, list):
            self.send(reply)
        else:
            self.queue.add(reply)
        return True

    def send(self, replies: Sequence[Buffer]) -> None:
        """Write replies to the socket, or to its transport if that has not sent all earlier ones yet.

        The transport would write to the socket, too, but only after it has queued the bytes. The order is kept, because
        nothing is written past a transport in which bytes wait. Bytes that the client does not take count against the
        memory for answers.
        """
        shared = self._shared
        self.has_sent = True
        if len(replies) == 1 and not self._is_behind:  # nearly always: in the fewest steps
            (reply,) = replies
            size_bytes = len(reply)
            try:
                sent = os.write(self._fd, reply)
            except OSError:  # full, or lost: the transport gets the same error, and handles it
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
        """As in `RequestPipeline`. Most such replies are one short piece that nothing blocks."""
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
        # `send`, inlined.
        self.has_sent = True
        try:
            sent = os.write(self._fd, piece)
        except OSError:
            sent = 0
        if sent != size_bytes:
            self._queue(reply, sent)
        self._shared.metrics.bytes_sent += size_bytes

    def _must_queue(self) -> bool:
        """Whether the transport has to write everything: there is no descriptor, or bytes wait in the transport."""
        transport = self.transport
        return self._fd == NO_DESCRIPTOR or (transport is not None and transport.get_write_buffer_size() > 0)

    def _queue(self, replies: Sequence[Buffer], sent: int) -> None:
        """Pass the rest of `replies` after the first `sent` bytes to the transport."""
        transport = self.transport
        assert transport is not None
        self._is_behind = True
        if not transport.is_closing():  # else it is lost, and `writelines` of asyncio would fail (CPython #136234)
            transport.writelines(joined(behind(replies, sent) if sent else replies))
        if self.pause_reasons & OUTPUT:
            self._shared.answer_memory.note_unsent(self, unmapped_bytes(replies))

    def pause_writing(self) -> None:
        """Start nothing more: the client does not take its replies."""
        self.pause_reading(OUTPUT)

    def resume_writing(self) -> None:
        """Start requests again: the client has taken its replies."""
        self._shared.answer_memory.note_taken(self)
        self.resume_reading(OUTPUT)
        self.plan()

    def __str__(self) -> str:
        return str(self.peer)
