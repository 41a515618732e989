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

    __slots__ = ("_coroutine", "_ended", "_on_end", "_task", "done")

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done = False
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._on_end: Callable[[], None] | None = None
        self._ended = ThreadWaiter()

    def start(self) -> None:
        """Run the coroutine."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self._end)

    def cancel(self) -> None:
        """Cancel the coroutine, if it runs still; `start` was called before."""
        if self._task is not None:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # seen: a thread that was interrupted does not ask for it
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
        task, self._task = self._task, None
        assert task is not None
        try:
            return task.result()
        finally:
            del task  # its error has this frame
