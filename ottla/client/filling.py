"""Adding many records of one call to the batches of their partitions, column by column.

The records of a topic are grouped by partition, and each group fills one batch after the other. All records are checked
before the first is added to a batch. Between two batches the event loop runs, so that full batches are sent; while
`buffer_memory` is full, the call waits as `send` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from ottla.client.accumulator import Batch
from ottla.client.errors import RecordTooLarge
from ottla.client.partitioner import Partitioner
from ottla.client.room import Room
from ottla.client.sender import Sender
from ottla.client.sent_records import Run
from ottla.client_core.partition_queue import PartitionQueue
from ottla.protocol.records.columns import MOST_OVERHEAD_BYTES, RecordColumns
from ottla.protocol.records.record import Headers

_WINDOW_RECORDS = 2000
"""In a call where only some records stick to a partition, the size of the windows in which they stick to the same one.
The order of records within a partition is that of the call."""

Queues = list[PartitionQueue[Batch]]


class ManyRecords(NamedTuple):
    """Records for one topic, as columns of equal length. None: no record has a key, or headers."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    headers: Sequence[Headers] | None
    timestamps_ms: int | Sequence[int]
    """One for all records, or one for each."""
    partitions: int | Sequence[int | None] | None
    """One for all records, or one for each; for None the partitioner chooses."""

    def pick(self, indexes: Sequence[int]) -> RecordColumns:
        """Return some of them, prepared for their batches."""
        if len(indexes) == len(self.values):
            return RecordColumns(self.values, self.keys, self.headers, self.timestamps_ms)
        some = itemgetter(*indexes, indexes[0])  # one more, since for a single index `itemgetter` returns no tuple
        times = self.timestamps_ms
        return RecordColumns(
            some(self.values)[:-1],
            None if self.keys is None else some(self.keys)[:-1],
            None if self.headers is None else some(self.headers)[:-1],
            times if isinstance(times, int) else some(times)[:-1],
        )

    def are_surely_below(self, size_bytes: int) -> bool:
        """Whether all records need less than that in a batch, judged by the longest key and the longest value."""
        if self.headers is not None:
            return False
        longest = [max(map(_length, column), default=0) for column in (self.values, self.keys or ())]
        return sum(longest) + MOST_OVERHEAD_BYTES <= size_bytes


def _length(item: bytes | None) -> int:
    return 0 if item is None else len(item)


class _Group(NamedTuple):
    """Records for one partition; None: the one that records without a key stick to, which changes with each batch."""

    partition: int | None
    indexes: Sequence[int]
    columns: RecordColumns


class BatchFiller:
    """See the module. `queues_of` returns the queues of a topic and raises when the producer is closed."""

    def __init__(
        self,
        sender: Sender,
        room: Room,
        partitioner: Partitioner,
        *,
        queues_of: Callable[[str], Awaitable[Queues]],
        open_batch: Callable[[PartitionQueue[Batch]], Batch],
        max_record_bytes: int,
    ) -> None:
        self._sender = sender
        self._room = room
        self._partitioner = partitioner
        self._queues_of = queues_of
        self._open_batch = open_batch
        self._max_record_bytes = min(max_record_bytes, room.capacity_bytes)

    async def fill(self, topic: str, records: ManyRecords, runs: list[Run]) -> None:
        """Add records to batches, in order within each partition, and add a `Run` to `runs` for each added group.

        Raises RecordTooLarge and ValueError before any record is in a batch; BufferExhausted, ClientClosed and errors
        of the topic's metadata also later: then the records in `runs` are being sent.
        """
        queues = await self._queues_of(topic)
        for partition, indexes, columns in self._groups(topic, records, len(queues)):
            done = 0
            while done < columns.count:
                bound = columns.bound(done)
                if not self._room.is_at_hand(bound):
                    await self._room.await_turn(bound)
                    queues = await self._queues_of(topic)
                number = self._partitioner.choose(topic, None, len(queues)) if partition is None else partition
                if number >= len(queues):  # the topic was created again, with fewer partitions
                    raise ValueError(f"{topic} has partitions 0 to {len(queues) - 1} now, not {number}")
                added = self._fill_one(queues[number], columns, done, indexes, runs)
                done += added

    def _fill_one(
        self, queue: PartitionQueue[Batch], columns: RecordColumns, first: int, indexes: Sequence[int], runs: list[Run]
    ) -> int:
        """Fill the batch of a queue with records from `first` on, up to its limit and the memory's; return how many."""
        batch = queue.waiting[-1] if queue.waiting else None
        if batch is None or batch.is_closed:
            batch = self._open_batch(queue)
        builder, room = batch.builder, self._room
        before_bytes, place = len(builder.body), builder.record_count
        most_bytes = min(queue.batch_bytes, builder.size_bytes + room.capacity_bytes - room.used_bytes)
        added = builder.extend(columns, first, most_bytes)
        added_bytes = len(builder.body) - before_bytes
        batch.record_count = builder.record_count
        batch.reserved_bytes += added_bytes
        room.used_bytes += added_bytes
        if added:
            runs.append(Run(batch, place, indexes[first : first + added]))
        is_left = first + added < columns.count
        if builder.size_bytes >= queue.batch_bytes or (is_left and most_bytes == queue.batch_bytes) or not added:
            self._sender.close_batch(batch)
            self._sender.wake()
            room.owes_a_break = True
        return added

    def _groups(self, topic: str, records: ManyRecords, partitions: int) -> Iterator[_Group]:
        """Yield the records by partition; if only some of them stick to one, window after window."""
        every = range(len(records.values))
        chosen = self._chosen(topic, records, partitions)
        if not isinstance(chosen, list):
            columns = records.pick(every)
            self._check_sizes(topic, columns)
            yield _Group(chosen, every, columns)
            return
        if not records.are_surely_below(self._max_record_bytes):
            self._check_sizes(topic, records.pick(every))
        window = _WINDOW_RECORDS if None in chosen else len(every)
        for first in range(0, len(every), window):
            stuck = self._partitioner.choose(topic, None, partitions) if None in chosen else None
            found: dict[int | None, list[int]] = defaultdict(list)
            for index, partition in enumerate(chosen[first : first + window], first):
                found[stuck if partition is None else partition].append(index)
            for number, indexes in found.items():
                yield _Group(number, indexes, records.pick(indexes))

    def _chosen(self, topic: str, records: ManyRecords, partitions: int) -> int | list[int | None] | None:
        """Return the partition of all records, or of each; None: they stick to one until its batch is closed.

        Raises ValueError for a partition that the topic does not have.
        """
        given = records.partitions
        if isinstance(given, int):
            _check_partition(topic, given, partitions)
            return given
        count = len(records.values)
        chosen = self._partitioner.choose_many(topic, records.keys, count, partitions)
        if given is not None:
            for number in {number for number in given if number is not None}:
                _check_partition(topic, number, partitions)
            others = [None] * count if chosen is None else chosen
            chosen = [other if number is None else number for number, other in zip(given, others, strict=True)]
        if chosen is None or chosen.count(chosen[0] if chosen else None) == count:
            return chosen[0] if chosen else None
        return chosen

    def _check_sizes(self, topic: str, columns: RecordColumns) -> None:
        if columns.largest_bytes <= self._max_record_bytes:
            return
        index = next(index for index in range(columns.count) if columns.bound(index) > self._max_record_bytes)
        bounds = f"max_request_size or buffer_memory ({self._max_record_bytes} bytes)"
        raise RecordTooLarge(f"{topic}: record {index} takes up to {columns.bound(index)} bytes, above {bounds}")


def _check_partition(topic: str, partition: int, partitions: int) -> None:
    if not 0 <= partition < partitions:
        raise ValueError(f"{topic} has partitions 0 to {partitions - 1}, not {partition}")
