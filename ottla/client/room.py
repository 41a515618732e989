"""The memory for records that wait to be sent (`buffer_memory`), and the queue of calls that wait for it.

Calls are served in order: no call passes one that waits, however little room it needs, since the records of a producer
are sent in the order of the calls. A call that gives up, or is cancelled, has sent nothing, and the next one follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.client.errors import BufferExhausted


class _Call:
    """A call that waits in the line for a record of up to `bound_bytes`."""

    __slots__ = ("bound_bytes", "called")

    def __init__(self, bound_bytes: int, called: asyncio.Future[None]) -> None:
        self.bound_bytes = bound_bytes
        self.called = called
        """Done when the call may check for room again."""


class Room:
    """See the module. `on_hurry` is called with 1 when a call begins to wait for room, and with -1 when it ends."""

    def __init__(self, capacity_bytes: int, max_block_ms: int, on_hurry: Callable[[int], None]) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.owes_a_break = False
        """Whether a batch became full, so that the next call yields to the event loop first. Otherwise a program that
        sends in a loop would not let the client send any batch, or read any answer, before the end of the loop."""
        self._max_block_ms = max_block_ms
        self._on_hurry = on_hurry
        self.line: dict[_Call, None] = {}
        """The waiting calls, in order."""
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """The number of waiting calls."""
        return len(self.line)

    def is_at_hand(self, bound_bytes: int) -> bool:
        """Whether a record of this size need not wait."""
        return self.used_bytes + bound_bytes <= self.capacity_bytes and not self.owes_a_break and not self.line

    def close(self) -> None:
        """End all waiting from now on; calls that waited then detect themselves that the producer is closed."""
        self._is_closed = True
        self.call_next()

    async def await_turn(self, bound_bytes: int) -> None:
        """Wait for room, after earlier calls; raises BufferExhausted after `max_block_ms`.

        The room is not reserved: use it before awaiting anything else.
        """
        loop = asyncio.get_running_loop()
        call = _Call(bound_bytes, loop.create_future())
        self.line[call] = None
        try:
            if self._has_to_wait(call):
                await self._await_room(call, loop)
            if self.owes_a_break:
                self.owes_a_break = False
                await asyncio.sleep(0)
        finally:
            del self.line[call]
            self.call_next()

    async def _await_room(self, call: _Call, loop: asyncio.AbstractEventLoop) -> None:
        self._on_hurry(1)
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while self._has_to_wait(call):
                    called = call.called = loop.create_future()
                    await called
        except TimeoutError:
            raise BufferExhausted(
                f"buffer_memory of {self.capacity_bytes} bytes stayed full for {self._max_block_ms} ms"
            ) from None
        finally:
            self._on_hurry(-1)

    def _has_to_wait(self, call: _Call) -> bool:
        if self._is_closed:
            return False
        return next(iter(self.line)) is not call or self.used_bytes + call.bound_bytes > self.capacity_bytes

    def call_next(self) -> None:
        """Wake the first waiting call to check for room, and those after it for which there may be room as well.

        They continue in this order, in one iteration of the loop: their records share batches and requests.
        """
        room_bytes = self.capacity_bytes - self.used_bytes
        for call in self.line:
            if call.called.done():
                return  # it was woken, as were those after it for which there was room
            call.called.set_result(None)
            room_bytes -= call.bound_bytes
            if room_bytes <= 0:
                return
