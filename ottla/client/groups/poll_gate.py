"""The poll gate: a group changes the program's partitions only while the program waits for records.

A program that asks for records has processed the earlier ones. At this point a group may revoke its partitions, call
its rebalance listener, and read its positions. Kafka's Java consumer does all of that inside `poll`; so does this one,
though the work runs in another task, which continues when a poll is cancelled.

- Readers are inside `polling()`, and call `passed()` before they return records: it waits for sections.
- The worker enters `section()`, which begins when there is a reader, and blocks all readers until it ends.

Pure asyncio: no clock, no sockets. It is not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class PollGate:
    """See the module. `on_wanted` is called when a section waits, so that readers call `passed` soon."""

    def __init__(self, on_wanted: Callable[[], None]) -> None:
        self.polls = 0
        """The number of polls that have begun."""
        self._on_wanted = on_wanted
        self._readers = 0
        self._sections = 0
        self._holder: asyncio.Task[object] | None = None
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_polled(self) -> bool:
        """Whether there is a reader now."""
        return self._readers > 0

    @property
    def is_wanted(self) -> bool:
        """Whether a section waits or is running."""
        return self._sections > 0

    def polling(self) -> PollGate:
        """Return a context manager in which the caller is a reader that asks for records."""
        return self

    def __enter__(self) -> None:  # no generator, which would be slower for polls with few records
        self.polls += 1
        self._readers += 1
        if self._sections:
            self._tell()

    def __exit__(self, *_: object) -> None:
        self._readers -= 1

    async def passed(self) -> None:
        """Wait until no section waits or is running.

        Raises RuntimeError inside a section: a rebalance listener that reads would wait for itself.
        """
        while self._sections:
            if self.is_holder:
                raise RuntimeError("records cannot be read inside a rebalance listener")
            await self._wait()

    @property
    def is_holder(self) -> bool:
        """Whether the current task is inside a section, which means in a rebalance listener."""
        return self._holder is not None and self._holder is asyncio.current_task()

    @asynccontextmanager
    async def section(self) -> AsyncIterator[None]:
        """Wait for a reader, and block readers until the block ends. There is one section at a time.

        Within another section of the same task it begins immediately.
        """
        task = asyncio.current_task()
        if self._holder is not None and self._holder is task:
            yield
            return
        self._sections += 1
        try:
            self._on_wanted()
            while self._holder is not None or not self._readers:
                await self._wait()
            self._holder = task
            try:
                yield
            finally:
                self._holder = None
        finally:
            self._sections -= 1
            self._tell()

    def _tell(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def _wait(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)
