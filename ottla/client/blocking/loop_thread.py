"""The thread in which the blocking clients' event loop runs: one for all clients of a process, made when first needed.

It is a daemon and ends at exit: open clients are closed first, and records on their way get some seconds for it; what
is not sent by then is counted in a warning. A client that the program has dropped without closing it is closed as soon
as Python notices. A forked child has no such thread; it makes its own for clients of its own, and those it inherited
after their start refuse to work there (their sockets are the parent's).
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
"""How long records may still take to be delivered when the program ends without closing its producer."""


class LoopThread:
    """See the module. Get the process's own by `LoopThread.of_this_process()`."""

    current: LoopThread | None = None
    """That of this process; none before it is needed, and in a forked child."""
    _making = threading.Lock()
    _has_ended = False

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = _new_event_loop()
        self.clients: weakref.WeakSet[Twin[Any]] = weakref.WeakSet()
        self._posts = _posts()
        self._dropped: set[asyncio.Task[None]] = set()
        """The closing of clients that the program has dropped."""
        _end_with_multiprocessing()
        self._thread = threading.Thread(target=self._run, name="ottla-client", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the limit of tasks is reached: the next client may ask again
            self.loop.close()
            raise
        self._ident = self._thread.ident

    def post(self, step: Callable[[], object]) -> None:
        """Have a step run in the loop's thread, behind those before it. Raises RuntimeError when the loop has ended.

        While an eventfd is written, this thread lets go of the interpreter, and the loop's can go on at once; for
        `call_soon_threadsafe` it is woken twice (docs/decisions/one-thread-owns-the-producer.md).
        """
        if self._posts is None:
            self.loop.call_soon_threadsafe(step)
        elif self.loop.is_closed():
            raise RuntimeError("the loop has ended")
        else:
            self._posts.put(step)

    @classmethod
    def of_this_process(cls) -> LoopThread:
        """Return the thread of this process, started now if need be. Raises ClientClosed when the program is ending."""
        with cls._making:
            if cls._has_ended:
                raise ClientClosed("the program is ending")
            if cls.current is None or cls.current.pid != os.getpid() or cls.current.loop.is_closed():
                cls.current = cls()
            return cls.current

    @classmethod
    def forget(cls) -> None:
        """In a forked child: the parent's thread is not here, and its lock may have been held."""
        cls._making = threading.Lock()
        cls.current = None
        cls._has_ended = False

    @classmethod
    def end(cls) -> None:
        """At exit: close what is open, within the limit, and end the thread. A second call finds nothing to do."""
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
        await asyncio.sleep(0)  # clients that were dropped just now have begun to close behind this
        if self._dropped:
            _, late = await asyncio.wait(self._dropped, timeout=EXIT_LIMIT_MS / 1000)
            for one in late:
                one.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def close_dropped(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close a client that nobody refers to any more, in the background. Garbage collection calls it, anywhere."""
        if not self.loop.is_closed() and self.pid == os.getpid():
            with contextlib.suppress(RuntimeError):  # the loop ended, and closed what was open
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
            self.loop.add_reader(posts.descriptor, posts.run)
        self.loop.run_forever()
        if posts is not None:
            self.loop.remove_reader(posts.descriptor)
        self.loop.close()

    def refuse_own(self) -> None:
        """Raise RuntimeError in the loop's own thread, where waiting would be waiting for oneself."""
        if threading.get_ident() == self._ident:
            raise RuntimeError("a blocking client was called from its own thread, by an interceptor or a partitioner")

    def wait_for(self, coroutine: Coroutine[Any, Any, T], wait: Callable[[LoopCall[T]], T] | None = None) -> T:
        """Run a coroutine in the loop and return what it returns; an interrupt of the caller cancels it.

        `wait` may wait in a way of its own, to do something meanwhile. Raises RuntimeError in the loop's own thread,
        where waiting would be waiting for oneself.
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
    """What brings steps to the loop; None where there is no eventfd, or no descriptor left for one."""
    try:
        return Posts()
    except OSError:
        return None


def _end_with_multiprocessing() -> None:
    """A child that multiprocessing has made ends without what `atexit` was given, but calls finalizers of its own."""
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, LoopThread.end, exitpriority=0)


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
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
    """A client that waits: each method runs the asyncio client's own in the loop thread. Any thread may call it.

    It starts when it is first used, by `start` or as a context manager, and not when it is made: a program that makes
    one and forks has started nothing.
    """

    def __init__(self, client: C) -> None:
        self._inner = client
        self._thread: LoopThread | None = None
        """Where it runs; None until it has started."""
        self._starting: tuple[LoopThread, asyncio.Lock] | None = None
        self._may_start = True
        self._is_closed = False
        """Set when `close` has ended: until then a rebalance listener may still use its consumer."""

    def __del__(self) -> None:
        """Close what the program has dropped. (A `weakref.finalize` would do nothing more once the program ends.)"""
        thread: LoopThread | None = getattr(self, "_thread", None)  # not there when the options were refused
        if thread is not None and not self._is_closed:
            thread.close_dropped(self._closing_when_dropped())

    def start(self) -> None:
        """Find the cluster now, and not with the first use; does nothing when that has been done.

        Raises KafkaError when no broker answers, ClientClosed after `close`.
        """
        self._running()

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

    def _closing_when_dropped(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return what closes the client when nobody refers to this object any more; it must not refer to it either."""
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
        thread.clients.discard(self)  # not when interrupted: then the end of the program closes it

    def _running(self) -> LoopThread:
        """Return where the client runs, and start it before if need be."""
        if self._is_closed:
            raise ClientClosed(f"the {self._name()} is closed: make another one")
        thread = self._thread
        if thread is None:
            return self._start()
        if thread.pid != os.getpid():
            raise ClientClosed("the client belongs to the process that started it: make another one after a fork")
        return thread

    def _start(self) -> LoopThread:
        """Start it once, however many threads ask for it; one that is interrupted leaves it to the next."""
        thread = LoopThread.of_this_process()

        async def start() -> None:
            if self._starting is None or self._starting[0] is not thread:  # not that of a process which was forked
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
        return type(self).__name__.lower()

    def _await(self, coroutine: Coroutine[Any, Any, T], wait: Callable[[LoopCall[T]], T] | None = None) -> T:
        """Run a coroutine of the asyncio client."""
        try:
            thread = self._running()
        except BaseException:
            coroutine.close()
            raise
        return thread.wait_for(coroutine, wait)

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function of the asyncio client where it expects to be run."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._await(call())
