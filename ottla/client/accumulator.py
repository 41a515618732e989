"""Records that wait to be sent: their batches, and the deliveries that report their results to the program.

A `Batch` ends for all its records together; a `Delivery` is a record's place in it and needs no future of its own.
The partition's queue and sequences are in `ottla.client_core.partition_queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

from ottla.client.errors import KafkaError
from ottla.client.structs import RecordMetadata
from ottla.client_core.partition_queue import PartitionQueue, QueuedBatch
from ottla.protocol.records.columns import ColumnBatchBuilder


class BatchSender(Protocol):
    """The part of a sender that a batch uses."""

    def send_alone(self, batch: Batch) -> bool:
        """Send a batch in this step if it is the only one to send; return whether it was sent."""

    def send_soon(self, batch: Batch) -> None:
        """Let a batch linger no more, unless the option says that it does. Send the waiting batches in this step, if no
        request is in flight.
        """


class Batch(QueuedBatch):
    """The records of one partition that are sent together, and their result."""

    __slots__ = (
        "_waiters",
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
        "sender",
    )

    queue: PartitionQueue[Batch]

    def __init__(self, queue: PartitionQueue[Batch], now: float, linger_s: float, delivery_timeout_s: float) -> None:
        QueuedBatch.__init__(self)  # `super()` would create an object for each batch
        self.queue = queue
        self.builder = ColumnBatchBuilder()
        self._waiters: list[asyncio.Future[None]] | None = None
        self.at_end: set[Callable[[], None]] = set()
        """The functions to call at the end, in the loop's thread."""
        self.opened_at = now
        self.linger_until = now + linger_s
        self.deadline = now + delivery_timeout_s
        self.reserved_bytes = 0
        self.observed: set[int]
        """Set only with an error: the places of records whose failure the program has got from their deliveries."""
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.parts: Sequence[Batch] = ()
        """The batches that have the records instead, after this one was too large."""
        self.deliveries: list[Delivery] | None = None
        """Every record's delivery, kept only if an interceptor is called for each."""
        self.sender: BatchSender | None = None
        """The sender that is asked to send it before the first wait; the parts of a split batch need none."""

    @property
    def size_bytes(self) -> int:
        """The size of the batch without compression."""
        return self.builder.size_bytes

    @property
    def is_observed(self) -> bool:
        """Whether the program has got the failure of every record."""
        return len(self.observed) == self.record_count

    def finish(self, base_offset: int, log_append_time_ms: int) -> None:
        """Note where the broker has appended the records. Call `wake` afterwards."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.is_finished = True

    def fail(self, error: KafkaError) -> None:
        """Note that the records are given up. Call `wake` afterwards."""
        self.observed = set()
        self.error = error
        self.is_finished = True

    def replace(self, parts: list[Batch]) -> None:
        """Let the deliveries follow their records into smaller batches. Call `wake` afterwards."""
        self.parts = parts
        self.is_finished = True

    def place_of(self, place: int, timestamp_ms: int) -> RecordMetadata:
        """Return the metadata of the record at a place of the batch; its offset is -1 until it is known."""
        queue = self.queue
        offset = self.base_offset + place if self.base_offset >= 0 else -1
        known_ms = timestamp_ms if self.log_append_time_ms < 0 else self.log_append_time_ms
        return tuple.__new__(RecordMetadata, (queue.topic, queue.partition, offset, known_ms))

    def wait(self) -> Generator[Any, None, None]:
        """Wait for the end. A caller that is cancelled does not cancel the batch."""
        if not self.attempts:
            self.hasten()
            if self.is_finished:
                return
        waiter = self.new_waiter(asyncio.get_running_loop())
        try:
            yield from waiter
        except BaseException:
            self.forget(waiter)
            raise

    def hasten(self) -> None:
        """Have it sent soon, since the program waits for one of its records."""
        sender = self.sender
        if not self.attempts and not self.is_finished and sender is not None and not sender.send_alone(self):
            sender.send_soon(self)

    def new_waiter(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that is done at the end; a caller that stops waiting must call `forget`."""
        waiter: asyncio.Future[None] = loop.create_future()
        if self._waiters is None:
            self._waiters = [waiter]
        else:
            self._waiters.append(waiter)
        return waiter

    def forget(self, waiter: asyncio.Future[None]) -> None:
        """Remove a future of `new_waiter`, so that it is not completed."""
        if self._waiters is not None and waiter in self._waiters:
            self._waiters.remove(waiter)

    def wake(self) -> None:
        """Complete the deliveries, as the last step of the end: a waiting thread continues while this one works."""
        self.builder.body = bytearray()  # deliveries refer to the batch, and should not keep its records in memory
        if self._waiters is not None:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = None
        if self.at_end:
            for wake in list(self.at_end):  # a copy: another thread may add one, and checks `is_finished` after that
                wake()
            self.at_end.clear()


class Delivery:
    """The result of one sent record: await it for the `RecordMetadata`, or for the KafkaError that ended it.

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
        """Whether the result of the record is known."""
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
        """Return the record's metadata, or raise its error; asyncio.InvalidStateError while the result is unknown."""
        if not self.done():
            raise asyncio.InvalidStateError("the record is not delivered yet")
        batch = self._batch
        if batch.error is not None:
            batch.observed.add(self._place)
            raise batch.error
        return batch.place_of(self._place, self._timestamp_ms)

    @property
    def place(self) -> RecordMetadata:
        """The record's metadata; its offset is -1 before it is delivered."""
        if self._batch.parts:
            self._move()
        return self._batch.place_of(self._place, self._timestamp_ms)
