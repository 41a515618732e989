"""The log of one shard: append what a step asks for, and report when that is durable.

The batches of a step are gathered in the partition, whose flush at the end of the turn appends those of all steps in
one call. A reply about a key waits for the newest records of that key; a key whose records are durable waits for
nothing. A record that the log does not take is reported to the shard (`on_failure`), once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordination.records import RecordTooLarge, encode_batches
from ottla.broker.coordination.writes import PRODUCE_VERSION, Settled, Write, release
from ottla.protocol.errors import ErrorCode, KafkaError, UnencodableMessage
from ottla.protocol.records.compression import Compression
from ottla.storage.log.append import AppendEntry

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord, Reply
    from ottla.broker.coordination.records import RecordCodec
    from ottla.broker.partitions.partition import Partition
    from ottla.storage.files.clock import Clock

logger = logging.getLogger(__name__)

BATCH_SLACK_BYTES = 128
"""Left free in a batch: a record's size is bounded before its header and the rounding of varints are known."""


class ShardLog:
    """What was written of each key and is not durable yet. `close` ends it; nothing is written any more then.

    `timeout_ms` bounds the time that a reply waits for the disk: COORDINATOR_NOT_AVAILABLE after that.
    """

    def __init__(
        self,
        partition: Partition,
        codec: RecordCodec,
        clock: Clock,
        timeout_ms: int,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._partition = partition
        self._codec = codec
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_failure = on_failure
        self._writes: dict[Write, None] = {}
        self._newest: dict[str, Write] = {}
        self._is_closed = False

    @property
    def record_max_bytes(self) -> int:
        """The largest record that `write` surely takes."""
        return self._batch_max_bytes - 2 * BATCH_SLACK_BYTES

    @property
    def _batch_max_bytes(self) -> int:
        config = self._partition.log.config
        return min(config.max_message_bytes, config.segment_bytes) - BATCH_SLACK_BYTES

    def check_records(self, records: Sequence[CoordinatorRecord], most_bytes: int, *, in_one_batch: bool) -> None:
        """Refuse records of which the log would not take each; with `in_one_batch` also those that one batch does not
        hold, so that no crash keeps some of them. `most_bytes`: they are no larger.

        Raises KafkaError UNKNOWN_SERVER_ERROR, as Kafka answers for records and batches that are too large.
        """
        max_bytes = self._batch_max_bytes
        if most_bytes + BATCH_SLACK_BYTES <= max_bytes:
            return
        try:
            batches = encode_batches(records, self._codec, now_ms=0, max_bytes=max_bytes, compression=Compression.NONE)
        except (RecordTooLarge, UnencodableMessage) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if in_one_batch and len(batches) > 1:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(records)} records take more than one batch of the max.message.bytes of their topic",
            )

    def write(self, key: str, records: Sequence[CoordinatorRecord], replies: Sequence[Reply]) -> None:
        """Append the records of a step; its replies go when they are durable.

        With UNKNOWN_SERVER_ERROR, as in Kafka, where a record is larger than any batch or cannot be written at all; the
        shard is unloaded then, for its state rests on it already.
        """
        settled = release(replies)
        if self._is_closed:
            settled(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        clock = self._clock
        try:
            batches = encode_batches(records, self._codec, now_ms=clock.wall_ms(), max_bytes=self._batch_max_bytes)
        except (RecordTooLarge, UnencodableMessage) as error:
            logger.error("%s: a record of %r cannot be written: %s", self._partition.log.name, key, error)
            settled(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            self._on_failure(error)
            return
        write = Write(self, self._partition, key, len(batches), clock.monotonic_ms() + self._timeout_ms)
        write.when_durable(settled)
        self._writes[write] = None
        self._newest[key] = write
        for index, batch in enumerate(batches):
            self._partition.gather(AppendEntry(memoryview(batch), PRODUCE_VERSION), write, index)

    def when_durable(self, key: str | None, settled: Settled) -> None:
        """Call `settled` once all that was written of a key (None: of all keys) so far is durable, at once if so.

        With NOT_COORDINATOR when that will never be.
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
        self._is_closed = True
        writes, self._writes = self._writes, {}
        self._newest.clear()
        for write in writes:
            write.settle(refusal)

    def write_ended(self, write: Write) -> None:
        """Its records are durable (`WriteOwner`)."""
        self._writes.pop(write, None)
        if self._newest.get(write.key) is write:
            del self._newest[write.key]

    def write_failed(self, error: BaseException) -> None:
        """The log did not take what the state rests on (`WriteOwner`)."""
        self._on_failure(error)
