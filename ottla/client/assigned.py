"""An assigned partition: the position of its consumer, and the batches that were fetched but not yet read.

The *position* is the offset of the next record for the program, the *fetch offset* that of the next batch to fetch;
between the two are the batches in `fetched` and the records in `decoded`. A seek drops both and increments
`generation`, so that an answer to an older request is recognized and dropped.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ottla.client.consumer_options import ConsumerOptions
from ottla.client.decoded_records import OFFSET, DecodedRecords, Row
from ottla.client.errors import CorruptRecords, KafkaError, UndecodableRecord
from ottla.client.metrics import ConsumerMetrics
from ottla.client.structs import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import MAGIC, BatchHeader, CorruptBatch, decode_batch, decode_rows
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.protocol.records.legacy import decode_message

NO_EPOCH = -1
DECODED_BYTES = 256 * 1024
DECODED_RECORDS = 4096
"""The limits of what is decoded in one step; a batch may be larger. A step blocks the loop for 1 to 2 ms; a step for
each batch would cost the blocking consumer a fifth of its time, for the changes to the loop's thread."""


class FetchedBatch:
    """One batch as received, and the producers whose transactions are aborted from this batch on."""

    __slots__ = ("aborted", "header", "view")

    def __init__(self, view: memoryview, header: BatchHeader, aborted: list[int]) -> None:
        self.view = view
        self.header = header
        self.aborted = aborted


def is_wanted(batch: FetchedBatch, aborted: set[int], check_crcs: bool, is_read_committed: bool) -> bool:
    """Return whether the program reads the records of a batch: they are neither markers nor aborted.

    `aborted` has the producers to whose aborted transactions the batch may belong, and is updated. Raises CorruptBatch
    for a marker that cannot be read.
    """
    header = batch.header
    if is_read_committed:
        aborted.update(batch.aborted)
    if header.is_control:
        if is_read_committed and header.record_count:
            controls = decode_batch(batch.view, check_crc=check_crcs)
            if decode_control_key(controls[0].key) is ControlType.ABORT:
                aborted.discard(header.producer_id)
        return False
    return not (is_read_committed and header.is_transactional and header.producer_id in aborted)


class _Decoded(NamedTuple):
    """Records of a batch, and the offset of the next one if a deserializer refused it."""

    rows: list[Row]
    refused_at: int = -1


class AssignedPartition:
    """See the module."""

    __slots__ = (
        "aborted",
        "awaits_committed",
        "buffered_bytes",
        "chunk",
        "decoded",
        "decoded_epoch",
        "empty_before",
        "failure",
        "failures",
        "fetch_offset",
        "fetched",
        "generation",
        "high_watermark",
        "is_fetching",
        "is_paused",
        "is_resolving",
        "last_epoch",
        "last_stable_offset",
        "leaderless_since",
        "log_start_offset",
        "not_before",
        "partition",
        "position",
        "read_epoch",
        "reset_to",
    )

    def __init__(self, partition: TopicPartition, reset_to: int | None, *, awaits_committed: bool = False) -> None:
        self.partition = partition
        self.awaits_committed = awaits_committed
        """Whether reading begins at the group's committed offset, which is not known yet."""
        self.position = -1
        """-1 until it is known."""
        self.fetch_offset = -1
        self.empty_before = -1
        """The leader has no record from `fetch_offset` up to this offset, which may be the end of its log: compaction
        has removed the last ones. -1: unknown."""
        self.reset_to = reset_to
        """The timestamp, or EARLIEST or LATEST, for the look-up of the position; None when that is known."""
        self.generation = 0
        self.last_epoch = NO_EPOCH
        """The leader epoch of the last fetched batch, by which the leader detects that its log has diverged."""
        self.read_epoch = NO_EPOCH
        """The leader epoch of the batch before those in `decoded`; `decoded_epoch` is theirs."""
        self.decoded_epoch = NO_EPOCH
        self.is_paused = False
        self.is_fetching = False
        self.is_resolving = False
        self.fetched: deque[FetchedBatch] = deque()
        self.buffered_bytes = 0
        self.chunk: object = None
        """The part of `fetched` that a reader of columns is decoding (`arrow_reading.py`); a move resets it to None."""
        self.decoded = DecodedRecords()
        self.aborted: set[int] = set()
        self.failure: KafkaError | None = None
        self.failures = 0
        self.not_before = 0.0
        self.leaderless_since: float | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1

    @property
    def next_offset(self) -> int:
        """The offset of the next record that the program gets, -1 while that is being looked up."""
        decoded = self.decoded.next_offset
        return self.position if decoded < 0 else decoded

    @property
    def consumed_epoch(self) -> int:
        """The leader epoch of the last record that the program got; -1 when it got none since the last move."""
        return self.read_epoch if self.decoded and not self.decoded.is_begun else self.decoded_epoch

    @property
    def has_data(self) -> bool:
        """Whether there is fetched data that the program has not got yet."""
        return bool(self.decoded or self.fetched)

    @property
    def is_nowhere(self) -> bool:
        """Whether there is no position, and no rule for finding one."""
        return self.position < 0 and self.reset_to is None and not self.awaits_committed

    def miss_position(self) -> None:
        """Fail because the program has to choose the position, since `auto_offset_reset` is none."""
        self.failure = KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.partition}: no position was sought and auto_offset_reset is none",
        )

    def has_reached(self, offset: int) -> bool:
        """Whether the program got every record below `offset`."""
        return 0 <= offset <= self.next_offset or (not self.has_data and offset <= self.empty_before)

    def move(self, offset: int, *, reset_to: int | None = None, epoch: int = NO_EPOCH) -> None:
        """Move to an offset, or (-1) to one that has to be looked up; `epoch` is that of the record before it."""
        self.generation += 1
        self.position = self.fetch_offset = offset
        self.empty_before = -1
        self.reset_to = reset_to
        self.awaits_committed = False
        self.last_epoch = self.read_epoch = self.decoded_epoch = epoch
        self.is_resolving = False
        self.is_fetching = False
        self.fetched.clear()
        self.buffered_bytes = 0
        self.chunk = None
        self.decoded.stop()
        self.decoded = DecodedRecords()
        self.aborted = set()
        self.failure = None
        self.not_before = 0.0

    def add(self, batch: FetchedBatch) -> None:
        """Add a fetched batch."""
        self.fetched.append(batch)
        self.buffered_bytes += len(batch.view)
        self.fetch_offset = batch.header.next_offset
        self.empty_before = -1
        self.last_epoch = batch.header.partition_leader_epoch

    def interrupt(self) -> None:
        """End the iterator over the decoded records; those that are left get another one."""
        if self.decoded:  # otherwise the iterator has ended already
            self.decoded.stop()
            self.decoded = self.decoded.rest()

    def decode_next(self, options: ConsumerOptions, metrics: ConsumerMetrics, now: float) -> None:
        """Decode some of the fetched batches, all of one leader epoch. `decoded` is empty if they have no records.

        Raises CorruptRecords before a damaged batch; the position stays before that batch. A record that a deserializer
        refuses ends `decoded`, and UndecodableRecord is raised when it is the next one.
        """
        self.read_epoch = self.decoded_epoch
        self.chunk = None
        rows: list[Row] = []
        left_bytes = DECODED_BYTES
        dropped_bytes = 0
        while self.fetched and left_bytes > 0 and len(rows) < DECODED_RECORDS:
            batch = self.fetched[0]
            if rows and batch.header.partition_leader_epoch != self.decoded_epoch:
                break
            left_bytes -= len(batch.view)
            try:
                found = self._decode(batch, options)
            except (CorruptRecords, UndecodableRecord) as refused:
                if rows:
                    break  # raise it after the records before it were taken
                self.decoded = DecodedRecords()
                metrics.decoded.add(now, 0, dropped_bytes)
                if isinstance(refused, CorruptRecords):
                    self.drop_fetched()
                raise
            rows += found.rows
            if found.refused_at >= 0:  # keep the batch: reading continues at the refused record
                self.position = found.refused_at
                break
            self.drop_first()
            dropped_bytes += len(batch.view)
        self.decoded = DecodedRecords(rows)
        metrics.decoded.add(now, len(rows), dropped_bytes)

    def _decode(self, batch: FetchedBatch, options: ConsumerOptions) -> _Decoded:
        """Return the records of a batch from the position on."""
        try:
            rows = self._rows_of(batch, options.check_crcs, options.isolation_level == "read_committed")
        except CorruptBatch as corrupt:
            raise CorruptRecords(
                self.partition, self.position, str(corrupt), next_offset=batch.header.next_offset
            ) from None
        if options.key_deserializer is None and options.value_deserializer is None:
            return _Decoded(rows)
        return self._deserialize(rows, options)

    def _deserialize(self, rows: list[Row], options: ConsumerOptions) -> _Decoded:
        """Return the records with deserialized keys and values, up to the first one that is refused."""
        make_key, make_value = options.key_deserializer, options.value_deserializer
        made: list[Row] = []
        for topic, partition, offset, timestamp_ms, raw_key, raw_value, headers in rows:
            key, value = raw_key, raw_value
            try:
                if key is not None and make_key is not None:
                    key = make_key(key)
                if value is not None and make_value is not None:
                    value = make_value(value)
            except Exception as refused:  # whatever a program's own code raises
                if made:
                    return _Decoded(made, offset)
                raise UndecodableRecord(self.partition, offset, raw_key, raw_value, refused) from refused
            made.append((topic, partition, offset, timestamp_ms, key, value, headers))
        return _Decoded(made)

    def drop_first(self) -> FetchedBatch:
        """Remove the first fetched batch, advance the position past it, and return it."""
        batch = self.fetched.popleft()
        self.buffered_bytes -= len(batch.view)
        self.decoded_epoch = batch.header.partition_leader_epoch
        self.position = batch.header.next_offset
        return batch

    def drop_fetched(self) -> None:
        """Drop the fetched batches: they are fetched again from the position on."""
        self.fetched.clear()
        self.chunk = None
        self.buffered_bytes = 0
        self.fetch_offset = self.position
        self.last_epoch = NO_EPOCH
        self.is_fetching = False
        self.generation += 1

    def _rows_of(self, batch: FetchedBatch, check_crcs: bool, is_read_committed: bool) -> list[Row]:
        if not is_wanted(batch, self.aborted, check_crcs, is_read_committed):
            return []
        header = batch.header
        rows: list[Row]
        if header.magic < MAGIC:  # written before Kafka 0.11, and still in the log
            old = decode_message(batch.view, check_crc=check_crcs)
            rows = [(*self.partition, *record) for record in old]
        else:
            rows = decode_rows(batch.view, self.partition, check_crc=check_crcs, header=header)
        position = self.position
        if rows and rows[0][OFFSET] < position:  # a fetch from the middle gets the whole batch
            rows = [row for row in rows if row[OFFSET] >= position]
        return rows
