"""A coroutine that runs in the loop's thread while another thread waits for it.

This is `asyncio.run_coroutine_threadsafe` with fewer steps: the last step of the coroutine wakes the thread. If the
loop has more to do after that, such as the next Fetch, the two threads would contend for the interpreter lock, and for
the processor if there is one: so the loop's thread yields both first.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from ottla.client.blocking.thread_waiter import LOOK_S, ThreadWaiter

T = TypeVar("T")

_yield_processor: Callable[[], object] = getattr(os, "sched_yield", bool)
"""Let another thread run that is ready; Windows has no such call, and `bool` does nothing."""


class LoopCall(Generic[T]):
    """See the module. Call `start`, `cancel` and `wake` in the loop's thread, the rest in the waiting one."""

    __slots__ = ("_coroutine", "_error", "_has_begun", "_result", "_task", "_waiter", "done")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done = False
        self._coroutine = coroutine
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._error: BaseException | None = None
        self._waiter = ThreadWaiter()

    def start(self) -> None:
        """Run the coroutine."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def cancel(self) -> None:
        """Cancel the coroutine, if it is still running; `start` was called before."""
        if self._has_begun and self._task is not None:
            self._task.cancel()
        elif not self.done:
            self._coroutine.close()
            self._error = asyncio.CancelledError()
            self._end()

    async def _run(self) -> None:
        """Run the coroutine, and wake the thread in the last step: a callback of the task would run later."""
        if self.done:  # cancelled before it began
            return
        self._has_begun = True
        try:
            self._result: T = await self._coroutine
        except BaseException as error:  # whatever it is, the waiting thread must get it
            self._error = error
        self._end()

    def _end(self) -> None:
        self.done = True
        self._waiter.wake()
        _yield_processor()

    def wake(self) -> None:
        """Let the thread check whether there is something else to do."""
        self._waiter.wake()

    def wait(self) -> T:
        """Wait for the end, and return the result or raise the error."""
        while not self.done:
            self.wait_for_change()
        return self.result()

    def wait_for_change(self) -> None:
        """Wait until the call has ended, `wake` was called, or some time has passed; call it again."""
        self._waiter.wait(LOOK_S)

    def release(self) -> None:
        """End the waiting."""
        self._waiter.release()

    def result(self) -> T:
        """Return the result of an ended call, or raise its error, CancelledError if it was cancelled; call it once."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame
