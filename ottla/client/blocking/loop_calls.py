"""A coroutine that runs in the loop's thread while another thread waits for it.

What `asyncio.run_coroutine_threadsafe` does, with fewer steps: the last step of the coroutine wakes the thread. While
the loop has more to do after that, the two threads contend for the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from ottla.client.blocking.thread_waiter import LOOK_S, ThreadWaiter

T = TypeVar("T")


class LoopCall(Generic[T]):
    """See the module. `start`, `cancel` and `wake` are called in the loop's thread, the rest in the one that waits."""

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
        self._waiter.wake()

    def wake(self) -> None:
        """Let the thread look at what else there is to do."""
        self._waiter.wake()

    def wait(self) -> T:
        """Wait for the end, and return the result or raise the error."""
        while not self.done:
            self.wait_for_change()
        return self.result()

    def wait_for_change(self) -> None:
        """Wait until the call has ended or `wake` was called, or for some time; to be called again."""
        self._waiter.wait(LOOK_S)

    def release(self) -> None:
        """Wait no more."""
        self._waiter.release()

    def result(self) -> T:
        """Return the result of a call that has ended, or raise its error, CancelledError if it was cancelled; once."""
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback has this frame
