"""Callbacks of a blocking client, run in the thread that waits for it, not in the event loop's.

A rebalance listener belongs to the thread that reads: it may use objects of that thread (such as a database
connection), and call the client, which in the loop's thread would wait for itself. So the loop puts the call into a
queue, and the reader takes it from there while it waits for records.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ottla.client.blocking.loop_calls import LoopCall
from ottla.client.groups.listeners import RebalanceListener
from ottla.client.structs import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")
_Call = tuple[Callable[[], object], "concurrent.futures.Future[None]"]


class CallerCalls:
    """See the module. One per client; several waiting threads share the calls, and each call is run by one of them."""

    def __init__(self) -> None:
        self._calls: deque[_Call] = deque()
        self._waiting: list[LoopCall[Any]] = []
        """The calls for which threads wait that can run a callback meanwhile."""
        self.running_in: set[int] = set()
        """The threads that are running a callback."""
        self._is_over = False

    @property
    def is_running_here(self) -> bool:
        """Whether this thread is running a callback."""
        return bool(self.running_in) and threading.get_ident() in self.running_in

    def end(self) -> None:
        """Run no callbacks from now on: the program ends, and no thread waits."""
        self._is_over = True

    async def run(self, function: Callable[[], object]) -> None:
        """In the loop: let a waiting thread call the function, and wait for that; raises its exception."""
        if self._is_over:
            logger.warning("the program ends without closing its consumer: the rebalance listener is not called")
            return
        done: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._calls.append((function, done))
        for running in list(self._waiting):  # the first one takes the call, the rest wait again
            running.wake()
        await asyncio.wrap_future(done)

    def serve(self, running: LoopCall[T]) -> T:
        """In the waiting thread: run callbacks until `running` is done, and return its result."""
        try:
            self._waiting.append(running)
            while True:
                call = self._next_call() if self._calls else None
                if call is not None:
                    self._run_here(*call)
                elif running.done:
                    return running.result()
                else:
                    running.wait_for_change()
        finally:
            if running in self._waiting:  # else an interrupt came before it was added
                self._waiting.remove(running)

    def _next_call(self) -> _Call | None:
        """Take the next callback; None if another waiting thread was faster."""
        try:
            return self._calls.popleft()
        except IndexError:
            return None

    def _run_here(self, function: Callable[[], object], done: concurrent.futures.Future[None]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        self.running_in.add(threading.get_ident())
        try:
            result = function()
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError("a blocking consumer's listener must not be async")
        except Exception as raised:  # whatever the listener raises is raised in `run`
            done.set_exception(raised)
        except BaseException as raised:  # an interrupt is for the caller, and would end the loop's thread
            done.set_exception(RuntimeError(f"interrupted by {type(raised).__name__}"))
            raise
        else:
            done.set_result(None)
        finally:
            self.running_in.discard(threading.get_ident())


class ListenerInCaller(RebalanceListener):
    """A program's listener, called in the thread that reads."""

    def __init__(self, listener: RebalanceListener, calls: CallerCalls) -> None:
        self._listener = listener
        self._calls = calls

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        """Call the listener in the reading thread."""
        return self._calls.run(lambda: self._listener.on_assigned(partitions))

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        """Call the listener in the reading thread."""
        return self._calls.run(lambda: self._listener.on_revoked(partitions))

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None]:
        """Call the listener in the reading thread."""
        return self._calls.run(lambda: self._listener.on_lost(partitions))
