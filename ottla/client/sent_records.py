"""The records of one `send_many`: their metadata or errors, in one object for all of them.

They are sent in the batches of their partitions together with other records. A `Run` is the part of a call in one
batch. The metadata of single records is computed on access.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, overload

from ottla.client.accumulator import Batch
from ottla.client.errors import KafkaError
from ottla.client.structs import RecordMetadata


class Run(NamedTuple):
    """Records of a call that follow each other in a batch."""

    batch: Batch
    place: int
    """The place of the first one in the batch."""
    indexes: Sequence[int]
    """The indexes of the records in the call."""


class SentRecords(Sequence[RecordMetadata]):
    """The metadata of the records of a call, in its order: a sequence of `RecordMetadata`, created on access.

    `offsets` and `partitions` are lists of numbers, which are faster. An offset is -1 if the record was not delivered
    (see `RecordsNotSent`) or the broker does not answer (acks=0).
    """

    def __init__(self, topic: str, count: int, runs: list[Run], timestamps_ms: int | Sequence[int]) -> None:
        self.topic = topic
        self.offsets = [-1] * count
        self.partitions = [-1] * count
        self._timestamps: list[int] | int = timestamps_ms if isinstance(timestamps_ms, int) else list(timestamps_ms)
        for batch, place, indexes in runs:
            first = batch.base_offset + place if batch.base_offset >= 0 else -1
            size = len(indexes)
            offsets = range(first, first + size) if first >= 0 else repeat(-1, size)
            if isinstance(indexes, range):
                where = slice(indexes.start, indexes.stop)
                self.offsets[where] = offsets
                self.partitions[where] = repeat(batch.queue.partition, size)
            else:
                for index, offset in zip(indexes, offsets, strict=True):
                    self.offsets[index] = offset
                    self.partitions[index] = batch.queue.partition
            if batch.log_append_time_ms >= 0:
                if isinstance(self._timestamps, int):
                    self._timestamps = [self._timestamps] * count
                for index in indexes:
                    self._timestamps[index] = batch.log_append_time_ms

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, index: int) -> RecordMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordMetadata]: ...
    def __getitem__(self, index: int | slice) -> RecordMetadata | list[RecordMetadata]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        timestamps = self._timestamps
        timestamp_ms = timestamps if isinstance(timestamps, int) else timestamps[index]
        return RecordMetadata(self.topic, self.partitions[index], self.offsets[index], timestamp_ms)


class RecordsNotSent(KafkaError):
    """Some records of a `send_many` were given up: `errors` has the error of each, by its index in the call.

    `sent` has the metadata of the rest; `code` is that of the first error.
    """

    def __init__(self, sent: SentRecords, errors: dict[int, KafkaError]) -> None:
        self.sent = sent
        self.errors = errors
        index, first = next(iter(errors.items()))
        super().__init__(
            first.code, f"{len(errors)} of {len(sent)} records were not delivered; record {index}: {first.message}"
        )


class Deliveries:
    """The result of the records of one `send_many`: await it for their `SentRecords`.

    Raises `RecordsNotSent` when some were given up; its `errors` name them. It need not be awaited: `flush` and `close`
    raise the error of records whose deliveries were not awaited.
    """

    __slots__ = ("_count", "_runs", "_timestamps_ms", "_topic")

    def __init__(self, topic: str, count: int, runs: list[Run], timestamps_ms: int | Sequence[int]) -> None:
        self._topic = topic
        self._count = count
        self._runs = runs
        self._timestamps_ms = timestamps_ms

    def __len__(self) -> int:
        return self._count

    def __await__(self) -> Generator[Any, None, SentRecords]:
        while (batch := self._unfinished()) is not None:
            yield from batch.wait()
        return self.result()

    def done(self) -> bool:
        """Whether the results of all records are known."""
        return self._unfinished() is None

    def result(self) -> SentRecords:
        """Return the records' metadata, or raise RecordsNotSent; asyncio.InvalidStateError before that is known."""
        if not self.done():
            raise asyncio.InvalidStateError("some of the records are not delivered yet")
        sent = SentRecords(self._topic, self._count, self._runs, self._timestamps_ms)
        errors: dict[int, KafkaError] = {}
        for batch, place, indexes in self._runs:
            if batch.error is not None:
                batch.observed.update(range(place, place + len(indexes)))
                errors.update(zip(indexes, repeat(batch.error)))
        if errors:
            raise RecordsNotSent(sent, dict(sorted(errors.items())))
        return sent

    def _unfinished(self) -> Batch | None:
        """Return a batch that is not finished."""
        for number, run in enumerate(self._runs):
            if run.batch.parts:
                self._runs[number : number + 1] = list(_split(run))
                return self._unfinished()
            if not run.batch.is_finished:
                return run.batch
        return None


def _split(run: Run) -> Iterator[Run]:
    """Yield the runs in the parts of a batch that was split."""
    first, last = run.place, run.place + len(run.indexes)
    before = 0
    for part in run.batch.parts:
        low, high = max(first, before), min(last, before + part.record_count)
        if low < high:
            yield Run(part, low - before, run.indexes[low - first : high - first])
        before += part.record_count
