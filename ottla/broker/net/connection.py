"""One client's connection as asyncio's protocol: what is read goes into the pipeline, and replies to the socket.

The same class serves plaintext and TLS: it sees only the transport. What starts, and when its reply leaves, is decided
in `pipeline.py`; where reads go, in `frame_reader.py`. Only the shortest way is here, from the socket and back: the
requests of a client that is alone and that templates answer (`broker/fast`) need neither.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mmap
import os
import socket
import sys
from typing import TYPE_CHECKING, Protocol, cast

from ottla.address import plain_host
from ottla.broker.net.pipeline import RequestPipeline
from ottla.broker.net.read_pauses import OUTPUT, ReadPauses
from ottla.broker.net.shared import LARGE_SEND_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.net.shared import SharedState
    from ottla.broker.runtime.answer_memory import Holder
    from ottla.protocol.types import Buffer

LOG = logging.getLogger("ottla.connection")

JOIN_BYTES = 16 << 10
"""Replies up to this size are joined for a transport; larger ones go as they are."""
MOST_LEFT_BYTES = 64 << 10
"""A transport may keep so much before its client counts as one that does not take its answers."""
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


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection; made by `Connections`.

    Attributes:
        pipeline: its requests and replies.
        peer: the client, as requests see it.
        last_active_ms: when the sweep last found that it had received or sent anything. (A look at the clock on each
            read costs more than it is worth.)
        handshake_since_ms: since when the client owes the rest of its TLS handshake, or of its authentication; None
            where it owes nothing.
    """

    __slots__ = (
        "_buffers",
        "_in_flight",
        "_pauses",
        "_reader",
        "_registry",
        "_sender",
        "_shared",
        "_turn",
        "handshake_since_ms",
        "has_received",
        "last_active_ms",
        "peer",
        "pipeline",
    )

    def __init__(self, shared: SharedState, registry: Registry, listener: str) -> None:
        self._shared = shared
        self._registry = registry
        self._turn = shared.turn
        self._buffers = shared.buffers
        self._pauses = pauses = ReadPauses()
        self._sender = ReplySender(shared, pauses)
        self.pipeline = pipeline = RequestPipeline(shared, listener, pauses, self._sender)
        self.peer = pipeline.peer
        self._reader = pipeline.reader
        self._in_flight = pipeline.queue.in_flight
        self.has_received = False
        self.last_active_ms: float = shared.now_ms()
        self.handshake_since_ms: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: note its addresses, or refuse it."""
        transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclasses
        peer = self.peer
        name = transport.get_extra_info("peername")
        if name:
            peer.host, peer.port = sys.intern(plain_host(str(name[0]))), int(name[1])
        local = transport.get_extra_info("sockname")
        if local:
            peer.local_address = self._shared.local_address(plain_host(str(local[0])), int(local[1]))
        # A client that has left only a little of a long answer holds all of its memory, so it goes on when it has all.
        transport.set_write_buffer_limits(high=MOST_LEFT_BYTES, low=0)
        peer.sends_maps = self._shared.sends_maps and transport.get_extra_info("sslcontext") is None
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pauses.transport = transport
        fd = raw.fileno() if raw is not None and peer.sends_maps else NO_DESCRIPTOR
        self._sender.begin(transport, fd, self.pipeline)
        refusal = self._registry.add(self)
        if refusal is not None:
            self.pipeline.closing = refusal
            transport.abort()
        elif peer.authentication is not None:
            peer.authentication.begin()

    def handshake_done(self) -> None:
        """The TLS handshake is done, and `peer.principal` is who the client's certificate names."""
        self.handshake_since_ms = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended: nobody waits for its answers any more."""
        pipeline = self.pipeline
        self._pauses.transport = None
        self._sender.end()
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
            may_block = self._in_flight or self._pauses.reasons
            return reader.next_buffer(is_blocked=bool(may_block) and self.pipeline.is_blocked())
        except (MemoryError, OSError):
            # Raised to the loop it would end nothing there, for want of memory, and the socket stays readable.
            self.pipeline.close_for_memory("to read into")
            return reader.discard()

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` more came."""
        shared, reader = self._shared, self._reader
        shared.metrics.bytes_received += nbytes
        self.has_received = True
        if reader.held is not None or reader.lent is not None:
            self.pipeline.read_into_own(nbytes)
            return
        piece, hot_path = reader.piece, self.peer.hot_path
        if self._in_flight or self._pauses.reasons or shared.later.waiting or piece is None:
            hot_path = None  # what it has brought may not be answered at once
        elif hot_path is not None and hot_path.fetch is not None:
            parked = hot_path.try_park(piece, nbytes)
            if parked is not None:
                # Who only waits for others to send has nothing to do in a turn, and leaves them alone.
                self.pipeline.queue.add_parked(parked)
                return
        turn = self._turn
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
                        self._sender.send(answer)
                finally:
                    turn.is_alone = False
                    if self._turn.has_work:  # others have waited for what was appended
                        turn.end()
                if start == nbytes:
                    return
            self.pipeline.take_turn(start, nbytes)
            return
        kept = self.pipeline.run_piece(nbytes)
        if turn.has_work:  # a request that only waits keeps nothing of what was received
            self._buffers.keep_arena(kept)

    def pause_writing(self) -> None:
        """The client does not take its replies: start nothing more."""
        self._pauses.hold(OUTPUT)

    def resume_writing(self) -> None:
        """It takes them again."""
        self._shared.answer_memory.note_taken(self.pipeline)
        self._pauses.release(OUTPUT)
        self.pipeline.plan()

    def __str__(self) -> str:
        return str(self.peer)


class ReplySender:
    """Sends the replies of one connection: all of a turn in one call.

    The socket is written to directly where its transport has nothing waiting: the transport would do the same, but not
    before it has queued the bytes and come around to its queue. That is plaintext on uvloop only, where the descriptor
    is the stream; TLS, and every other loop, get all from the transport. Order holds because a transport that has
    something waiting is never overtaken.

    `transport` is None before the client has connected, and once it is gone.

    `holder` owns what the client does not take, for the memory of answers. `fd` is that of the transport's socket where
    it may be written to directly, else NO_DESCRIPTOR. `has_sent` says whether it has sent anything since the sweep of
    silent connections looked last.
    """

    __slots__ = ("_fd", "_holder", "_is_behind", "_pauses", "_shared", "has_sent", "transport")

    def __init__(self, shared: SharedState, pauses: ReadPauses) -> None:
        self._shared = shared
        self._pauses = pauses
        self._holder: Holder | None = None
        self._fd = NO_DESCRIPTOR
        self._is_behind = True
        """Whether the transport may hold replies that the socket has not taken, or has to be given all."""
        self.has_sent = False
        self.transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport, fd: int, holder: Holder) -> None:
        """A client has connected."""
        self.transport, self._fd, self._holder = transport, fd, holder
        self._is_behind = fd == NO_DESCRIPTOR

    def end(self) -> None:
        """The client is gone."""
        self.transport, self._fd, self._holder = None, NO_DESCRIPTOR, None
        self._is_behind = True

    def send(self, replies: Sequence[Buffer]) -> None:
        """Give replies to the socket, or to its transport where that has not sent all of earlier ones yet."""
        count, shared = len(replies), self._shared
        self.has_sent = True
        size_bytes = len(replies[0]) if count == 1 else sum(map(len, replies))
        if count > MAX_PIECES or (self._is_behind and self._must_queue()):
            sent = 0
        else:
            try:
                sent = os.write(self._fd, replies[0]) if count == 1 else os.writev(self._fd, replies)
            except OSError:  # full, or lost: the transport meets it again, and knows what to do
                sent = 0
        if sent != size_bytes:
            self._queue(replies, sent)
        elif self._is_behind:
            self._is_behind = False
        shared.metrics.bytes_sent += size_bytes
        if size_bytes > LARGE_SEND_BYTES:
            shared.note_large_send(size_bytes)

    def _must_queue(self) -> bool:
        """Whether the transport has to be given all: there is no other way, or it has something waiting."""
        transport = self.transport
        return self._fd == NO_DESCRIPTOR or (transport is not None and transport.get_write_buffer_size() > 0)

    def _queue(self, replies: Sequence[Buffer], sent: int) -> None:
        """Give the transport what is left of `replies` after the first `sent` bytes."""
        assert self.transport is not None
        self._is_behind = True
        self.transport.writelines(_joined(_behind(replies, sent) if sent else replies))
        if self._pauses.reasons & OUTPUT and self._holder is not None:
            self._shared.answer_memory.note_unsent(self._holder, unmapped_bytes(replies))


def unmapped_bytes(replies: Sequence[Buffer]) -> int:
    """How many bytes of `replies` are memory of ours, and not pages of a file that the kernel sends."""
    return sum(len(reply) for reply in replies if not _is_mapped(reply))


def _is_mapped(reply: Buffer) -> bool:
    return isinstance(reply, memoryview) and isinstance(reply.obj, mmap.mmap)


def _joined(replies: Sequence[Buffer]) -> list[Buffer]:
    """The replies with neighbours that are small put together: each would be a record of TLS of its own."""
    pieces: list[Buffer] = []
    small: list[Buffer] = []
    for reply in replies:
        if len(reply) <= JOIN_BYTES:
            small.append(reply)
            continue
        if small:
            pieces.append(b"".join(small))
            small = []
        pieces.append(reply)
    if small:
        pieces.append(b"".join(small))
    return pieces


def _behind(pieces: Sequence[Buffer], sent: int) -> list[Buffer]:
    """What is left after the first `sent` bytes."""
    for number, piece in enumerate(pieces):
        if sent < len(piece):
            rest = memoryview(piece)[sent:]
            if len(rest) <= MOST_LEFT_BYTES < len(piece) and not _is_mapped(piece):
                rest = memoryview(bytes(rest))  # the end of an answer does not hold all of its memory
            return [rest, *pieces[number + 1 :]]
        sent -= len(piece)
    return []
