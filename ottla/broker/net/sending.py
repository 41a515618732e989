"""A turn's replies to the socket, all in one call, and what it does not take to the transport.

The socket is written to directly where its transport has nothing waiting: the transport would do the same, but not
before it has queued the bytes and come around to its queue. That is plaintext on uvloop only, where the descriptor is
the stream; TLS, and every other loop, get all from the transport. Order holds because a transport that has something
waiting is never overtaken.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from ottla.protocol.types import Buffer

JOIN_BYTES = 16 << 10
"""Replies up to this size are joined for a transport; larger ones go as they are."""
MOST_LEFT_BYTES = 64 << 10
"""A transport may keep so much before its client counts as one that does not take its answers."""
MAX_PIECES = 1024
"""Of one `writev` (IOV_MAX)."""
NO_DESCRIPTOR = -1


def send(transport: asyncio.Transport, fd: int, replies: Sequence[Buffer], size_bytes: int) -> bool:
    """Send `replies`, `size_bytes` in all, by the descriptor of the transport's socket unless it is NO_DESCRIPTOR.

    True when the socket took all: nothing waits in the transport. Who was told False asks the transport before the
    next ones go by the descriptor.
    """
    if fd != NO_DESCRIPTOR and len(replies) <= MAX_PIECES:
        try:
            sent = os.writev(fd, replies)
        except OSError:  # full, or lost: the transport meets it again, and knows what to do
            sent = 0
        if sent == size_bytes:
            return True
        replies = _behind(replies, sent)
    transport.writelines(_joined(replies))
    return False


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
    """What is left behind the first `sent` bytes."""
    for number, piece in enumerate(pieces):
        if sent < len(piece):
            rest = memoryview(piece)[sent:]
            if len(rest) <= MOST_LEFT_BYTES < len(piece) and not _is_mapped(piece):
                rest = memoryview(bytes(rest))  # the end of an answer does not hold all of its memory
            return [rest, *pieces[number + 1 :]]
        sent -= len(piece)
    return []
