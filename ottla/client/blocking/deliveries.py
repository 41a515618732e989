"""The deliveries of the blocking producer, whose records may still be in the inbox.

A `Delivery` holds its record there; later it is the record's place in a batch of the asyncio producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ottla.client.accumulator import Batch
from ottla.client.accumulator import Delivery as AsyncDelivery
from ottla.client.filling import ManyRecords
from ottla.client.record_preparation import LARGEST_TIMESTAMP_MS
from ottla.client.sent_records import Deliveries as AsyncDeliveries
from ottla.client.sent_records import SentRecords
from ottla.client.structs import RecordMetadata

Record = tuple[str, Any, Any, Sequence[tuple[str, bytes | None]], int, int | None]
"""The fields of a `ProducerRecord`, without their names: topic, value, key, headers, timestamp, partition."""


class Waiting(Protocol):
    """The part of a producer that deliveries use."""

    def await_delivery(self, delivery: Delivery, timeout_ms: float | None) -> None:
        """Wait until the result of a record is known."""

    def await_deliveries(self, deliveries: AsyncDeliveries, timeout_ms: float | None) -> None:
        """Wait until the results of a call's records are known."""


class Refused:
    """The error of a record that is in no batch, instead of the batch."""

    __slots__ = ("error", "is_observed")

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_observed = False


class Delivery:
    """The result of one sent record: `result` waits for its `RecordMetadata`, or raises its error.

    It need not be called: `flush` and `close` raise the error of records whose `result` was not called.
    """

    __slots__ = ("_place", "_producer", "_timestamp_ms", "_wakes", "batch", "record")

    def __init__(
        self, producer: Waiting, record: Record, timestamp_ms: int, wake: Callable[[], None] | None = None
    ) -> None:
        self._producer = producer
        self.record: Record | None = record
        """The record; None when it is in a batch."""
        self._timestamp_ms = timestamp_ms
        self.batch: Batch | Refused | None = None
        """The batch of the record after it was taken from the inbox; `_place` is then its place there."""
        self._wakes: list[Callable[[], None]] | None = None if wake is None else [wake]
        """The functions that wake waiting threads when the result of the record is known."""

    def done(self) -> bool:
        """Whether the result of the record is known."""
        batch = self.batch
        if batch is None:
            return False
        if isinstance(batch, Refused):
            return True
        return batch.is_finished if not batch.parts else self._inner_of(batch).done()

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Return the record's metadata, or raise its error; ClientTimeout if that is unknown after `timeout_ms`.

        None waits for as long as the producer's `delivery_timeout_ms` allows.
        """
        batch = self.batch
        if isinstance(batch, Batch) and batch.is_finished and batch.base_offset >= 0:  # the usual case
            return batch.place_of(self._place, self._timestamp_ms)
        if not self.done():
            self._producer.await_delivery(self, timeout_ms)
        if isinstance(self.batch, Refused):
            self.batch.is_observed = True
            raise self.batch.error
        inner = self.inner()
        assert inner is not None
        return inner.result()

    def inner(self) -> AsyncDelivery | None:
        """Return the asyncio producer's delivery; None while the record is in the inbox, and when it was refused."""
        batch = self.batch
        return None if batch is None or isinstance(batch, Refused) else self._inner_of(batch)

    def _inner_of(self, batch: Batch) -> AsyncDelivery:
        return AsyncDelivery(batch, self._place, self._timestamp_ms)

    def put(self, batch: Batch, place: int) -> None:
        """Set the batch that has the record."""
        self._place: int = place  # before the batch, since another thread checks that one
        self.batch = batch
        self.record = None
        if self._wakes is not None:
            if batch.is_finished:
                self._wake_all()
            else:
                batch.at_end.update(self._wakes)
                batch.hasten()

    def refuse(self, error: Exception) -> Refused:
        """Set the error because of which no batch has the record."""
        refused = self.batch = Refused(error)
        self.record = None
        self._wake_all()
        return refused

    def hasten(self) -> None:
        """Have the record sent soon, since a thread waits for it. Called in the loop's thread."""
        batch = self.batch
        if isinstance(batch, Batch):
            batch.hasten()

    def _wake_all(self) -> None:
        for wake in list(self._wakes or ()):
            wake()

    def call_at_end(self, wake: Callable[[], None]) -> None:
        """Let the loop's thread call `wake` when the result of the record may be known.

        Check `done` after this, and again after each call: if a batch was split, call this again.
        """
        if self._wakes is None:
            self._wakes = []
        self._wakes.append(wake)  # before the batch is read, which the loop's thread may be setting
        inner = self.inner()
        if inner is not None:
            inner.done()  # follows the record into the part of a batch that was split
            inner._batch.at_end.add(wake)

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for it."""
        return self._wakes is not None

    def call_no_more(self, wake: Callable[[], None]) -> None:
        """Revert `call_at_end`."""
        self._wakes = [other for other in self._wakes or () if other != wake] or None
        inner = self.inner()
        if inner is not None:
            inner.done()
            inner._batch.at_end.discard(wake)


class Deliveries:
    """The result of the records of one `send_many`: `result` waits for their `SentRecords`.

    Raises `RecordsNotSent` when some were given up; its `errors` name them. It need not be called, as with `Delivery`.
    """

    __slots__ = ("_inner", "_producer")

    def __init__(self, producer: Waiting, inner: AsyncDeliveries) -> None:
        self._producer = producer
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def done(self) -> bool:
        """Whether the results of all records are known."""
        return self._inner.done()

    def result(self, timeout_ms: float | None = None) -> SentRecords:
        """Return the records' metadata, or raise RecordsNotSent; ClientTimeout if that is unknown after `timeout_ms`.

        None waits for as long as the producer's `delivery_timeout_ms` allows.
        """
        if not self._inner.done():
            self._producer.await_deliveries(self._inner, timeout_ms)
        return self._inner.result()


def columns_of(group: list[Delivery]) -> ManyRecords:
    """Return the records of deliveries for one topic as columns."""
    _, values, keys, headers, times, partitions = zip(*[one.record or () for one in group], strict=True)
    count = len(group)
    oldest, newest = min(times), max(times)
    if oldest < 0 or newest > LARGEST_TIMESTAMP_MS:
        raise ValueError(f"timestamp_ms must be 0 to 2^63-1, not {oldest if oldest < 0 else newest}")
    return ManyRecords(
        values,
        None if keys.count(None) == count else keys,
        headers if any(headers) else None,
        oldest if oldest == newest else times,
        None if partitions.count(None) == count else partitions,
    )
