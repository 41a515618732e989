"""The poll gate: what changes under the program's feet changes only while the program waits for records.

A program that asks for records has dealt with those it got before. That is when a group may take partitions from it,
call its rebalance listener, and note how far it has read. Kafka's Java consumer does all of that inside `poll`; so do
we, though the work itself runs in a task of its own, which lives on when a poll is cancelled.

- Readers are inside `polling()`, and call `passed()` whenever they are about to return records: it waits for sections.
- The worker enters `section()`, which begins once a reader is there, and holds all readers back until it ends.

Pure asyncio: no clock, no sockets. Not for threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class PollGate:
    """See the module. `on_wanted` is called when a section waits, so that readers come by soon."""

    def __init__(self, on_wanted: Callable[[], None]) -> None:
        self.polls = 0
        """How many polls have begun."""
        self._on_wanted = on_wanted
        self._readers = 0
        self._sections = 0
        self._holder: asyncio.Task[object] | None = None
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_polled(self) -> bool:
        """Whether a reader is there now."""
        return self._readers > 0

    @property
    def is_wanted(self) -> bool:
        """Whether a section waits or is under way."""
        return self._sections > 0

    def polling(self) -> PollGate:
        """Be a reader that asks for records, for as long as the `with` block of what is returned runs."""
        return self

    def __enter__(self) -> None:  # not a generator's: a poll for few records would feel it
        self.polls += 1
        self._readers += 1
        if self._sections:
            self._tell()

    def __exit__(self, *_: object) -> None:
        self._readers -= 1

    async def passed(self) -> None:
        """Wait until no section waits or is under way.

        Raises RuntimeError inside a section: a rebalance listener that reads would wait for itself.
        """
        while self._sections:
            if self.is_holder:
                raise RuntimeError("records cannot be read inside a rebalance listener")
            await self._wait()

    @property
    def is_holder(self) -> bool:
        """Whether the running task is inside a section: a rebalance listener, then."""
        return self._holder is not None and self._holder is asyncio.current_task()

    @asynccontextmanager
    async def section(self) -> AsyncIterator[None]:
        """Wait for a reader, and hold readers back until the block ends. One section at a time.

        Within another section of the same task it begins at once.
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
