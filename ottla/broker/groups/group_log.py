"""The log of one shard as its groups see it: append what a step asks for, and say when that is durable.

The batches of a step are gathered in the partition, whose flush at the end of the turn appends those of all steps in
one call. Whoever looks at a group waits for the newest records of it; a group whose records are durable waits for
nothing. A record that the log does not take is told to the shard (`on_failure`), once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.broker.groups.log_records import RecordTooLarge, encode_batches
from ottla.broker.groups.writes import Settled, Write, release
from ottla.protocol.errors import ErrorCode, KafkaError, UnencodableMessage
from ottla.protocol.records.compression import Compression
from ottla.storage.log.append import AppendEntry

if TYPE_CHECKING:
    from ottla.broker.groups.effects import GroupRecord, Reply
    from ottla.broker.groups.services import GroupServices
    from ottla.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)

PRODUCE_VERSION = 13
"""Our own batches are judged as those of the newest clients are."""
SMALLEST_RECORD_BYTES = 64
"""A group's record without its names: the key's version, numbers, empty lists."""
BATCH_SLACK_BYTES = 128
"""Left free in a batch: a record's size is bounded before its header and the rounding of varints are known."""


class GroupLog:
    """What was written of each group and is not durable yet. `close` ends it; nothing is written any more then."""

    def __init__(
        self, partition: Partition, services: GroupServices, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._partition = partition
        self._services = services
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

    def check_name(self, group_id: str, more: str = "") -> None:
        """Refuse a group whose smallest record, with `more` text in it, the log would not take.

        Raises KafkaError UNKNOWN_SERVER_ERROR, as Kafka answers for records that are too large.
        """
        room_bytes = self.record_max_bytes - SMALLEST_RECORD_BYTES
        if 3 * (len(group_id) + len(more)) <= room_bytes:
            return
        size_bytes = len(group_id.encode()) + len(more.encode())
        if size_bytes > room_bytes:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the group's id and protocol type have {size_bytes} bytes, its log takes records of {room_bytes}",
            )

    def check_records(self, records: Sequence[GroupRecord], most_bytes: int, *, in_one_batch: bool) -> None:
        """Refuse records of which the log would not take each; with `in_one_batch` also those that one batch does not
        hold, so that no crash keeps some of them. `most_bytes`: they are no larger.

        Raises KafkaError UNKNOWN_SERVER_ERROR, as Kafka answers for records and batches that are too large.
        """
        if most_bytes + BATCH_SLACK_BYTES <= self._batch_max_bytes:
            return
        try:
            batches = encode_batches(records, now_ms=0, max_bytes=self._batch_max_bytes, compression=Compression.NONE)
        except (RecordTooLarge, UnencodableMessage) as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        if in_one_batch and len(batches) > 1:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{len(records)} records take more than one batch of the max.message.bytes of their topic",
            )

    def write(self, group_id: str, records: Sequence[GroupRecord], replies: Sequence[Reply]) -> None:
        """Append the records of a step; its replies go when they are durable.

        With UNKNOWN_SERVER_ERROR, as in Kafka, where a record is larger than any batch or cannot be written at all; the
        groups are unloaded then, for their state rests on it already.
        """
        services = self._services
        settled = release(replies)
        if self._is_closed:
            settled(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        try:
            batches = encode_batches(
                records,
                now_ms=services.clock.wall_ms(),
                max_bytes=self._batch_max_bytes,
                compression=services.compression,
            )
        except (RecordTooLarge, UnencodableMessage) as error:
            logger.error("group %r: a record cannot be written: %s", group_id, error)
            settled(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            self._on_failure(error)
            return
        deadline_ms = services.clock.monotonic_ms() + services.commit_timeout_ms
        write = Write(self, self._partition, group_id, len(batches), deadline_ms)
        write.when_durable(settled)
        self._writes[write] = None
        self._newest[group_id] = write
        for index, batch in enumerate(batches):
            self._partition.gather(AppendEntry(memoryview(batch), PRODUCE_VERSION), write, index)

    def when_durable(self, group_id: str | None, settled: Settled) -> None:
        """Tell `settled` once all that was written of a group (None: of all groups) so far is durable, at once if so.

        With NOT_COORDINATOR when that will never be.
        """
        if self._is_closed:
            settled(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        write = next(reversed(self._writes), None) if group_id is None else self._newest.get(group_id)
        if write is None:
            settled(None)
        else:
            write.when_durable(settled)

    def close(self, refusal: KafkaError) -> None:
        """Refuse everybody who waits, now and later."""
        self._is_closed = True
        writes, self._writes = self._writes, {}
        self._newest.clear()
        for write in writes:
            write.tell(refusal)

    def write_ended(self, write: Write) -> None:
        """Its records are durable (`WriteOwner`)."""
        self._writes.pop(write, None)
        if self._newest.get(write.group_id) is write:
            del self._newest[write.group_id]

    def write_failed(self, error: BaseException) -> None:
        """The log did not take what the groups rest on (`WriteOwner`)."""
        self._on_failure(error)
