"""A broker's server on a thread and an event loop of its own, for a program that has other work on its threads."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.broker.process import new_event_loop
from ottla.broker.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.context import ApiServices
    from ottla.broker.requests.gate import Gate
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files.clock import Clock

T = TypeVar("T")
_RUNNING: Final[weakref.WeakSet[BrokerThread]] = weakref.WeakSet()
"""Those of this process that have started and have not ended."""
NOT_RUNNING: Final = "the broker does not run: use `with`, or call start()"
FORKED: Final = "the broker runs in the process from which this one was forked: only its address is here"


class BrokerThread:
    """One life of a broker: from `start` to `stop`."""

    def __init__(self, config: BrokerConfig, clock: Clock, make_gate: Callable[[ApiServices], Gate]) -> None:
        self._config = config
        self._clock = clock
        self._make_gate = make_gate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: Future[bool] = Future()
        """Its result is whether the stop is clean. The first one who asks decides."""
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._pid = os.getpid()
        self.server: Server | None = None

    def start(self) -> None:
        """Return when it accepts connections. Raises what `Server.start` raises."""
        self._started: Future[None] = Future()
        self._thread.start()
        self._started.result()
        _RUNNING.add(self)

    def stop(self) -> None:
        """Stop it as `Server.stop` does, and return when it has ended. Does nothing if it has."""
        self._finish(clean=True)

    def kill(self) -> None:
        """As `stop`, by `Server.abandon`."""
        self._finish(clean=False)

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """The (host, port) of each listener by its name, also in a forked process. The first one is for clients."""
        assert self.server is not None
        return self.server.addresses

    def call(self, step: Callable[[Server], T]) -> T:
        """The result of `step`, which runs on the broker's thread.

        Raises what it raises, and RuntimeError if the broker ends first, as another thread may want it, or belongs to
        the process from which this one was forked.
        """
        if os.getpid() != self._pid:
            raise RuntimeError(
                "the broker runs in the process from which this one was forked: only its address is here"
            )
        loop, server = self._loop, self.server
        assert loop is not None
        assert server is not None
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(step(server))
            except BaseException as error:  # it belongs to the caller that waits
                result.set_exception(error)

        with suppress(RuntimeError):  # the loop is closed: the broker has ended
            loop.call_soon_threadsafe(run)
        either: tuple[Future[Any], ...] = (result, self._ended)
        wait(either, return_when=FIRST_COMPLETED)
        if not result.done():
            raise RuntimeError(NOT_RUNNING)
        return result.result()

    def forget_templates(self) -> None:
        """Have the broker forget what it has learnt from earlier requests: it answers those without the gate."""
        self.call(lambda server: server.node.services.validity.change())

    def _finish(self, *, clean: bool) -> None:
        if self._thread.ident is None or os.getpid() != self._pid:  # a forked process has no such thread
            return
        with suppress(InvalidStateError):  # it was asked to end before
            self._end.set_result(clean)
        self._thread.join()
        _RUNNING.discard(self)
        self._ended.result()

    def release_sockets(self) -> None:
        """In a forked process: give up its copies of the broker's sockets. Else the port would stay taken for as long
        as that process lives, and clients whose connections the broker has closed would not notice.

        Their numbers stay in use, since the loop of the other thread, which does not run here, still has them.
        """
        if self.server is None:
            return
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for descriptor in self.server.socket_descriptors():
            if descriptor >= 0:
                os.dup2(null, descriptor, inheritable=False)
        os.close(null)

    def _run(self) -> None:
        loop = self._loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve())
        except BaseException as error:  # it belongs to the thread that waits for the start or the end
            if not self._started.done():
                self._ended.set_result(None)
                self._started.set_exception(error)
            else:
                self._ended.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            loop.close()

    async def _serve(self) -> None:
        server = self.server = Server(self._config, clock=self._clock, make_gate=self._make_gate)
        await server.start()
        self._started.set_result(None)
        if await asyncio.wrap_future(self._end):
            await server.stop()
        else:
            await server.abandon()


def _release_in_child() -> None:
    for thread in list(_RUNNING):
        with suppress(OSError):
            thread.release_sockets()
    _RUNNING.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
