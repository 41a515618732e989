"""Frames from a stream of bytes: the buffer for the next bytes, and the frames that are complete.

The driver gets a buffer from `buffer`, reads into it, and passes the number of bytes to `received`. Small frames
that arrive together are read together, into a head of `head_bytes`. A frame that does not fit into the head gets its
own buffer, so that records may be views of it for as long as they are used. The beginning of the frame is copied there
from the head, and the rest is read there. With a head of SIZE_BYTES only sizes are read into the head, and no byte of a
frame is ever copied.

The size that a frame announces is not allocated immediately: its buffer begins with `first_body_bytes` and doubles as
bytes arrive. If memory of `allocate` costs nothing before it is written, `first_body_bytes` may be any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import MAX_FRAME_BYTES, SIZE, SIZE_BYTES, frame_size_bytes

if TYPE_CHECKING:
    from ottla.protocol.types import Buffer

HEAD_BYTES = 64 * 1024
FIRST_BODY_BYTES = 1024 * 1024
LEAST_ANSWER_BYTES = 4
"""The correlation id, which every answer has."""
_read_size = SIZE.unpack_from
_TLS_ALERT = b"\x15\x03"
"""The beginning of the TLS alert that a TLS listener sends to a client without TLS; as a frame's size it is 350 MB."""


class SpeaksTls(MalformedMessage):
    """The bytes are not a frame but the beginning of TLS."""


class FrameReader:
    """See the module. `allocate(n)` returns a writable buffer of n bytes or more; bytes after n are not used."""

    def __init__(
        self,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        *,
        allocate: Callable[[int], Buffer] = bytearray,
        head_bytes: int = HEAD_BYTES,
        first_body_bytes: int = FIRST_BODY_BYTES,
    ) -> None:
        self._max_frame_bytes = self._limit_bytes = max_frame_bytes
        self._allocate = allocate
        self._first_body_bytes = first_body_bytes
        self._head = bytearray(head_bytes)
        self.whole_head = memoryview(self._head)
        """The view that `buffer` returns while no part of a frame is kept, made once."""
        self._body: Buffer | None = None
        self._body_bytes = 0
        """The size of the frame that is read into its own buffer."""
        self._room_bytes = 0
        """The size of that buffer."""
        self._filled = 0

    def limit(self, most_bytes: int | None) -> None:
        """Refuse larger frames from the next one on; None: `max_frame_bytes` again."""
        self._limit_bytes = self._max_frame_bytes if most_bytes is None else min(most_bytes, self._max_frame_bytes)

    def buffer(self, sizehint: int = -1) -> memoryview:
        """Return the buffer for the next bytes; never empty. asyncio calls this itself, with a hint."""
        if self._body is not None:
            return memoryview(self._body)[self._filled : self._room_bytes]
        return self.whole_head[self._filled :] if self._filled else self.whole_head

    def received(self, count: int) -> Iterable[Buffer]:
        """Note that `count` bytes are in `buffer`; return every frame that is complete now, without its size.

        Iterate to the end, unless the connection is given up. Raises MalformedMessage, after the frames before it, for
        a size that no answer can have.
        """
        whole = self.received_alone(count)
        if whole is not None:
            return (whole,)
        if self._body is None:
            return self._frames_of_head()
        return self._frames_of_body(self._body) if self._filled == self._room_bytes else ()

    def received_alone(self, count: int) -> bytes | None:
        """Note that `count` bytes are in `buffer`; return the frame if the head holds exactly one, which is the common
        case. After None, call `received` with a count of 0.
        """
        self._filled = filled = self._filled + count
        if self._body is not None:
            return None
        size_bytes = filled - 4
        if 4 <= size_bytes <= self._limit_bytes and _read_size(self._head)[0] == size_bytes:
            self._filled = 0
            return bytes(self.whole_head[4:filled])
        return None

    def _frames_of_head(self) -> Iterator[Buffer]:
        """Yield the complete frames of the head; a partial one moves to its own buffer."""
        head, filled, position = memoryview(self._head), self._filled, 0
        while filled - position >= SIZE_BYTES:
            try:
                size_bytes = frame_size_bytes(head, position, self._limit_bytes) or 0
            except MalformedMessage:
                if head[position : position + 2] == _TLS_ALERT:
                    raise SpeaksTls(
                        "the listener speaks TLS, and this client does not: set security.protocol"
                    ) from None
                raise
            if size_bytes < LEAST_ANSWER_BYTES:
                raise MalformedMessage(f"a frame of {size_bytes} bytes has no correlation id")
            position += SIZE_BYTES
            if position + size_bytes <= filled:
                yield bytes(head[position : position + size_bytes])
                position += size_bytes
                continue
            self._body_bytes = size_bytes
            self._room_bytes = max(min(size_bytes, self._first_body_bytes), filled - position + 1)
            self._body = self._allocate(self._room_bytes)
            self._filled = filled - position
            memoryview(self._body)[: self._filled] = head[position:filled]
            return
        rest = filled - position
        if rest and position:
            head[:rest] = bytes(head[position:filled])
        self._filled = rest

    def _frames_of_body(self, body: Buffer) -> Iterator[Buffer]:
        """Yield the frame that has its own buffer, or enlarge that buffer."""
        if self._room_bytes < self._body_bytes:
            # Allocate a larger one and do not resize this one: the driver may still hold a view of it.
            self._room_bytes = min(self._body_bytes, 2 * self._room_bytes)
            larger = self._allocate(self._room_bytes)
            memoryview(larger)[: self._filled] = memoryview(body)[: self._filled]
            self._body = larger
            return
        self._body = None
        self._filled = 0
        yield body if len(body) == self._body_bytes else memoryview(body)[: self._body_bytes]
