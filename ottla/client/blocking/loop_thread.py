"""The thread of the blocking clients' event loop: one for all clients of a process, started when first needed.

It is a daemon thread and ends at exit: open clients are closed first, and their records have some seconds to be sent;
a warning reports the number of those that were not. A client that the program has dropped without closing it is closed
when Python collects it. A forked child does not have the thread; it starts another one for its own clients. Clients
that were started before the fork refuse to work in the child (their sockets belong to the parent).
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar

from ottla.client.blocking.loop_calls import LoopCall
from ottla.client.errors import ClientClosed
from ottla.hand_over import Posts

try:
    import uvloop

    _new_event_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:  # where uvloop does not exist, asyncio's own loop does
    _new_event_loop = asyncio.new_event_loop

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

EXIT_LIMIT_MS = 5_000
"""How long deliveries may still take when the program ends without closing its producer."""


class LoopThread:
    """See the module. `LoopThread.of_this_process()` returns the one of the process."""

    current: LoopThread | None = None
    """The one of this process; None before it is needed, and in a forked child."""
    _making = threading.Lock()
    _has_ended = False

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_event_loop()
        self.clients: weakref.WeakSet[Twin[Any]] = weakref.WeakSet()
        self._posts = _posts()
        self._dropped: set[asyncio.Task[None]] = set()
        """The tasks that close clients which the program has dropped."""
        _end_with_multiprocessing()
        self._thread = threading.Thread(target=self._run, name="ottla-client", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the limit of threads is reached: the next client may try again
            self.loop.close()
            raise
        self.ident = self._thread.ident

    def post(self, step: Callable[[], object]) -> None:
        """Run a function in the loop's thread, after earlier ones. Raises RuntimeError when the loop has ended.

        While an eventfd is written, this thread releases the interpreter lock, and the loop's can continue immediately;
        `call_soon_threadsafe` wakes it twice (docs/decisions/one-thread-owns-the-producer.md).
        """
        if self._posts is None:
            self.loop.call_soon_threadsafe(step)
        elif self.loop.is_closed():
            raise RuntimeError("the loop has ended")
        else:
            self._posts.put(step)

    @classmethod
    def of_this_process(cls) -> LoopThread:
        """Return the thread of this process, started now if needed. Raises ClientClosed when the program is ending."""
        with cls._making:
            if cls._has_ended:
                raise ClientClosed("the program is ending")
            if cls.current is None or cls.current.pid != os.getpid() or cls.current.loop.is_closed():
                cls.current = cls()
            return cls.current

    @classmethod
    def forget(cls) -> None:
        """Reset the state in a forked child: the parent's thread does not exist, and its lock may have been held."""
        cls._making = threading.Lock()
        cls.current = None
        cls._has_ended = False

    @classmethod
    def end(cls) -> None:
        """At exit: close open clients, within the limit, and end the thread. A second call does nothing."""
        current, cls.current, cls._has_ended = cls.current, None, True
        if current is None or current.pid != os.getpid() or current.loop.is_closed():
            return
        ending = asyncio.run_coroutine_threadsafe(current._close_clients(), current.loop)
        try:
            ending.result(2 * EXIT_LIMIT_MS / 1000)
        except concurrent.futures.TimeoutError:
            logger.warning("clients that were still open when the program ended could not be closed in time")
        except KeyboardInterrupt:
            logger.warning("interrupted: records of clients that were still open may not have been sent")
        current.loop.call_soon_threadsafe(current.loop.stop)
        current._thread.join(EXIT_LIMIT_MS / 1000)

    async def _close_clients(self) -> None:
        closing = [asyncio.ensure_future(client.close_at_exit()) for client in list(self.clients)]
        for outcome in await asyncio.gather(*closing, return_exceptions=True):
            if isinstance(outcome, BaseException):
                logger.warning("a client was still open when the program ended: %s", outcome)
        await asyncio.sleep(0)  # clients that were dropped just now begin to close meanwhile
        if self._dropped:
            _, late = await asyncio.wait(self._dropped, timeout=EXIT_LIMIT_MS / 1000)
            for one in late:
                one.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def close_dropped(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close an unreferenced client in the background. Garbage collection calls this, in any thread."""
        if not self.loop.is_closed() and self.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop has ended, and closed all open clients
                self.post(partial(self._begin_closing, close))

    def _begin_closing(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self.loop.create_task(close(), name="ottla-dropped")
        self._dropped.add(task)
        task.add_done_callback(self._on_dropped)

    def _on_dropped(self, task: asyncio.Task[None]) -> None:
        self._dropped.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.warning("a client that the program dropped without closing it: %s", error)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        posts = self._posts
        if posts is not None:
            posts.belong_to_this_thread()
            self.loop.add_reader(posts.descriptor, posts.run)
        self.loop.run_forever()
        if posts is not None:
            self.loop.remove_reader(posts.descriptor)
        self.loop.close()

    def refuse_own(self) -> None:
        """Raise RuntimeError in the loop's own thread, which would wait for itself."""
        if threading.get_ident() == self.ident:
            raise RuntimeError("a blocking client was called from its own thread, by an interceptor or a partitioner")

    def wait_for(self, coroutine: Coroutine[Any, Any, T], wait: Callable[[LoopCall[T]], T] | None = None) -> T:
        """Run a coroutine in the loop and return its result; an interrupt of the caller cancels it.

        `wait` replaces the usual waiting, to do something meanwhile. Raises RuntimeError in the loop's own thread,
        which would wait for itself.
        """
        try:
            self.refuse_own()
        except RuntimeError:
            coroutine.close()
            raise
        running = LoopCall(coroutine)
        try:
            self.post(running.start)
        except RuntimeError:  # the loop ended
            coroutine.close()
            raise ClientClosed("the program is ending") from None
        try:
            return running.wait() if wait is None else wait(running)
        except asyncio.CancelledError:
            raise ClientClosed("the client was closed") from None
        except BaseException:
            if not running.done:
                with contextlib.suppress(RuntimeError):  # the loop ended meanwhile
                    self.post(running.cancel)
            raise
        finally:
            running.release()


def _posts() -> Posts | None:
    """The queue of functions for the loop; None if there is no eventfd, or no descriptor left for one."""
    try:
        return Posts()
    except OSError:
        return None


def _end_with_multiprocessing() -> None:
    """Register the end in a child of multiprocessing, which does not run `atexit` functions but its own finalizers."""
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, LoopThread.end, exitpriority=0)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=LoopThread.forget)
atexit.register(LoopThread.end)


class AsyncClient(Protocol):
    """The common methods of the asyncio clients."""

    async def start(self) -> None:
        """Find the cluster."""

    async def close(self) -> None:
        """End."""


C = TypeVar("C", bound=AsyncClient)


class Twin(Generic[C]):
    """A blocking client: each method runs that of the asyncio client in the loop thread. Any thread may call it.

    It starts with the first use, by `start` or as a context manager, and not in the constructor: a program may create
    one and fork afterwards.
    """

    def __init__(self, client: C) -> None:
        self._inner = client
        self._thread: LoopThread | None = None
        """The thread in which it runs; None until it has started."""
        self._starting: tuple[LoopThread, asyncio.Lock] | None = None
        self._may_start = True
        self._is_closed = False
        """Whether `close` has ended: until then a rebalance listener may still use its consumer."""

    def __del__(self) -> None:
        """Close a client that the program has dropped. (A `weakref.finalize` would do nothing at the program's end.)"""
        thread: LoopThread | None = getattr(self, "_thread", None)  # not set if the options were refused
        if thread is not None and not self._is_closed:
            thread.close_dropped(self._closing_when_dropped())

    def start(self) -> None:
        """Find the cluster now, and not with the first use; a second call does nothing.

        Raises KafkaError when no broker answers, ClientClosed after `close`.
        """
        self._running()

    def close(self) -> None:
        """End; in a forked child, where the client does not work, do nothing."""
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

    def _closing_when_dropped(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return a function that closes the client after this object was collected; it must not refer to the object."""
        return self._inner.close

    def _end(
        self,
        closing: Coroutine[Any, Any, None],
        wait: Callable[[LoopCall[None]], None] | None = None,
    ) -> None:
        self._may_start = False
        thread = self._thread
        if thread is None or thread.pid != os.getpid() or thread.loop.is_closed():
            closing.close()
            self._is_closed = True
            return
        try:
            thread.wait_for(closing, wait)
        finally:
            self._is_closed = True
        thread.clients.discard(self)  # not after an interrupt: then the client is closed at exit

    def _running(self) -> LoopThread:
        """Return the thread in which the client runs; start it if needed."""
        if self._is_closed:
            raise ClientClosed(f"the {self._name()} is closed: make another one")
        thread = self._thread
        if thread is None:
            return self._start()
        if thread.pid != os.getpid():
            raise ClientClosed("the client belongs to the process that started it: make another one after a fork")
        return thread

    def _start(self) -> LoopThread:
        """Start the client once, even if several threads call this; after an interrupt the next call starts it."""
        thread = LoopThread.of_this_process()

        async def start() -> None:
            if self._starting is None or self._starting[0] is not thread:  # not from before a fork
                self._starting = (thread, asyncio.Lock())
            async with self._starting[1]:
                if self._thread is None and self._may_start:
                    await self._inner.start()
                    thread.clients.add(self)
                    self._thread = thread
                if not self._may_start:  # closed meanwhile, by another thread
                    await self._inner.close()
                    raise ClientClosed(f"the {self._name()} is closed: make another one")

        thread.wait_for(start())
        return thread

    def _name(self) -> str:
        """The client's name in a sentence: `share consumer` of ShareConsumer."""
        return "".join(f" {one.lower()}" if one.isupper() else one for one in type(self).__name__).lstrip()

    def _await(self, coroutine: Coroutine[Any, Any, T], wait: Callable[[LoopCall[T]], T] | None = None) -> T:
        """Run a coroutine of the asyncio client."""
        try:
            thread = self._running()
        except BaseException:
            coroutine.close()
            raise
        return thread.wait_for(coroutine, wait)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the asyncio client in the loop's thread."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._await(call())
