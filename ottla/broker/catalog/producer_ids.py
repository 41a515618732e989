"""Producer ids, one after another, from blocks that the catalog has stored.

A block is used up to its end before the next one is requested; while that one is being synced, requests wait in a
queue. The rest of a block is lost at a restart, as in Kafka: an id is never assigned twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator


class ProducerIds:
    """The ids of one broker. `allocate_block(done)` is `Catalog.allocate_producer_ids`."""

    def __init__(self, allocate_block: Callable[[Callable[[range | None], None]], None]) -> None:
        self._allocate_block = allocate_block
        self._ids: Iterator[int] = iter(())
        self._waiting: deque[Callable[[int | None], None]] = deque()
        self._is_allocating = False

    def next(self, done: Callable[[int | None], None]) -> None:
        """Call `done` with the next id, or with None when a new block could not be stored."""
        self._waiting.append(done)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            producer_id = next(self._ids, None)
            if producer_id is None:
                if not self._is_allocating:
                    self._is_allocating = True
                    self._allocate_block(self._allocated)
                return
            self._waiting.popleft()(producer_id)

    def _allocated(self, block: range | None) -> None:
        self._is_allocating = False
        if block is None:
            waiting, self._waiting = self._waiting, deque()
            for done in waiting:
                done(None)
            return
        self._ids = iter(block)
        self._serve()
