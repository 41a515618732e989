"""Received bytes of one connection that did not start in their turn: part of a frame, or frames that have to wait.

They are in `[start, end)` of a buffer that the connection owns (`buffers.py` makes buffers and takes them back); the
next read appends to them. A read goes to the end of a frame and not beyond, so that the next frame begins at the start
of a buffer. Called by the connection only.
"""

from __future__ import annotations

import mmap

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES, frame_size_bytes

FIRST_BYTES = 64 << 10
"""The size of a buffer if the length of the frame is unknown."""
GRAIN_BYTES = 4 << 10
"""The length of a buffer is a multiple of this."""


class HeldBytes:
    """See the module. A buffer of at least `capacity` bytes, which begins at a page boundary.

    Attributes:
        view: the whole buffer.
        capacity: its length.
        start, end: where the held bytes begin and end.
        due: where their first frame ends, if that is known and fits here; else 0. Nothing can start before that byte
            has come.
    """

    __slots__ = ("_buffer", "capacity", "due", "end", "start", "view")

    def __init__(self, capacity: int) -> None:
        self.capacity = -(-capacity // GRAIN_BYTES) * GRAIN_BYTES
        # Pages cost nothing until they are written to.
        self._buffer = mmap.mmap(-1, self.capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.view = memoryview(self._buffer)
        self.start = self.end = self.due = 0

    @property
    def is_full(self) -> bool:
        """Whether there is no room for more."""
        return self.end == self.capacity

    def fill(self, tail: memoryview) -> None:
        """Hold `tail` and nothing else."""
        self.start, self.end, self.due = 0, len(tail), 0
        self.view[: self.end] = tail

    def expect(self, max_frame_bytes: int) -> None:
        """Note where the partial frame ends."""
        frame_end = self.start + first_frame_bytes(self.view[self.start : self.end], max_frame_bytes)
        is_known = self.end - self.start >= SIZE_BYTES
        self.due = frame_end if is_known and self.end < frame_end <= self.capacity else 0

    def room(self, max_frame_bytes: int, *, is_waiting: bool) -> memoryview:
        """The buffer for the next read. `is_waiting`: complete frames wait here, and the read may append to them."""
        if is_waiting or self.end - self.start < SIZE_BYTES:
            return self.view[self.end :]
        frame_end = self.start + first_frame_bytes(self.view[self.start : self.end], max_frame_bytes)
        return self.view[self.end : min(frame_end, self.capacity) if frame_end > self.end else self.capacity]


def first_frame_bytes(view: memoryview, max_frame_bytes: int) -> int:
    """The length of the frame that begins in `view`, with its size field; FIRST_BYTES if it is unknown."""
    try:
        size_bytes = frame_size_bytes(view, 0, max_frame_bytes)
    except MalformedMessage:  # the connection is closed for it, when the frame is due
        return FIRST_BYTES
    return FIRST_BYTES if size_bytes is None else SIZE_BYTES + size_bytes
