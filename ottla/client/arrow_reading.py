"""Fetched records as Arrow record batches; a partition's position follows the batches that were yielded.

The batches of a partition are decoded in chunks of a few MB. The batches of a chunk stay in `fetched` until the last of
them is yielded, so that a seek, a pause or a reader of single records finds the partition as after any other read. This
module needs numpy and pyarrow, and is imported only when Arrow is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ottla.arrow.batches import Chunk, survey
from ottla.arrow.columns import HEADERS, SCHEMA, schema_of
from ottla.arrow.decoder import RecordDecoder
from ottla.arrow.varints import PADDING_BYTES
from ottla.client.assigned import AssignedPartition, FetchedBatch, is_wanted
from ottla.client.consumer_options import ConsumerOptions
from ottla.client.errors import CorruptRecords
from ottla.client.metrics import ConsumerMetrics
from ottla.protocol.records.errors import CorruptBatch

CHUNK_BYTES = 8 * 1024 * 1024
"""The most fetched bytes that are decoded together."""
_NO_END = 2**63 - 1
_OFFSET = "offset"


class Taken(NamedTuple):
    """A record batch for the program, and the partition and offset of its first record."""

    place: tuple[tuple[str, int], int]
    columns: pa.RecordBatch


class ArrowReading:
    """See the module. `columns` are the wanted ones, in order; None: all, headers only with `include_headers`.

    Raises ValueError for a column that does not exist.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        metrics: ConsumerMetrics,
        columns: Iterable[str] | None = None,
        *,
        include_headers: bool = False,
    ) -> None:
        self._options = options
        self._metrics = metrics
        if columns is None:
            columns = [name for name in SCHEMA.names if include_headers or name != HEADERS]
        self._names = schema_of(columns).names
        self._decoded = schema_of([*self._names, *({_OFFSET} - set(self._names))])

    def take(self, assigned: AssignedPartition, now: float) -> Taken | None:
        """Return the next record batch of a partition and advance its position; None when nothing was fetched.

        Raises CorruptRecords before a damaged batch; the position stays before that batch.
        """
        if assigned.decoded:  # these were decoded as single records: fetch them again as columns
            assigned.move(assigned.next_offset, epoch=assigned.consumed_epoch)
        while assigned.fetched:
            chunk = assigned.chunk
            if not isinstance(chunk, _Chunk) or chunk.owner is not self:
                chunk = assigned.chunk = _Chunk(self, assigned, self._options, most_bytes=CHUNK_BYTES)
            try:
                columns = chunk.next()
            except CorruptBatch as corrupt:
                self._finish(assigned, chunk, chunk.batches_before(assigned.position), now)
                if chunk.count > 1:  # decode one batch after the other, to find the damaged one
                    chunk = assigned.chunk = _Chunk(self, assigned, self._options, most_bytes=0)
                    continue
                raise self._refuse(assigned, str(corrupt)) from None
            if columns is None:
                self._finish(assigned, chunk, chunk.count, now)
                continue
            offsets = columns.column(_OFFSET)
            first, last = offsets[0].as_py(), offsets[-1].as_py()
            assigned.decoded_epoch = chunk.epoch_of(last)
            assigned.position = last + 1
            if chunk.is_used_up:
                self._finish(assigned, chunk, chunk.count, now)
            self._metrics.consumed_records.add(len(columns), now)
            return Taken((assigned.partition, first), columns.select(self._names))
        return None

    def decode(self, assigned: AssignedPartition, batches: list[FetchedBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records of batches from the partition's position on."""
        if not batches:
            return
        data = b"".join([*(batch.view for batch in batches), bytes(PADDING_BYTES)])
        found = survey(Chunk(np.frombuffer(data, np.uint8), 0, len(data) - PADDING_BYTES))
        topic, partition = assigned.partition
        decoder = RecordDecoder(self._decoded, topic, partition, check_crcs=self._options.check_crcs)
        yield from decoder.decode(found, max(0, assigned.position), _NO_END)

    def _finish(self, assigned: AssignedPartition, chunk: _Chunk, count: int, now: float) -> None:
        """Drop the first batches of a chunk, whose records were all yielded."""
        assigned.chunk = None
        if count:
            assigned.aborted = set(chunk.aborted_after[count - 1])
        for _ in range(count):
            batch = assigned.drop_first()
            self._metrics.consumed_bytes.add(len(batch.view), now)

    def _refuse(self, assigned: AssignedPartition, why: str) -> CorruptRecords:
        next_offset = assigned.fetched[0].header.next_offset
        assigned.drop_fetched()
        return CorruptRecords(assigned.partition, assigned.position, why, next_offset=next_offset)


class _Chunk:
    """The first of a partition's fetched batches, while they are decoded, one record batch ahead of the yielded one."""

    def __init__(
        self, owner: ArrowReading, assigned: AssignedPartition, options: ConsumerOptions, *, most_bytes: int
    ) -> None:
        self.owner = owner
        self.count = 0
        """The number of its fetched batches."""
        self.aborted_after: list[frozenset[int]] = []
        """For each of them, the producers whose aborted transaction continues after it."""
        self._batches: list[FetchedBatch] = []
        aborted = set(assigned.aborted)
        wanted: list[FetchedBatch] = []
        self._failure: CorruptBatch | None = None
        filled_bytes = 0
        is_read_committed = options.isolation_level == "read_committed"
        for batch in assigned.fetched:
            if self.count and filled_bytes + len(batch.view) > most_bytes:
                break
            try:
                is_read = is_wanted(batch, aborted, options.check_crcs, is_read_committed)
            except CorruptBatch as corrupt:
                if not self.count:
                    self._failure = corrupt
                    self.count = 1
                break  # otherwise it becomes the first of the next chunk
            self.count += 1
            self._batches.append(batch)
            filled_bytes += len(batch.view)
            self.aborted_after.append(frozenset(aborted))
            if is_read:
                wanted.append(batch)
        self._columns = owner.decode(assigned, wanted)
        self._ahead: pa.RecordBatch | None = None
        self._look_ahead()

    @property
    def is_used_up(self) -> bool:
        """Whether nothing of it is left, neither records nor a damaged batch."""
        return self._ahead is None and self._failure is None

    def next(self) -> pa.RecordBatch | None:
        """Return the next record batch, None after the last; raises CorruptBatch when it reaches damaged bytes."""
        if self._ahead is None:
            if self._failure is not None:
                raise self._failure
            return None
        columns = self._ahead
        self._look_ahead()
        return columns

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of the batch that contains an offset."""
        headers = (batch.header for batch in reversed(self._batches))
        return next(header.partition_leader_epoch for header in headers if header.base_offset <= offset)

    def batches_before(self, position: int) -> int:
        """Return how many of its first batches end before an offset."""
        return sum(batch.header.next_offset <= position for batch in self._batches)

    def _look_ahead(self) -> None:
        self._ahead = None
        if self._failure is None:
            try:
                self._ahead = next(self._columns, None)
            except CorruptBatch as corrupt:
                self._failure = corrupt
