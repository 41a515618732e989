"""The thread in which the blocking clients' event loop runs: one for all clients of a process, made when first needed.

It is a daemon and ends at exit: open clients are closed first, and records on their way get some seconds for it.
A forked child has no such thread; it makes its own for clients of its own, and those it inherited refuse to work there
(their sockets are the parent's).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from ottla.client.errors import ClientClosed

try:
    import uvloop

    _new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # where uvloop does not exist, asyncio's own loop does
    _new_event_loop = asyncio.new_event_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

EXIT_LIMIT_MS = 5_000
"""How long records may still take to be delivered when the program ends without closing its producer."""


class LoopThread:
    """See the module. Get the process's own by `LoopThread.of_this_process()`."""

    _current: LoopThread | None = None
    _making = threading.Lock()

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_event_loop()
        self.clients: weakref.WeakSet[Twin[Any]] = weakref.WeakSet()
        self._thread = threading.Thread(target=self._run, name="ottla-client", daemon=True)
        self._thread.start()

    @classmethod
    def of_this_process(cls) -> LoopThread:
        """Return the thread of this process, started now if need be."""
        with cls._making:
            if cls._current is None or cls._current.pid != os.getpid() or cls._current.loop.is_closed():
                cls._current = cls()
            return cls._current

    @classmethod
    def forget(cls) -> None:
        """In a forked child: the parent's thread is not here, and its lock may have been held."""
        cls._making = threading.Lock()
        cls._current = None

    @classmethod
    def end(cls) -> None:
        """At exit: close what is open, within the limit, and end the thread."""
        current, cls._current = cls._current, None
        if current is None or current.pid != os.getpid() or current.loop.is_closed():
            return
        ending = asyncio.run_coroutine_threadsafe(current._close_clients(), current.loop)
        with contextlib.suppress(concurrent.futures.TimeoutError):
            ending.result(2 * EXIT_LIMIT_MS / 1000)
        current.loop.call_soon_threadsafe(current.loop.stop)
        current._thread.join(EXIT_LIMIT_MS / 1000)

    async def _close_clients(self) -> None:
        closing = (client.close_at_exit() for client in list(self.clients))
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                logger.warning("a client was still open when the program ended: %s", outcome)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def wait_for(
        self, coroutine: Coroutine[Any, Any, T], wait: Callable[[concurrent.futures.Future[T]], T] | None = None
    ) -> T:
        """Run a coroutine in the loop and return what it returns; an interrupt of the caller cancels it.

        `wait` may wait in a way of its own, to do something meanwhile. Raises RuntimeError in the loop's own thread,
        where waiting would be waiting for oneself.
        """
        if threading.get_ident() == self._thread.ident:
            coroutine.close()
            raise RuntimeError("a blocking client was called from its own thread, by an interceptor or a partitioner")
        try:
            running = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop ended
            coroutine.close()
            raise ClientClosed("the program is ending") from None
        try:
            return running.result() if wait is None else wait(running)
        except concurrent.futures.CancelledError:
            raise ClientClosed("the client was closed") from None
        except BaseException:
            running.cancel()
            raise


os.register_at_fork(after_in_child=LoopThread.forget)
atexit.register(LoopThread.end)


class AsyncClient(Protocol):
    """What the asyncio clients have in common."""

    async def start(self) -> None:
        """Find the cluster."""

    async def close(self) -> None:
        """End."""


C = TypeVar("C", bound=AsyncClient)


class Twin(Generic[C]):
    """A client that waits: each method runs the asyncio client's own in the loop thread. Any thread may call it."""

    def __init__(self, client: C) -> None:
        self._inner = client
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Find the cluster; raises KafkaError when that fails."""
        thread = LoopThread.of_this_process()
        thread.wait_for(self._inner.start())
        thread.clients.add(self)
        self._thread = thread

    def close(self) -> None:
        """End; in a forked child, where the client does not work, nothing happens."""
        self._end(self._inner.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def close_at_exit(self) -> None:
        """End because the program does."""
        await self._inner.close()

    def _end(
        self,
        closing: Coroutine[Any, Any, None],
        wait: Callable[[concurrent.futures.Future[None]], None] | None = None,
    ) -> None:
        thread = self._thread
        if thread is None or thread.pid != os.getpid() or thread.loop.is_closed():
            closing.close()
            return
        thread.clients.discard(self)
        thread.wait_for(closing, wait)

    def _running(self) -> LoopThread:
        thread = self._thread
        if thread is None:
            raise ClientClosed("the client was not started")
        if thread.pid != os.getpid():
            raise ClientClosed("the client belongs to the process that started it: make another one after a fork")
        return thread

    def _await(
        self, coroutine: Coroutine[Any, Any, T], wait: Callable[[concurrent.futures.Future[T]], T] | None = None
    ) -> T:
        """Run a coroutine of the asyncio client."""
        try:
            thread = self._running()
        except ClientClosed:
            coroutine.close()
            raise
        return thread.wait_for(coroutine, wait)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the asyncio client where it expects to be run."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._await(call())
