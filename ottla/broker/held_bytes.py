"""Received bytes of one connection that did not start in their turn: part of a frame, or frames that have to wait.

They lie in a buffer that the connection owns (`buffers.py`), `[start, end)` of it; what a read brings comes behind
them. The buffer grows with the bytes that came, never with the length that a frame announces, and a read goes to the
end of a frame and not beyond, so that the next one begins at the start of a buffer. Called by the connection only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.buffers import FIRST_BYTES
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES, frame_size_bytes

if TYPE_CHECKING:
    from ottla.broker.buffers import ReceiveBuffers


class HeldBytes:
    """See the module. Made with room for `capacity` bytes, on the account of `owner`, who has asked `may_own`.

    Attributes:
        view: the whole buffer.
        start, end: where the held bytes begin and end.
    """

    __slots__ = ("_buffer", "_buffers", "_max_frame_bytes", "_owner", "end", "start", "view")

    def __init__(self, buffers: ReceiveBuffers, owner: object, capacity: int, max_frame_bytes: int) -> None:
        self._buffers = buffers
        self._owner = owner
        self._max_frame_bytes = max_frame_bytes
        self._buffer = buffers.take(capacity)
        self.view = memoryview(self._buffer)
        self.start = self.end = 0

    @classmethod
    def of(cls, tail: memoryview, buffers: ReceiveBuffers, owner: object, max_frame_bytes: int) -> HeldBytes:
        """Hold what is left of a read: with room for more where the frame is longer and memory allows it."""
        length = len(tail)
        total = _frame_bytes(tail, max_frame_bytes)
        wanted = max(length, min(total, FIRST_BYTES))
        if total > wanted and buffers.has_warm(total):
            wanted = total
        if not buffers.may_own(wanted, owner):
            wanted = length
        held = cls(buffers, owner, wanted, max_frame_bytes)
        held.view[:length] = tail
        held.end = length
        return held

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another byte."""
        return self.end == len(self.view)

    def room(self, *, is_waiting: bool) -> memoryview:
        """Where the next read goes. `is_waiting`: whole frames wait here, and what comes may stand behind them."""
        capacity = len(self.view)
        if is_waiting or self.end - self.start < SIZE_BYTES:
            return self.view[self.end :]
        frame_end = self.start + _frame_bytes(self.view[self.start : self.end], self._max_frame_bytes)
        return self.view[self.end : min(frame_end, capacity) if frame_end > self.end else capacity]

    def grow(self) -> bool:
        """Double the buffer, at most to the end of the frame; False when the memory for requests is used up."""
        held_view = self.view[self.start : self.end]
        held = len(held_view)
        wanted = min(max(2 * held, FIRST_BYTES), max(_frame_bytes(held_view, self._max_frame_bytes), held + 1))
        if not self._buffers.may_own(wanted, self._owner):
            return False
        self._buffers.give_back(self._buffer)
        self._buffer = self._buffers.take(wanted)
        self.view = memoryview(self._buffer)
        self.view[:held] = held_view
        self.start, self.end = 0, held
        return True

    def drop(self) -> None:
        """Give the buffer back; batches of this turn may still look at it, so it is used again after the turn."""
        self._buffers.give_back(self._buffer)
        self._buffers.release_exemption(self._owner)


def _frame_bytes(view: memoryview, max_bytes: int) -> int:
    """Of the frame that begins in `view`, its size field included; what a first read takes if that is unknown."""
    try:
        size_bytes = frame_size_bytes(view, 0, max_bytes)
    except MalformedMessage:  # the connection ends by it, when the frame is due
        return FIRST_BYTES
    return FIRST_BYTES if size_bytes is None else SIZE_BYTES + size_bytes
