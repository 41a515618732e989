"""A record of `send_and_wait`: a thread hands it to the loop's thread and waits for its result, all with this object.

A `Delivery` of `send` waits in the inbox and may be awaited at any time, by any thread. This object belongs to one
call, and its record is usually sent at once. Where it is not (the inbox has records, the topic has to be looked up,
there is no room, it is refused), a delivery takes its place.
"""

from __future__ import annotations

from typing import Final

from ottla.client.accumulator import Batch
from ottla.client.blocking.deliveries import Delivery, Record, Waiting
from ottla.client.blocking.thread_waiter import ThreadWaiter
from ottla.client.structs import RecordMetadata

_TIMESTAMP: Final = 4
"""The place of the timestamp in a `Record`."""


class AwaitedRecord(ThreadWaiter):
    """See the module. The loop's thread sets `delivery`, or calls `put`; the thread of the call reads `result`."""

    __slots__ = ("_batch", "_place", "delivery", "record")

    def __init__(self, record: Record) -> None:
        ThreadWaiter.__init__(self)
        self.record = record
        self.delivery: Delivery | None = None
        """The delivery that has taken its place."""
        self._batch: Batch | None = None

    def put(self, batch: Batch) -> None:
        """Set the batch in which it is the last record."""
        self._place: int = batch.record_count - 1  # before the batch, since the other thread checks that one
        self._batch = batch
        if batch.is_finished:
            self.wake()
        else:
            batch.at_end.add(self.wake)

    def result(self) -> RecordMetadata | None:
        """Return the record's metadata if it was appended; None: see `as_delivery`."""
        batch = self._batch
        if batch is None or not batch.is_finished or batch.base_offset < 0:
            return None
        return batch.place_of(self._place, self.record[_TIMESTAMP])

    def to_delivery(self, producer: Waiting) -> Delivery:
        """Let a delivery take its place, which wakes the thread; return it. The loop's thread calls this."""
        self.delivery = Delivery(producer, self.record, self.record[_TIMESTAMP], self.wake)
        return self.delivery

    def as_delivery(self, producer: Waiting) -> Delivery | None:
        """Return the delivery by which the thread waits further, or gets the error; None before the loop's thread has
        taken the record.
        """
        if self.delivery is None and self._batch is not None:
            self.delivery = Delivery(producer, self.record, self.record[_TIMESTAMP])
            self.delivery.put(self._batch, self._place)
        return self.delivery
