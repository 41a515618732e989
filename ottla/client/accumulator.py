"""Records that wait to be sent: their batches, and the deliveries by which a program learns what became of them.

A `Batch` has one future for all its records; a `Delivery` is a record's place in it and costs no future of its own.
The partition's queue and sequences are `ottla.client_core.partition_queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

from ottla.client.errors import KafkaError
from ottla.client.structs import RecordMetadata
from ottla.client_core.partition_queue import PartitionQueue, QueuedBatch
from ottla.protocol.records.columns import ColumnBatchBuilder


class Batch(QueuedBatch):
    """The records of one partition that travel together, and what became of them."""

    __slots__ = (
        "_outcome",
        "at_end",
        "base_offset",
        "builder",
        "deadline",
        "deliveries",
        "error",
        "log_append_time_ms",
        "observed",
        "opened_at",
        "parts",
        "reserved_bytes",
        "send_soon",
    )

    queue: PartitionQueue[Batch]

    def __init__(self, queue: PartitionQueue[Batch], now: float, linger_s: float, delivery_timeout_s: float) -> None:
        super().__init__()
        self.queue = queue
        self.builder = ColumnBatchBuilder()
        self._outcome: asyncio.Future[None] | None = None
        self.at_end: set[Callable[[], None]] = set()
        """Called at the end, in the loop's thread."""
        self.opened_at = now
        self.linger_until = now + linger_s
        self.deadline = now + delivery_timeout_s
        self.reserved_bytes = 0
        self.observed: set[int] = set()
        """The places of records whose failure the program has got from their deliveries."""
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.parts: list[Batch] = []
        """What the records travel in instead, after the batch was found too large."""
        self.deliveries: list[Delivery] | None = None
        """Every record's delivery, kept only where an interceptor is called for each."""
        self.send_soon: Callable[[], None] = _do_nothing
        """Called before the first wait: see `Sender.send_soon`."""

    @property
    def outcome(self) -> asyncio.Future[None]:
        """A future that is done at the end; made when it is first asked for."""
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
            if self.is_finished:
                self._outcome.set_result(None)
        return self._outcome

    @property
    def size_bytes(self) -> int:
        """The size of the batch without compression."""
        return self.builder.size_bytes

    @property
    def is_observed(self) -> bool:
        """Whether the program has got the failure of each of its records."""
        return len(self.observed) == self.record_count

    def finish(self, base_offset: int, log_append_time_ms: int) -> None:
        """Complete the deliveries: the broker has the records."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()

    def fail(self, error: KafkaError) -> None:
        """Complete the deliveries: the records are given up."""
        self.error = error
        self._end()

    def replace(self, parts: list[Batch]) -> None:
        """Have the deliveries follow their records into smaller batches."""
        self.parts = parts
        self._end()

    def wait(self) -> Generator[Any, None, None]:
        """Wait for the end. To give up waiting for one record does not end the batch of others."""
        if not self.attempts:
            self.send_soon()
            if self.is_finished:
                return
        waiter = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        self.at_end.add(wake)
        try:
            yield from waiter
        finally:
            self.at_end.discard(wake)

    def _end(self) -> None:
        self.is_finished = True
        self.builder.body = bytearray()  # deliveries keep the batch; the records shall not stay with it
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(None)
        for wake in list(self.at_end):  # a copy: another thread may add one, and looks at `is_finished` after that
            wake()


def _do_nothing() -> None:
    """What the parts of a batch that was split need: they are in their queue again."""


class Delivery:
    """What becomes of one sent record: await it for its `RecordMetadata`, or for the KafkaError that ended it.

    It need not be awaited: `flush` and `close` raise the error of records whose delivery was not awaited.
    """

    __slots__ = ("_batch", "_place", "_timestamp_ms")

    def __init__(self, batch: Batch, place: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._place = place
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            yield from self._batch.wait()
        return self.result()

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        if self._batch.parts:
            self._move()
        return self._batch.is_finished

    def _move(self) -> None:
        """Follow the record into the part of a split batch that has it now."""
        while parts := self._batch.parts:
            for part in parts:
                if self._place < part.record_count:
                    self._batch = part
                    break
                self._place -= part.record_count

    def result(self) -> RecordMetadata:
        """Return where the record went, or raise why it did not; asyncio.InvalidStateError while that is open."""
        if not self.done():
            raise asyncio.InvalidStateError("the record is still on its way")
        batch = self._batch
        if batch.error is not None:
            batch.observed.add(self._place)
            raise batch.error
        return self.place

    @property
    def place(self) -> RecordMetadata:
        """Where the record is as far as it is known; its offset is -1 before it is delivered."""
        if self._batch.parts:
            self._move()
        batch = self._batch
        return RecordMetadata(
            batch.queue.topic,
            batch.queue.partition,
            batch.base_offset + self._place if batch.base_offset >= 0 else -1,
            self._timestamp_ms if batch.log_append_time_ms < 0 else batch.log_append_time_ms,
        )
