"""Replies as pieces for a transport, and the rest that a socket has not taken: pure functions over buffers."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.protocol.types import Buffer

JOIN_BYTES = 16 << 10
"""Replies up to this size are joined for a transport; larger ones are passed unchanged."""
MOST_LEFT_BYTES = 64 << 10
"""If a transport keeps more than this, its client counts as one that does not take its answers."""


def unmapped_bytes(replies: Sequence[Buffer]) -> int:
    """How many bytes of `replies` are memory of the process, and not pages of a file that the kernel sends."""
    return sum(len(reply) for reply in replies if not _is_mapped(reply))


def _is_mapped(reply: Buffer) -> bool:
    return isinstance(reply, memoryview) and isinstance(reply.obj, mmap.mmap)


def joined(replies: Sequence[Buffer]) -> list[Buffer]:
    """The replies, with small neighbours joined: else each would be its own TLS record."""
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


def behind(pieces: Sequence[Buffer], sent: int) -> list[Buffer]:
    """The rest after the first `sent` bytes."""
    for number, piece in enumerate(pieces):
        if sent < len(piece):
            rest = memoryview(piece)[sent:]
            if len(rest) <= MOST_LEFT_BYTES < len(piece) and not _is_mapped(piece):
                rest = memoryview(bytes(rest))  # so that the end of an answer does not keep all of its memory
            return [rest, *pieces[number + 1 :]]
        sent -= len(piece)
    return []
