"""The log of one shard: append the records of a step, and report when they are durable.

The records of all steps of a turn, in their order, are one batch, which is built and appended when the turn ends. A
step is never divided over two batches, unless it takes more than `max.message.bytes` by itself. A reply about a key
waits for the newest records of that key, and for nothing if they are durable. A batch that the log does not accept is
reported to the shard (`on_failure`), once, and all its steps are refused.

The batches of a transaction carry its producer, with sequences that continue those in the log, so that they pass the
log's checks like a client's batches. (Kafka's coordinators write 0 each time, and check nothing. A batch without a
sequence would stop Kafka's cleaner, if Kafka took the directory over.) The marker that ends a transaction is the
exception to all this: it is appended immediately, and the state changes after that. So a full disk that refuses a
marker leaves the shard as it was, and the coordinator of transactions asks again until there is room. It would help no
client to unload thousands of groups for that, and to load them again each time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.broker.coordination.records import (
    RecordTooLarge,
    TransactionalProducer,
    encode_batches,
    encode_records,
    encode_transactional_batch,
)
from ottla.broker.coordination.writes import PRODUCE_VERSION, Later, Settled, Write, release
from ottla.protocol.errors import ErrorCode, KafkaError, UnencodableMessage
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.compression import Compression
from ottla.storage.log.append import AppendEntry
from ottla.storage.producers.producer_entry import MAX_SEQUENCE

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord, Reply
    from ottla.broker.coordination.records import EncodedRecord, RecordCodec
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.broker.runtime.turn import Turn
    from ottla.config.topic import TopicConfig
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_SLACK_BYTES = 128
"""Left free in a batch: a record's size is limited before its header and the rounding of varints are known."""


class TransactionMarker(NamedTuple):
    """A marker to be written: the producer whose transaction it ends, the result, and the coordinator's epoch.
    `bumps_epoch` as for `Partition.end_transaction`.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    bumps_epoch: bool = False


class ShardLog:
    """The records of each key that are written and not durable yet. After `close` nothing is written any more.

    `timeout_ms` limits the time that a reply waits for the disk: COORDINATOR_NOT_AVAILABLE after that. `later` runs a
    step in a later turn.
    """

    def __init__(
        self,
        partition: Partition,
        codec: RecordCodec,
        turn: Turn,
        clock: Clock,
        timeout_ms: int,
        on_failure: Callable[[BaseException], None],
        later: Later,
    ) -> None:
        self._partition = partition
        self._codec = codec
        self._turn = turn
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_failure = on_failure
        self._later = later
        self._writes: dict[Write, None] = {}
        self._newest: dict[str, Write] = {}
        self._builder = BatchBuilder()
        """The records of this turn that are not gathered yet."""
        self._unsealed: Write | None = None
        """The write of these records; None without any."""
        self._gathered_producers: set[int] = set()
        """Producers of transactions with a batch that may be gathered but not yet appended."""
        self._is_closed = False
        self._bounded_by: TopicConfig | None = None
        """The configuration that `_most_bytes` was taken from."""
        self._most_bytes = 0

    @property
    def record_max_bytes(self) -> int:
        """The largest record that `write` is sure to accept."""
        return self._batch_max_bytes - 2 * BATCH_SLACK_BYTES

    @property
    def _batch_max_bytes(self) -> int:
        config = self._partition.log.config
        if config is not self._bounded_by:
            self._bounded_by = config
            self._most_bytes = min(config.max_message_bytes, config.segment_bytes) - BATCH_SLACK_BYTES
        return self._most_bytes

    def check_records(self, records: Sequence[CoordinatorRecord], most_bytes: int, *, in_one_batch: bool) -> None:
        """Refuse records if the log would not accept each of them; with `in_one_batch` also if they do not fit into one
        batch, so that no crash keeps some of them. `most_bytes` is an upper bound of their size.

        Raises KafkaError UNKNOWN_SERVER_ERROR, as Kafka answers for records and batches that are too large.
        """
        max_bytes = self._batch_max_bytes
        if most_bytes + BATCH_SLACK_BYTES <= max_bytes:
            return
        try:
            encoded = encode_records(records, self._codec)
            batches = encode_batches(encoded, now_ms=0, max_bytes=max_bytes, compression=Compression.NONE)
        except (RecordTooLarge, UnencodableMessage) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if in_one_batch and len(batches) > 1:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(records)} records take more than one batch of the max.message.bytes of their topic",
            )

    def write(self, key: str, records: Sequence[CoordinatorRecord], replies: Sequence[Reply]) -> None:
        """Append the records of a step; its replies are sent when they are durable.

        A record that is larger than `max.message.bytes` gets its own batch: it was accepted before an administrator
        reduced that limit (`check_records` is for new state). If a record is larger than a segment or cannot be encoded
        at all, the replies get UNKNOWN_SERVER_ERROR, as in Kafka, and the shard is unloaded, since its state depends on
        the record already.
        """
        try:
            encoded = encode_records(records, self._codec)
        except UnencodableMessage as error:
            self._refuse(key, replies, error)
        else:
            self.write_encoded(key, encoded, replies)

    def write_encoded(self, key: str, records: Sequence[EncodedRecord], replies: Sequence[Reply]) -> None:
        """As `write`."""
        builder, now_ms, max_bytes = self._builder, self._clock.wall_ms(), self._batch_max_bytes
        most_bytes = HEADER_BYTES
        for record in records:
            most_bytes += builder.upper_bound(*record)
        if builder.size_bytes + most_bytes - HEADER_BYTES > max_bytes:
            self.seal()
            builder = self._builder
        if self._is_closed:
            release(replies)(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        if most_bytes > max_bytes:
            self._write_large(key, records, replies, now_ms, max_bytes)
            return
        write = self._unsealed
        if write is None:
            self._unsealed = write = self._begin([key], 1)
            self._turn.note_gathering(self)
        else:
            write.keys.append(key)
            self._newest[key] = write
        for key_bytes, value in records:
            builder.append(now_ms, key_bytes, value)
        if replies:
            write.when_durable(release(replies, self._later))

    def write_packed(
        self, key: str, pack: Callable[[T, int], bytes | None], state: T, replies: Sequence[Reply]
    ) -> bool:
        """As `write`, for one record. `pack(state, place)` returns its bytes at a place of a batch, with the time of
        the batch's first record. False, with nothing done, where that is None, or the case is not so simple.
        """
        builder = self._builder
        record = pack(state, builder.record_count)
        if record is None or self._is_closed or len(builder.body) + len(record) + HEADER_BYTES > self._batch_max_bytes:
            return False
        write = self._unsealed
        if write is None:
            self._unsealed = write = self._begin([key], 1)
            self._turn.note_gathering(self)
            builder.append_encoded(record, self._clock.wall_ms())
        else:
            write.keys.append(key)
            self._newest[key] = write
            builder.append_encoded(record, 0)
        if replies:
            write.when_durable(release(replies))
        return True

    def _write_large(
        self, key: str, records: Sequence[EncodedRecord], replies: Sequence[Reply], now_ms: int, max_bytes: int
    ) -> None:
        """Write a step that may take more than a batch."""
        compression = self._codec.compression
        try:
            try:
                batches = encode_batches(records, now_ms=now_ms, max_bytes=max_bytes, compression=compression)
            except RecordTooLarge:
                max_bytes = self._partition.log.config.segment_bytes - BATCH_SLACK_BYTES
                batches = [
                    batch
                    for record in records
                    for batch in encode_batches([record], now_ms=now_ms, max_bytes=max_bytes, compression=compression)
                ]
        except RecordTooLarge as error:
            self._refuse(key, replies, error)
        else:
            self._gather(self._begin([key], len(batches)), batches, release(replies, self._later))

    def _refuse(self, key: str, replies: Sequence[Reply], error: Exception) -> None:
        """Unload: the state depends on a record that cannot be written."""
        logger.error("%s: a record of %r cannot be written: %s", self._partition.log.name, key, error)
        release(replies)(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
        self._on_failure(error)

    def seal(self) -> None:
        """Gather the records of this turn, after all that was gathered before."""
        write = self._unsealed
        if write is not None:
            self._gather(write, [self._seal_batch()])

    def _seal_batch(self) -> bytearray:
        builder = self._builder
        self._unsealed, self._builder = None, BatchBuilder()
        try:
            return builder.seal(compression=self._codec.compression)
        except Exception as error:  # the state depends on them; every request that waits must be answered
            self._on_failure(error)
            raise

    def flush(self, now_ms: int) -> None:
        """Append the records of the turn (`turn.Gathering`)."""
        try:
            self._flush(now_ms)
        except MemoryError as error:  # the state depends on them; every request that waits must be answered
            self._on_failure(error)
            raise

    def _flush(self, now_ms: int) -> None:
        partition, write = self._partition, self._unsealed
        if write is not None and partition.has_nothing_before():
            # As below, without the gathering: nearly always there is only this batch.
            batch = self._seal_batch()
            appended = partition.append([memoryview(batch)], len(batch), now_ms)
            if appended.refused is None:
                write.stored(appended.last_offsets[0])
            else:
                write.appended(0, appended[0])
            return
        self.seal()
        partition.flush(now_ms)

    def give_up(self) -> None:
        """Unload after a failed `flush` (`turn.Gathering`): the state depends on the records that it has left."""
        if self._unsealed is not None:
            self._on_failure(RuntimeError("the records of a turn could not be appended"))

    def _gather(
        self,
        write: Write,
        batches: Sequence[bytearray],
        settled: Settled | None = None,
        *,
        is_transactional: bool = False,
    ) -> None:
        if settled is not None:
            write.when_durable(settled)
        for index, batch in enumerate(batches):
            self._partition.gather(AppendEntry(memoryview(batch), PRODUCE_VERSION, is_transactional), write, index)

    def _begin(self, keys: list[str], batch_count: int) -> Write:
        write = Write(self, self._partition, keys, batch_count, self.deadline_ms())
        self._writes[write] = None
        for key in keys:
            self._newest[key] = write
        return write

    # --- transactions ------------------------------------------------------------------------------------------------

    def check_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse a producer whose batches the log would not accept.

        Raises KafkaError INVALID_PRODUCER_ID_MAPPING, INVALID_PRODUCER_EPOCH (the log knows a newer epoch).
        """
        if producer_id < 0:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"there is no producer id {producer_id}")
        self._settle_producer(producer_id)
        known = self._partition.log.producers.get(producer_id)
        if producer_epoch < 0 or (known is not None and producer_epoch < known.epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"epoch {producer_epoch} of producer {producer_id} is not its newest"
            )

    def write_transactional(
        self,
        key: str,
        records: Sequence[CoordinatorRecord],
        replies: Sequence[Reply],
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        """As `write`, in the open transaction of a producer, or as its beginning.

        `check_records` (in one batch) and `check_producer` were called before the state changed.
        """
        self.seal()
        settled = release(replies)
        if self._is_closed:
            settled(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        known = self._partition.log.producers.get(producer_id)
        if known is not None and known.epoch == producer_epoch:
            sequence = (known.last_sequence + 1) & MAX_SEQUENCE
        else:
            sequence = 0
        producer = TransactionalProducer(producer_id, producer_epoch, sequence)
        batch = encode_transactional_batch(records, self._codec, producer, now_ms=self._clock.wall_ms())
        self._gathered_producers.add(producer_id)
        self._gather(self._begin([key], 1), [batch], settled, is_transactional=True)

    def _settle_producer(self, producer_id: int) -> None:
        """Let the log take in all that was written of the producer."""
        if producer_id in self._gathered_producers:
            self._partition.settle()
        if not self._partition.gathered:
            self._gathered_producers.clear()

    def write_marker(
        self, keys: Collection[str], end: TransactionMarker, apply: Callable[[], None], done: VisibleCallback
    ) -> None:
        """Append a marker. If the log has accepted it, `apply` it to the state; `keys` are those that it changes.

        `done(None)` once the marker is visible. `done(error)` where it was not written and nothing has changed, or
        where the shard is unloaded because of it.
        """
        partition = self._partition
        self.seal()
        partition.settle()
        if self._is_closed:
            done(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        answer = _Deferred(done)
        offset = partition.end_transaction(
            end.producer_id,
            end.producer_epoch,
            end.is_commit,
            end.coordinator_epoch,
            answer,
            bumps_epoch=end.bumps_epoch,
            now_ms=self._clock.wall_ms(),
        )
        if offset >= 0:
            apply()
            self._begin(list(keys), 0).await_visible(offset + 1)
        answer.release()

    def when_durable(self, key: str | None, settled: Settled) -> None:
        """Call `settled` once all that was written of a key (None: of all keys) so far is durable, immediately if it
        is.

        With NOT_COORDINATOR if that will never be.
        """
        if self._is_closed:
            settled(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        write = next(reversed(self._writes), None) if key is None else self._newest.get(key)
        if write is None:
            settled(None)
        else:
            write.when_durable(settled)

    def close(self, refusal: KafkaError) -> None:
        """Refuse everything that waits, now and later."""
        self._is_closed, self._unsealed = True, None
        writes, self._writes = self._writes, {}
        self._newest.clear()
        for write in writes:
            write.settle(refusal)

    def write_ended(self, write: Write) -> None:
        """The write's records are durable (`WriteOwner`)."""
        self._writes.pop(write, None)
        for key in write.keys:
            if self._newest.get(key) is write:
                del self._newest[key]

    def write_failed(self, error: BaseException) -> None:
        """The log did not accept records on which the state depends (`WriteOwner`)."""
        self._on_failure(error)

    def deadline_ms(self) -> float:
        """The deadline of a reply that begins to wait now (`WriteOwner`)."""
        return self._clock.monotonic_ms() + self._timeout_ms


class _Deferred:
    """A callback that may be called early: it passes the calls on after `release`."""

    __slots__ = ("_done", "_is_released", "_results")

    def __init__(self, done: VisibleCallback) -> None:
        self._done = done
        self._results: list[BaseException | None] = []
        self._is_released = False

    def __call__(self, error: BaseException | None) -> None:
        if self._is_released:
            self._done(error)
        else:
            self._results.append(error)

    def release(self) -> None:
        self._is_released = True
        for error in self._results:
            self._done(error)
