"""Replies to the socket, all of a turn in one call, and what it does not take to the transport.

The socket is written to directly where its transport has nothing waiting: the transport would do the same, but not
before it has queued the bytes and come around to its queue. That is plaintext on uvloop only, where the descriptor is
the stream; TLS, and every other loop, get all from the transport. Order holds because a transport that has something
waiting is never overtaken.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

from ottla.broker.net.read_pauses import OUTPUT
from ottla.broker.net.shared import LARGE_SEND_BYTES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ottla.broker.net.read_pauses import ReadPauses
    from ottla.broker.net.shared import SharedState
    from ottla.broker.runtime.answer_memory import Holder
    from ottla.protocol.types import Buffer

JOIN_BYTES = 16 << 10
"""Replies up to this size are joined for a transport; larger ones go as they are."""
MOST_LEFT_BYTES = 64 << 10
"""A transport may keep so much before its client counts as one that does not take its answers."""
MAX_PIECES = 1024
"""Of one `writev` (IOV_MAX)."""
NO_DESCRIPTOR = -1


class ReplySender:
    """Sends the replies of one connection. `transport` is None before the client has connected, and once it is gone.

    `holder` owns what the client does not take, for the memory of answers. `fd` is that of the transport's socket where
    it may be written to directly, else NO_DESCRIPTOR. `has_sent` says whether it has sent anything since the sweep of
    silent connections looked last.
    """

    __slots__ = ("_fd", "_holder", "_is_behind", "_pauses", "_shared", "has_sent", "transport")

    def __init__(self, shared: SharedState, pauses: ReadPauses, holder: Holder) -> None:
        self._shared = shared
        self._pauses = pauses
        self._holder: Holder | None = holder
        self._fd = NO_DESCRIPTOR
        self._is_behind = False
        """Whether the transport may hold replies that the socket has not taken."""
        self.has_sent = False
        self.transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport, fd: int) -> None:
        """A client has connected."""
        self.transport, self._fd = transport, fd

    def end(self) -> None:
        """The client is gone."""
        self.transport, self._fd, self._holder = None, NO_DESCRIPTOR, None

    def send(self, replies: Sequence[Buffer]) -> None:
        """Give replies to the socket, or to its transport where that has not sent all of earlier ones yet."""
        shared, transport = self._shared, self.transport
        assert transport is not None
        self.has_sent = True
        size_bytes = 0
        for reply in replies:
            size_bytes += len(reply)
        fd = self._fd
        if fd == NO_DESCRIPTOR or (self._is_behind and transport.get_write_buffer_size()) or len(replies) > MAX_PIECES:
            self._is_behind = True
            transport.writelines(_joined(replies))
        else:
            try:
                sent = os.writev(fd, replies)
            except OSError:  # full, or lost: the transport meets it again, and knows what to do
                sent = 0
            self._is_behind = sent != size_bytes
            if sent != size_bytes:
                transport.writelines(_joined(_behind(replies, sent)))
        shared.metrics.bytes_sent += size_bytes
        if size_bytes > LARGE_SEND_BYTES:
            shared.note_large_send(size_bytes)
        if self._pauses.reasons & OUTPUT and self._holder is not None:
            shared.answer_memory.note_unsent(self._holder, unmapped_bytes(replies))


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
