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

from ottla.address import plain_host
from ottla.broker.net.pipeline import RequestPipeline
from ottla.broker.net.read_pauses import OUTPUT
from ottla.broker.net.sending import MOST_LEFT_BYTES, NO_DESCRIPTOR

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
        self._in_flight = pipeline.queue.in_flight
        self._pauses = pipeline.pauses
        self._sender = pipeline.sender
        self.has_received = False
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
        if shared.last_reader is not self:
            shared.last_reader = self
            shared.reads_in_a_row = 0
        elif shared.reads_in_a_row < READS_ALONE:
            shared.reads_in_a_row += 1
        elif not self._turn.has_work:
            # No other client sends: the turn need not wait for the loop to come around. Requests that can be answered
            # at once need none: without work in the turn nothing is gathered, and no reply waits to be sent.
            start, piece, hot_path = 0, reader.piece, self.peer.hot_path
            if (
                hot_path is not None
                and piece is not None
                and not (self._in_flight or self._pauses.reasons or shared.later)
            ):
                answered = hot_path.try_answer(piece, nbytes, shared.max_in_flight)
                if answered is not None:
                    answer, start = answered
                    self._sender.send(answer)
                    if start == nbytes:
                        return
            self.pipeline.take_turn(start, nbytes)
            return
        kept = self.pipeline.run_piece(nbytes)
        if self._turn.has_work:  # a request that only waits keeps nothing of what was received
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
