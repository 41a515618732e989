"""A producer's batches and their memory, from the first record until they are delivered, split or given up."""

from __future__ import annotations

import asyncio
import contextlib

from ottla.client.accumulator import Batch
from ottla.client.errors import KafkaError
from ottla.client.interceptors import report_acknowledgement
from ottla.client.producer_options import ProducerOptions
from ottla.client.room import Room
from ottla.client.sender import Sender
from ottla.client.unseen_failures import UnseenFailures
from ottla.client_core.partition_queue import PartitionQueue, ProducerIdentity

_TIMER_SLACK_S = 0.001
"""How early a timer of the loop may fire (uvloop's have a resolution of milliseconds)."""


class UnfinishedBatches:
    """See the module. The producer sets `sender` when there is one; before that there are no batches."""

    sender: Sender

    def __init__(self, options: ProducerOptions, room: Room) -> None:
        self._linger_s = options.lingering_ms / 1000
        self._delivery_timeout_s = options.delivery_timeout_ms / 1000
        self._interceptors = options.interceptors
        self._room = room
        self._batches: dict[Batch, None] = {}
        self._expiry: asyncio.TimerHandle | None = None
        """The timer for the next deadline of a batch; one timer serves all batches."""
        self._failures: UnseenFailures[Batch] = UnseenFailures(lambda batch: batch.is_observed)

    def open(self, queue: PartitionQueue[Batch]) -> Batch:
        """Return a new batch at the end of its queue, which is activated in the sender."""
        batch = self.add(queue)
        self.sender.activate(queue)
        return batch

    def add(self, queue: PartitionQueue[Batch]) -> Batch:
        """Return a new batch at the end of its queue; the caller activates the queue when the batch has a record."""
        batch = self._new(queue, self.sender.loop.time())
        queue.waiting.append(batch)
        return batch

    def add_sent(self, queue: PartitionQueue[Batch], record: bytes, timestamp_ms: int, now: float) -> Batch:
        """Return the batch of an encoded record that was sent before it was in any batch. It is not in its queue."""
        batch = self._new(queue, now)
        batch.builder.append_encoded(record, timestamp_ms)
        batch.record_count = 1
        batch.reserved_bytes = size_bytes = len(record)
        self._room.used_bytes += size_bytes
        return batch

    def _new(self, queue: PartitionQueue[Batch], now: float) -> Batch:
        batch = Batch(queue, now, self._linger_s, self._delivery_timeout_s)
        if self._expiry is None:
            self._expiry = self.sender.loop.call_at(batch.deadline, self._on_deadline)
        if self._interceptors:
            batch.deliveries = []
        batch.sender = self.sender
        queue.used_at = now
        self._batches[batch] = None
        return batch

    def take_back(self, batch: Batch) -> None:
        """Remove a batch that was opened for a record that could not be encoded."""
        batch.queue.waiting.remove(batch)
        self._batches.pop(batch)

    def _on_deadline(self) -> None:
        """Give up the expired batches, and set the timer for the next one."""
        loop = self.sender.loop
        self._expiry = None
        try:
            now = loop.time() + _TIMER_SLACK_S
            for batch in list(self._batches):
                if batch.deadline <= now and not batch.is_finished:
                    self.sender.expire(batch)
            deadlines = [batch.deadline for batch in self._batches]
            self._expiry = loop.call_at(min(deadlines), self._on_deadline) if deadlines else None
        except BaseException as bug:  # deliveries that wait must get it; see `Sender` for an interrupt
            self.sender.fail(bug)
            if not isinstance(bug, Exception):
                raise

    def finish(self, batch: Batch) -> None:
        """Release the memory of a batch, wake a call that waits for it, and complete the batch's deliveries."""
        self._batches.pop(batch, None)
        freed_bytes, batch.reserved_bytes = batch.reserved_bytes, 0
        batch.sealed = None
        if batch.error is not None:
            self._failures.add(batch)
        if batch.deliveries is not None:
            for delivery in batch.deliveries:
                report_acknowledgement(self._interceptors, delivery.place, batch.error)
            batch.deliveries = None
        room = self._room
        room.used_bytes -= freed_bytes
        if room.line:
            room.call_next()
        batch.wake()

    def split(self, batch: Batch) -> None:
        """Replace a batch by its parts."""
        self._batches.pop(batch, None)
        self._batches |= dict.fromkeys(batch.parts)
        self._room.used_bytes += sum(part.reserved_bytes for part in batch.parts) - batch.reserved_bytes
        batch.reserved_bytes = 0
        batch.sealed = None
        batch.deliveries = None
        batch.wake()

    @property
    def are_delivered(self) -> bool:
        """Whether no batch waits or is in flight."""
        return not self._batches

    @property
    def requests_in_flight(self) -> int:
        """The number of requests that wait for an answer."""
        return self.sender.requests_in_flight

    def identify(self, identity: ProducerIdentity) -> None:
        """Send further batches under this identity."""
        self.sender.identify(identity)

    def fail(self, bug: Exception) -> None:
        """End the producer because of an unexpected exception."""
        self.sender.fail(bug)

    def give_up_all(self, error: KafkaError) -> bool:
        """Give up all batches because their transaction is aborted; return whether the broker may have some."""
        given_up = list(self._batches)
        for batch in given_up:
            self.sender.discard(batch, error)
        return any(batch.attempts for batch in given_up)

    def forget_failures(self) -> None:
        """Drop the failures until now: the end of a transaction has reported them."""
        self._failures.take()

    def give_up(self, error: KafkaError) -> None:
        """Give up all batches."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        for batch in list(self._batches):
            batch.fail(error)
            self.finish(batch)

    def count_records(self) -> int:
        """Return the number of records that are not delivered yet, including those in flight."""
        return sum(batch.record_count for batch in self._batches)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until the current batches have ended, for at most this time."""
        awaited = list(self._batches)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for batch in awaited:  # a batch that has ended already needs no iteration of the event loop
                    if not batch.is_finished:
                        await self._await_end(batch)
                    awaited += batch.parts  # if it was split

    async def _await_end(self, batch: Batch) -> None:
        waiter = batch.new_waiter(self.sender.loop)
        try:
            await waiter
        except BaseException:
            batch.forget(waiter)
            raise

    def raise_failure(self) -> None:
        """Raise the error of a batch that was given up, if the program has not got it."""
        failed = self._failures.take()
        if failed is not None and failed.error is not None:
            raise failed.error
