"""An assigned partition: where its consumer stands, and the batches that were fetched but not yet read.

The *position* is the offset of the next record for the program, the *fetch offset* that of the next batch to ask for;
between the two lie the batches in `fetched` and the records in `decoded`. A seek throws both away and counts
`generation` up, so that an answer to an older question is recognised and dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ottla.client.consumer_options import ConsumerOptions
from ottla.client.errors import CorruptRecords, KafkaError, UndecodableRecord
from ottla.client.metrics import ConsumerMetrics
from ottla.client.structs import ConsumerRecord, TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import MAGIC, BatchHeader, CorruptBatch, decode_batch, decode_batch_as
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.protocol.records.legacy import decode_message

NO_EPOCH = -1


class FetchedBatch:
    """One batch as it came, and which producers' transactions are known to be aborted from here on."""

    __slots__ = ("aborted", "header", "view")

    def __init__(self, view: memoryview, header: BatchHeader, aborted: list[int]) -> None:
        self.view = view
        self.header = header
        self.aborted = aborted


def is_wanted(batch: FetchedBatch, aborted: set[int], check_crcs: bool, is_read_committed: bool) -> bool:
    """Return whether the program reads the records of a batch: they are neither markers nor aborted.

    `aborted` has the producers in whose aborted transactions the batch may be; it is brought up to date. Raises
    CorruptBatch for a marker that cannot be read.
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


class AssignedPartition:
    """See the module."""

    __slots__ = (
        "aborted",
        "awaits_committed",
        "buffered_bytes",
        "chunk",
        "cursor",
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
        """Whether the group's committed offset, which is still to be looked up, is where reading begins."""
        self.position = -1
        """-1 until it is known."""
        self.fetch_offset = -1
        self.empty_before = -1
        """The leader has no record from `fetch_offset` up to this offset, which may be the end of its log: compaction
        took the last ones away. -1: nobody knows."""
        self.reset_to = reset_to
        """The timestamp, or EARLIEST or LATEST, that the position is looked up by; None once it is known."""
        self.generation = 0
        self.last_epoch = NO_EPOCH
        """The leader epoch of the last fetched batch, by which the leader notices that our history is not its own."""
        self.read_epoch = NO_EPOCH
        """The leader epoch of the batch before those in `decoded`, and `decoded_epoch` that of theirs."""
        self.decoded_epoch = NO_EPOCH
        self.is_paused = False
        self.is_fetching = False
        self.is_resolving = False
        self.fetched: deque[FetchedBatch] = deque()
        self.buffered_bytes = 0
        self.chunk: object = None
        """What a reader of columns is decoding of `fetched` (`arrow_reading.py`); None again after a move."""
        self.decoded: list[ConsumerRecord[Any, Any]] = []
        self.cursor = 0
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
        if self.cursor < len(self.decoded):
            return self.decoded[self.cursor].offset
        return self.position

    @property
    def consumed_epoch(self) -> int:
        """The leader epoch of the last record that the program had; -1 when it had none since the last move."""
        return self.read_epoch if self.decoded and not self.cursor else self.decoded_epoch

    @property
    def has_data(self) -> bool:
        """Whether something was fetched that the program has not had."""
        return self.cursor < len(self.decoded) or bool(self.fetched)

    @property
    def is_nowhere(self) -> bool:
        """Whether there is no position, and nothing to look one up by."""
        return self.position < 0 and self.reset_to is None and not self.awaits_committed

    def miss_position(self) -> None:
        """Leave it to the program where to begin, as `auto_offset_reset` none asks for."""
        self.failure = KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{self.partition}: no position was sought and auto_offset_reset is none",
        )

    def has_reached(self, offset: int) -> bool:
        """Whether the program has had every record below `offset`."""
        return 0 <= offset <= self.next_offset or (not self.has_data and offset <= self.empty_before)

    def move(self, offset: int, *, reset_to: int | None = None, epoch: int = NO_EPOCH) -> None:
        """Go to an offset, or (-1) to one that is still to be looked up; `epoch` is that of the record before it."""
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
        self.decoded = []
        self.cursor = 0
        self.aborted = set()
        self.failure = None
        self.not_before = 0.0

    def add(self, batch: FetchedBatch) -> None:
        """Keep a batch that was fetched."""
        self.fetched.append(batch)
        self.buffered_bytes += len(batch.view)
        self.fetch_offset = batch.header.next_offset
        self.empty_before = -1
        self.last_epoch = batch.header.partition_leader_epoch

    def take(self, limit: int) -> list[ConsumerRecord[Any, Any]]:
        """Return up to `limit` records that were decoded already, and step over them."""
        if self.cursor == 0 and limit >= len(self.decoded):
            taken, self.decoded = self.decoded, []
            return taken
        taken = self.decoded[self.cursor : self.cursor + limit]
        self.cursor += len(taken)
        return taken

    def decode_next(self, options: ConsumerOptions, metrics: ConsumerMetrics, now: float) -> None:
        """Decode fetched batches until one gives records; `decoded` is empty afterwards if none did.

        Raises CorruptRecords, with the batch still the next one, so that the position stays before it. A record that a
        deserializer refuses ends `decoded`, and is the next one: UndecodableRecord is raised once it is the first.
        """
        is_read_committed = options.isolation_level == "read_committed"
        self.read_epoch = self.decoded_epoch
        self.chunk = None
        self.decoded = []
        self.cursor = 0
        while self.fetched and not self.decoded:
            batch = self.fetched[0]
            try:
                self.decoded = self._decode(batch, options.check_crcs, is_read_committed)
            except CorruptBatch as corrupt:
                self.drop_fetched()
                raise CorruptRecords(
                    self.partition, self.position, str(corrupt), next_offset=batch.header.next_offset
                ) from None
            if options.key_deserializer is not None or options.value_deserializer is not None:
                records, self.decoded = self.decoded, []
                self.decoded = self._deserialize(records, options)
                if len(self.decoded) < len(records):  # the batch stays: reading goes on at the record that was refused
                    self.position = records[len(self.decoded)].offset
                    break
            self.drop_first()
            metrics.consumed_records.add(len(self.decoded), now)
            metrics.consumed_bytes.add(len(batch.view), now)

    def _deserialize(
        self, records: list[ConsumerRecord[Any, Any]], options: ConsumerOptions
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the records with what the deserializers make of them, up to the first that one refuses."""
        make_key, make_value = options.key_deserializer, options.value_deserializer
        made: list[ConsumerRecord[Any, Any]] = []
        for topic, partition, offset, timestamp_ms, raw_key, raw_value, headers in records:
            key, value = raw_key, raw_value
            try:
                if key is not None and make_key is not None:
                    key = make_key(key)
                if value is not None and make_value is not None:
                    value = make_value(value)
            except Exception as refused:  # whatever a program's own code raises
                if made:
                    break
                raise UndecodableRecord(self.partition, offset, raw_key, raw_value, refused) from refused
            made.append(ConsumerRecord(topic, partition, offset, timestamp_ms, key, value, headers))
        return made

    def drop_first(self) -> FetchedBatch:
        """Step over the first fetched batch and return it."""
        batch = self.fetched.popleft()
        self.buffered_bytes -= len(batch.view)
        self.decoded_epoch = batch.header.partition_leader_epoch
        self.position = batch.header.next_offset
        return batch

    def drop_fetched(self) -> None:
        """Forget what was fetched: it is fetched again from the position on."""
        self.fetched.clear()
        self.chunk = None
        self.buffered_bytes = 0
        self.fetch_offset = self.position
        self.last_epoch = NO_EPOCH
        self.is_fetching = False
        self.generation += 1

    def _decode(self, batch: FetchedBatch, check_crcs: bool, is_read_committed: bool) -> list[ConsumerRecord[Any, Any]]:
        if not is_wanted(batch, self.aborted, check_crcs, is_read_committed):
            return []
        header = batch.header
        if header.magic < MAGIC:  # written before Kafka 0.11, and still in the log
            topic, partition = self.partition
            old = decode_message(batch.view, check_crc=check_crcs)
            return [
                ConsumerRecord(topic, partition, offset, timestamp, key, value)
                for offset, timestamp, key, value, _ in old
                if offset >= self.position
            ]
        records = decode_batch_as(ConsumerRecord, self.partition, batch.view, check_crc=check_crcs)
        if header.base_offset < self.position:  # a fetch from the middle gets the whole batch
            position = self.position
            records = [record for record in records if record.offset >= position]
        return records
