"""A coroutine that runs in the loop's thread while another thread waits for it.

What `asyncio.run_coroutine_threadsafe` does, with fewer steps: the thread waits at a plain lock, and the last step of
the coroutine wakes it. While the loop has more to do after that, the two threads contend for the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.client.blocking.thread_waiter import LOOK_S, ThreadWaiter

T = TypeVar("T")


class LoopCall(Generic[T]):
    """See the module. `start` and `cancel` are called in the loop's thread, the others in the one that waits."""

    __slots__ = ("_coroutine", "_ended", "_error", "_has_begun", "_on_end", "_result", "_task", "done")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done = False
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._error: BaseException | None = None
        self._on_end: Callable[[], None] | None = None
        self._ended = ThreadWaiter()

    def start(self) -> None:
        """Run the coroutine."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel the coroutine, if it runs still; `start` was called before."""
        if self._has_begun and self._task is not None:
            self._task.cancel()
        elif not self.done:
            self._coroutine.close()
            self._error = asyncio.CancelledError()
            self._end()

    async def _run(self) -> None:
        """Run the coroutine, and wake the thread in the last step: a callback of the task would take another turn."""
        if self.done:  # cancelled before it began
            return
        self._has_begun = True
        try:
            self._result: T = await self._coroutine
        except BaseException as error:  # whatever it is, the thread that waits has to get it
            self._error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        if self._on_end is not None:
            self._on_end()
        self._ended.wake()

    def call_at_end(self, on_end: Callable[[], None]) -> None:
        """Have `on_end` called in the loop's thread at the end; and here, if that has come already."""
        self._on_end = on_end
        if self.done:
            on_end()

    def wait(self) -> T:
        """Wait for the end, and return the result or raise the error."""
        while not self.done:
            self._ended.wait(LOOK_S)
        return self.result()

    def result(self) -> T:
        """Return the result of a call that has ended, or raise its error, CancelledError if it was cancelled; once."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback has this frame
