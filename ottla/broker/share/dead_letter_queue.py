"""The dead letters of this broker that are not written yet (KIP-1191): to the topics that share groups name for them.

    records are archiving, durably -> `add` -> a batch for the topic -> durable there -> `done` -> they are archived

The state of the records says until then that they are archiving. Whatever is in here is therefore found again by the
next start, and nothing is lost with it; what was written just before a crash is written once more.

The letters of a share partition are written one batch after the other, those of some share partitions at a time; so
what is in memory is the batches of these, and few numbers for all others. There are no more letters of a share
partition than records of it may be in flight.

Where a topic may not be used (it does not exist, is not meant for dead letters, ...) the letters are given up, as in
Kafka: only an administrator can change that. Where its disk fails they are tried again until they are written. Source:
Kafka's `ShareGroupDLQStateManager`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.writes import append_elsewhere
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.share.dead_letter import About, Copies, copies_of, encode_letters
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services
    from ottla.broker.share.deliveries import DeadLetters
    from ottla.broker.share.settings import ShareSettings
    from ottla.broker.share.stored_state import SharePartitionKey
    from ottla.storage.segment.slice import LogSlice

logger = logging.getLogger(__name__)

TOPIC_KEY: Final = "errors.deadletterqueue.group.enable"
SHARE_PARTITIONS_AT_A_TIME: Final = 4
READ_BYTES: Final = 1 << 20
"""So much is read at a time of the records that are copied, unless one batch is larger."""
RETRY_MS: Final = 1_000
MOST_RETRY_MS: Final = 30_000
"""The wait doubles from one failure to the next, between these."""
SAME_REASON_MS: Final = 60_000
"""The same reason is logged for a group once in this time."""
REASONS_REMEMBERED: Final = 1_000
_REFUSALS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
"""What a topic says of records that it will never take."""
_NO_TOPIC: Final = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
    }
)
"""Why a topic can never be created."""


class _Refused(Exception):
    """The letters cannot be written before an administrator has changed something."""


class _Letters:
    """Those of one share partition, oldest first. `next_offset` is the next one to be written."""

    __slots__ = ("failures", "is_one_by_one", "key", "next_offset", "timer", "topic", "waiting")

    def __init__(self, key: SharePartitionKey, topic: str) -> None:
        self.key = key
        self.topic = topic
        self.waiting: deque[tuple[DeadLetters, Callable[[], None]]] = deque()
        self.next_offset = -1
        self.failures = 0
        self.is_one_by_one = False
        """Whether the topic has refused a batch of several."""
        self.timer: Timer | None = None


class DeadLetterQueue:
    """See the module's text. All calls on the broker's thread. `partition_of` gives the log that a share partition
    reads, None where it is gone or offline.
    """

    def __init__(
        self,
        services: Services,
        settings_of: Callable[[str], ShareSettings],
        partition_of: Callable[[SharePartitionKey], Partition | None],
    ) -> None:
        self._services = services
        self._settings_of = settings_of
        self._partition_of = partition_of
        self._counters = services.metrics.share_groups
        self._by_key: dict[SharePartitionKey, _Letters] = {}
        self._next: deque[_Letters] = deque()
        self._running = 0
        self._reasons: dict[str, tuple[str, float]] = {}
        self._is_closed = False

    @property
    def letter_count(self) -> int:
        """How many letters are not written yet."""
        return sum(
            max(letters.last_offset + 1 - max(letters.first_offset, one.next_offset if index == 0 else 0), 0)
            for one in self._by_key.values()
            for index, (letters, _) in enumerate(one.waiting)
        )

    def add(self, key: SharePartitionKey, topic: str, letters: DeadLetters, done: Callable[[], None]) -> None:
        """Write letters about records of a topic; `done` in a later turn, when they are durable or given up. Not called
        after `close`.
        """
        one = self._by_key.get(key)
        if one is None:
            one = self._by_key[key] = _Letters(key, topic)
            self._next.append(one)
        one.waiting.append((letters, done))
        self._begin_some()

    def close(self) -> None:
        """Write nothing more."""
        self._is_closed = True
        for one in self._by_key.values():
            if one.timer is not None:
                one.timer.cancel()

    # --- in turn -----------------------------------------------------------------------------------------------------

    def _begin_some(self) -> None:
        while self._next and self._running < SHARE_PARTITIONS_AT_A_TIME and not self._is_closed:
            one = self._next.popleft()
            self._running += 1
            now_ms = self._services.clock.monotonic_ms()
            one.timer = self._services.timers.surely_at(now_ms, partial(self._step, one))

    def _yield(self, one: _Letters) -> None:
        """Let others have their turn."""
        self._running -= 1
        if one.waiting:
            self._next.append(one)
        else:
            del self._by_key[one.key]
        self._begin_some()

    def _retry(self, one: _Letters, reason: object) -> None:
        """Something has failed that may pass."""
        wait_ms = min(RETRY_MS << min(one.failures, 10), MOST_RETRY_MS)
        one.failures += 1
        text = f"dead letters of {one.topic}-{one.key.partition} cannot be written now: {reason}"
        self._log(logging.WARNING, one.key.group_id, text)

        def again() -> None:
            one.timer = None
            self._next.append(one)
            self._begin_some()

        one.timer = self._services.timers.at(self._services.clock.monotonic_ms() + wait_ms, again)
        self._running -= 1
        self._begin_some()

    # --- steps -------------------------------------------------------------------------------------------------------

    def _step(self, one: _Letters) -> None:
        one.timer = None
        letters, _ = one.waiting[0]
        one.next_offset = max(one.next_offset, letters.first_offset)
        try:
            topic = self._topic(one)
            if topic is not None:
                self._read(one, letters, topic)
        except _Refused as refused:
            self._give_up(one, letters.last_offset + 1, str(refused))

    def _topic(self, one: _Letters) -> Topic | None:
        """The topic of dead letters; None while it is being created. Raises _Refused."""
        config, catalog = self._services.config, self._services.catalog
        name = self._settings_of(one.key.group_id).dead_letter_topic
        if not name:
            raise _Refused("the group names no topic for them any more")
        prefix = config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix) or name.startswith("__"):
            raise _Refused(f"the name of topic {name} does not begin with {prefix or 'a letter'}")
        topic = catalog.topics.get(name)
        if topic is not None:
            if not topic.config.errors_deadletterqueue_group_enable:
                raise _Refused(f"topic {name} does not take them: set its {TOPIC_KEY} to true")
            return topic
        if not config.errors_deadletterqueue_auto_create_topics_enable:
            raise _Refused(f"topic {name} does not exist")
        new = NewTopic(name, configs=((TOPIC_KEY, "true"), ("message.timestamp.type", "CreateTime")))
        catalog.create_topics([new], partial(self._created, one))
        return None

    def _created(self, one: _Letters, results: Sequence[TopicResult]) -> None:
        if self._is_closed:
            return
        (result,) = results
        if not result.failed:
            self._yield(one)
        elif result.error_code in _NO_TOPIC:
            reason = f"topic {result.name} cannot be created: {result.error_message or result.error_code.name}"
            self._give_up(one, one.waiting[0][0].last_offset + 1, reason)
        else:
            self._retry(one, result.error_message or result.error_code.name)

    def _read(self, one: _Letters, letters: DeadLetters, topic: Topic) -> None:
        """Read what is copied, in a worker, and build a batch there."""
        first_offset = one.next_offset
        most_bytes = topic.config.max_message_bytes
        about = About(one.key.group_id, one.topic, one.key.partition)
        now_ms = self._services.clock.wall_ms()
        most_letters = {"most_letters": 1} if one.is_one_by_one else {}

        def batch(copies: Copies, last_offset: int) -> tuple[bytearray, int]:
            return encode_letters(
                about, letters, first_offset, last_offset, copies, now_ms=now_ms, most_bytes=most_bytes, **most_letters
            )

        source = self._partition_of(one.key)
        if source is None or not self._settings_of(one.key.group_id).copies_dead_letters:
            self._append(one, topic.name, *batch({}, letters.last_offset))
            return
        piece, known_offset = self._piece(source, first_offset, letters.last_offset)
        if piece is None:
            self._append(one, topic.name, *batch({}, known_offset))
            return
        most_decompressed_bytes = source.log.config.ottla_batch_max_decompressed_bytes

        def work() -> tuple[bytearray, int]:
            try:
                data = piece.read_blocking()
            except (OSError, KafkaError, ValueError):  # damaged, or removed meanwhile: there is nothing to copy
                data = b""
            copies, last_offset = copies_of(
                data,
                first_offset,
                letters.last_offset,
                most_bytes=most_bytes,
                most_decompressed_bytes=most_decompressed_bytes,
            )
            return batch(copies, last_offset)

        def built(result: tuple[bytearray, int] | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            if result is None:
                logger.error("group %s: a dead letter cannot be copied", one.key.group_id, exc_info=error)
                result = batch({}, letters.last_offset)
            self._append(one, topic.name, *result)

        self._services.workers.run(work, built)

    def _piece(self, source: Partition, first_offset: int, last_offset: int) -> tuple[LogSlice | None, int]:
        """What is to be read; None where there is nothing to copy, up to an offset."""
        if first_offset < source.log_start_offset:
            return None, min(source.log_start_offset - 1, last_offset)
        try:
            return source.read(first_offset, READ_BYTES, at_least_one=True, allow_map=False, most_copied_bytes=0), 0
        except (KafkaError, OSError):
            return None, last_offset

    def _append(self, one: _Letters, name: str, batch: bytearray, next_offset: int) -> None:
        topic = self._services.catalog.topics.get(name)
        partition = None
        if topic is not None and topic.partitions:
            partition = self._services.catalog.partition(name, one.key.partition % len(topic.partitions))
        if partition is None or partition.is_closed:
            self._retry(one, f"topic {name} is offline")
            return

        def appended(error: BaseException | None) -> None:
            if self._is_closed:
                return
            if error is None:
                self._written(one, next_offset)
            elif not isinstance(error, KafkaError) or error.code not in _REFUSALS:
                self._retry(one, error)
            elif next_offset - one.next_offset > 1:
                one.is_one_by_one = True
                self._yield(one)
            else:
                reason = f"topic {name} refuses them: {error.message or error.code.name}"
                self._give_up(one, next_offset, reason)

        append_elsewhere(partition, batch, appended)

    # --- results -----------------------------------------------------------------------------------------------------

    def _written(self, one: _Letters, next_offset: int) -> None:
        self._counters.dead_letters += next_offset - one.next_offset
        one.failures = 0
        self._next_is(one, next_offset)

    def _give_up(self, one: _Letters, next_offset: int, reason: str) -> None:
        count = next_offset - one.next_offset
        self._counters.lost_dead_letters += count
        text = (
            f"{counted(count, 'record')} of {one.topic}-{one.key.partition}, from offset {one.next_offset} on, archived"
            f" without a dead letter: {reason}"
        )
        self._log(logging.ERROR, one.key.group_id, text, reason)
        self._next_is(one, next_offset)

    def _next_is(self, one: _Letters, next_offset: int) -> None:
        one.next_offset = next_offset
        letters, done = one.waiting[0]
        if next_offset > letters.last_offset:
            one.waiting.popleft()
            one.next_offset, one.is_one_by_one = -1, False
            done()
        self._yield(one)

    def _log(self, level: int, group_id: str, text: str, reason: str | None = None) -> None:
        now_ms = self._services.clock.monotonic_ms()
        before, since_ms = self._reasons.get(group_id, ("", 0.0))
        if before == (reason or text) and now_ms - since_ms < SAME_REASON_MS:
            return
        if len(self._reasons) >= REASONS_REMEMBERED:
            self._reasons.clear()
        self._reasons[group_id] = reason or text, now_ms
        logger.log(level, "group %s: %s", group_id, text)
