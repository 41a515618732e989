"""The memory for records that wait to be sent (`buffer_memory`), and the line of those who wait for it.

First come first: nobody passes who waits, however little a later call needs, since records of one producer go in the
order of the calls. Who gives up, or is cancelled, has sent nothing and lets the next one come up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.client.errors import BufferExhausted


class Room:
    """See the module. `on_hurry` is called with 1 when a caller begins to wait for room, and -1 when no longer."""

    def __init__(self, capacity_bytes: int, max_block_ms: int, on_hurry: Callable[[int], None]) -> None:
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.owes_a_break = False
        """A batch became full: the next call lets others run first. A program that sends in a loop lets answers in
        once per batch, or nothing would leave before the end."""
        self._max_block_ms = max_block_ms
        self._on_hurry = on_hurry
        self.line: dict[object, asyncio.Future[None]] = {}
        """The calls that wait, in their order."""
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many calls stand in line."""
        return len(self.line)

    def is_at_hand(self, bound_bytes: int) -> bool:
        """Whether a record of so many bytes need not wait for its turn."""
        return self.used_bytes + bound_bytes <= self.capacity_bytes and not self.owes_a_break and not self.line

    def close(self) -> None:
        """Let nobody wait from now on; who did looks for himself that there is nothing to wait for."""
        self._is_closed = True
        self.call_first()

    async def await_turn(self, bound_bytes: int) -> None:
        """Wait for room, behind those who called before; raises BufferExhausted after `max_block_ms`.

        The room is not taken yet: use it before anything else is awaited.
        """
        loop = asyncio.get_running_loop()
        turn = object()
        self.line[turn] = loop.create_future()
        try:
            if self._has_to_wait(turn, bound_bytes):
                await self._await_room(turn, bound_bytes, loop)
            if self.owes_a_break:
                self.owes_a_break = False
                await asyncio.sleep(0)
        finally:
            del self.line[turn]
            self.call_first()

    async def _await_room(self, turn: object, bound_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        self._on_hurry(1)
        try:
            async with asyncio.timeout(self._max_block_ms / 1000):
                while self._has_to_wait(turn, bound_bytes):
                    called = self.line[turn] = loop.create_future()
                    await called
        except TimeoutError:
            raise BufferExhausted(
                f"buffer_memory of {self.capacity_bytes} bytes stayed full for {self._max_block_ms} ms"
            ) from None
        finally:
            self._on_hurry(-1)

    def _has_to_wait(self, turn: object, bound_bytes: int) -> bool:
        if self._is_closed:
            return False
        return next(iter(self.line)) is not turn or self.used_bytes + bound_bytes > self.capacity_bytes

    def call_first(self) -> None:
        """Have the first in the line look whether there is room: some was given back."""
        if self.line:
            called = next(iter(self.line.values()))
            if not called.done():
                called.set_result(None)
