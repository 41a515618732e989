"""A schema registry on a thread and an event loop of its own, beside a broker in a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from ottla.registry.log import LogSettings


class SchemaRegistry:
    """A context manager: the registry serves on a free port of 127.0.0.1 until the end of the `with` block.

    Made by `EmbeddedBroker.schema_registry`.
    """

    def __init__(self, servers: str, client_options: Mapping[str, object], topic: str, *, timeout_s: float) -> None:
        self._servers = servers
        self._options = {name.replace(".", "_"): value for name, value in client_options.items()}
        self._topic = topic
        self._timeout_s = timeout_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._started: Future[str] = Future()
        self._thread = threading.Thread(target=self._run, name="ottla-registry", daemon=True)

    @property
    def url(self) -> str:
        """Its address, for `schema.registry.url`. Raises RuntimeError before it serves."""
        if not self._started.done():
            raise RuntimeError("the registry does not run: use `with`")
        return self._started.result()

    def __enter__(self) -> Self:
        import ottla.registry.running  # noqa: F401  (before the thread: CPython 3.11 may fail if two threads compile)

        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop, end = self._loop, self._end
        if loop is not None and end is not None:
            loop.call_soon_threadsafe(end.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # it belongs to the thread that waits for the start
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        from ottla.registry.running import running_registry

        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with running_registry(self._settings(), "127.0.0.1", 0, timeout_s=self._timeout_s) as url:
            self._started.set_result(url)
            await self._end.wait()

    def _settings(self) -> LogSettings:
        from ottla.registry.log import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, LogSettings

        def options(defaults: Mapping[str, object]) -> dict[str, Any]:
            return {**defaults, **self._options}

        return LogSettings(
            self._servers,
            self._topic,
            admin=options(ADMIN_DEFAULTS),
            consumer=options(CONSUMER_DEFAULTS),
            producer=options(PRODUCER_DEFAULTS),
        )
