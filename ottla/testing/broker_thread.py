"""A broker's server on a thread and an event loop of its own, for a program that has other work on its threads."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.process import new_event_loop
from ottla.broker.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.context import ApiServices
    from ottla.broker.requests.gate import Gate
    from ottla.config.broker import BrokerConfig
    from ottla.storage.files.clock import Clock

T = TypeVar("T")


class BrokerThread:
    """One life of a broker: from `start` to `stop`."""

    def __init__(self, config: BrokerConfig, clock: Clock, make_gate: Callable[[ApiServices], Gate]) -> None:
        self._config = config
        self._clock = clock
        self._make_gate = make_gate
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[bool] | None = None
        """Its result is whether the stop is clean."""
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._pid = os.getpid()
        self.server: Server | None = None

    def start(self) -> None:
        """Return when it accepts connections. Raises what `Server.start` raises."""
        self._started: Future[None] = Future()
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Stop it as `Server.stop` does, and return when it has ended. Does nothing if it has."""
        self._finish(clean=True)

    def kill(self) -> None:
        """As `stop`, by `Server.abandon`."""
        self._finish(clean=False)

    def call(self, step: Callable[[Server], T]) -> T:
        """The result of `step`, which runs on the broker's thread. Raises what it raises."""
        loop, server = self._loop, self.server
        assert loop is not None
        assert server is not None
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(step(server))
            except BaseException as error:  # it belongs to the caller that waits
                result.set_exception(error)

        loop.call_soon_threadsafe(run)
        return result.result()

    def forget_templates(self) -> None:
        """Have the broker forget what it has learnt from earlier requests: it answers those without the gate."""
        self.call(lambda server: server.node.services.validity.change())

    def _finish(self, *, clean: bool) -> None:
        loop = self._loop
        if loop is None or self._ended.done() or os.getpid() != self._pid:  # a forked process has no such thread
            return
        loop.call_soon_threadsafe(self._ask_to_end, clean)
        self._ended.result()
        self._thread.join()

    def _ask_to_end(self, clean: bool) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_result(clean)

    def _run(self) -> None:
        loop = self._loop = new_event_loop()
        try:
            loop.run_until_complete(self._serve(loop))
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

    async def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._end = loop.create_future()
        server = self.server = Server(self._config, clock=self._clock, make_gate=self._make_gate)
        await server.start()
        self._started.set_result(None)
        if await self._end:
            await server.stop()
        else:
            await server.abandon()
