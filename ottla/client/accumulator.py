"""Records that wait to be sent: batches per partition, and the deliveries that tell what became of them.

A `Batch` has one future for all its records; a `Delivery` is a record's place in it and costs no future of its own.
A `PartitionQueue` keeps a partition's batches in their order and its producer identity and sequences (KIP-98). It only
holds state: `Sender` decides when something moves.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Generator
from typing import Any, NamedTuple
from uuid import UUID

from ottla.client.errors import KafkaError
from ottla.client.structs import RecordMetadata
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.types import ZERO_UUID


class ProducerIdentity(NamedTuple):
    """What an idempotent producer is known by; sequences count anew for each."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
NO_SEQUENCE = -1
_serials = itertools.count()


class Batch:
    """The records of one partition that travel together, and what became of them."""

    __slots__ = (
        "attempts",
        "base_offset",
        "builder",
        "deadline",
        "deliveries",
        "error",
        "expiry",
        "is_closed",
        "is_finished",
        "linger_until",
        "log_append_time_ms",
        "maybe_appended",
        "observed",
        "opened_at",
        "outcome",
        "parts",
        "queue",
        "record_count",
        "reserved_bytes",
        "sealed",
        "sequence",
        "serial",
    )

    def __init__(self, queue: PartitionQueue, now: float, linger_s: float, delivery_timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        self.queue = queue
        self.builder = BatchBuilder()
        self.outcome: asyncio.Future[None] = loop.create_future()
        self.opened_at = now
        self.linger_until = now + linger_s
        self.deadline = now + delivery_timeout_s
        self.expiry: asyncio.TimerHandle | None = None
        self.attempts = 0
        self.record_count = 0
        self.reserved_bytes = 0
        self.serial: tuple[int, ...] = (next(_serials),)
        """The order in which batches were opened; the parts of a split one come in its place."""
        self.sequence = NO_SEQUENCE
        self.sealed: bytearray | None = None
        self.is_closed = False
        """No more records; set when it is full and when it is first sent."""
        self.is_finished = False
        self.observed: set[int] = set()
        """The places of records whose failure the program has heard from their deliveries."""
        self.maybe_appended = False
        """An attempt ended without a clear answer: the broker may have it."""
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.parts: list[Batch] = []
        """What the records travel in instead, after the batch was found too large."""
        self.deliveries: list[Delivery] | None = None
        """Every record's delivery, kept only where an interceptor wants to hear of each."""

    @property
    def is_observed(self) -> bool:
        """Whether the program has heard of each of its records that it failed."""
        return len(self.observed) == self.record_count

    def finish(self, base_offset: int, log_append_time_ms: int) -> None:
        """Tell the deliveries that the broker has the records."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self._end()

    def fail(self, error: KafkaError) -> None:
        """Tell the deliveries that the records are given up."""
        self.error = error
        self._end()

    def replace(self, parts: list[Batch]) -> None:
        """Tell the deliveries that their records travel in smaller batches from now on."""
        self.parts = parts
        self._end()

    def _end(self) -> None:
        self.is_finished = True
        self.builder.body = bytearray()  # deliveries keep the batch; the records shall not stay with it
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None
        if not self.outcome.done():
            self.outcome.set_result(None)


class Delivery:
    """What becomes of one sent record: await it for its `RecordMetadata`, or for the KafkaError that ended it.

    It need not be awaited: `flush` and `close` raise the error of records whose delivery nobody awaited.
    """

    __slots__ = ("_batch", "_place", "_timestamp_ms")

    def __init__(self, batch: Batch, place: int, timestamp_ms: int) -> None:
        self._batch = batch
        self._place = place
        self._timestamp_ms = timestamp_ms

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        while not self.done():
            # Shielded: to give up waiting for one record must not end the batch of others.
            yield from asyncio.shield(self._batch.outcome).__await__()
        return self.result()

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        if self._batch.parts:
            self._move()
        return self._batch.is_finished

    def _move(self) -> None:
        """Follow the record into the part of a split batch that has it now."""
        while parts := self._batch.parts:
            for part in parts:
                if self._place < part.record_count:
                    self._batch = part
                    break
                self._place -= part.record_count

    def result(self) -> RecordMetadata:
        """Return where the record went, or raise why it did not; asyncio.InvalidStateError while that is open."""
        if not self.done():
            raise asyncio.InvalidStateError("the record is still on its way")
        batch = self._batch
        if batch.error is not None:
            batch.observed.add(self._place)
            raise batch.error
        return self.place

    @property
    def place(self) -> RecordMetadata:
        """Where the record is as far as it is known; its offset is -1 before it is delivered."""
        if self._batch.parts:
            self._move()
        batch = self._batch
        return RecordMetadata(
            batch.queue.topic,
            batch.queue.partition,
            batch.base_offset + self._place if batch.base_offset >= 0 else -1,
            self._timestamp_ms if batch.log_append_time_ms < 0 else batch.log_append_time_ms,
        )


class PartitionQueue:
    """A partition's batches: `waiting` in order, the last one perhaps open; `in_flight` in order; `failed`, to retry.

    While `failed` holds something nothing new is sent: when all that was in flight has come back, `settle` puts the
    failed ones in front again, in their order and with sequences that the broker will accept.
    """

    __slots__ = (
        "batch_bytes",
        "failed",
        "failures",
        "identity",
        "in_flight",
        "is_known_to_broker",
        "leader_id",
        "next_sequence",
        "not_before",
        "partition",
        "rewind_to",
        "topic",
        "topic_id",
        "unknown_gap",
        "used_at",
        "waiting",
        "wants_new_identity",
    )

    def __init__(self, topic: str, partition: int, batch_bytes: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batch_bytes = batch_bytes
        """How large its batches grow; less than `batch_size` once one was found too large for the topic."""
        self.used_at = 0.0
        """When its last batch was opened."""
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[Batch] = deque()
        self.failed: list[Batch] = []
        self.failures = 0
        self.not_before = 0.0
        self.leader_id = -1
        self.topic_id = ZERO_UUID
        """Where the last batch was sent to, as `leader_id`: another id is another topic, made under the same name."""
        self.identity = NO_IDENTITY
        self.next_sequence = 0
        self.is_known_to_broker = False
        """Whether the broker has a batch of this identity. Before that it lets a producer begin at any sequence, so
        that a second batch could overtake a first one that was refused: only one may be in flight."""
        self.rewind_to: int | None = None
        """The sequence of a batch that was refused for good: those behind it move up at the next `settle`."""
        self.unknown_gap: int | None = None
        """The sequence of a batch that was given up while the broker may have it: what follows may be refused."""
        self.wants_new_identity = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return not (self.waiting or self.in_flight or self.failed)

    def number(self, batch: Batch, identity: ProducerIdentity) -> None:
        """Give a batch its sequence, when it is first sent and after `settle` took it back."""
        if self.identity == NO_IDENTITY:
            self.identity = identity
            self.next_sequence = 0
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            batch.sealed = None
            self.next_sequence = (self.next_sequence + batch.record_count) & 0x7FFFFFFF

    def note_given_up(self, batch: Batch) -> None:
        """Remember what a sequenced batch that failed for good leaves behind."""
        if batch.sequence == NO_SEQUENCE:
            return
        if batch.maybe_appended:
            self.unknown_gap = batch.sequence
        elif self.rewind_to is None or _comes_before(batch.sequence, self.rewind_to):
            self.rewind_to = batch.sequence

    def note_appended(self, batch: Batch) -> None:
        """Remember what a success says: the broker accepts what follows the batch."""
        self.failures = 0
        self.is_known_to_broker = True
        if self.unknown_gap is not None and _comes_before(self.unknown_gap, batch.sequence):
            self.unknown_gap = None

    def go_to(self, leader_id: int, topic_id: UUID) -> None:
        """Note where the next batch goes. A topic that was made anew knows no producer."""
        self.leader_id = leader_id
        if self.topic_id != topic_id:
            self.topic_id = topic_id
            self.is_known_to_broker = False

    def may_overtake(self, batch: Batch) -> bool:
        """Whether an idempotent producer may send `batch` while others of the queue are in flight.

        A new one not while any of those is on its way again. Its answer may have been lost when the broker had it, and
        those of later ones not: together with them, more would be under way than the broker remembers, which then
        refuses the oldest as out of order.
        """
        return self.is_known_to_broker and (batch.attempts > 0 or all(sent.attempts < 2 for sent in self.in_flight))

    @property
    def is_unsettled(self) -> bool:
        """Whether nothing may be sent before all that is in flight has come back."""
        return bool(self.failed) or self.rewind_to is not None or self.wants_new_identity

    def settle(self) -> None:
        """Once nothing is in flight: put what failed in front again, numbered as the broker expects it."""
        if self.in_flight:
            return
        retried, self.failed = self.failed, []
        sequenced = [*retried, *(batch for batch in self.waiting if batch.sequence != NO_SEQUENCE)]
        if self.wants_new_identity:
            self.wants_new_identity = False
            self.unknown_gap = self.rewind_to = None
            self.identity = NO_IDENTITY
            self.is_known_to_broker = False
            for batch in sequenced:
                batch.sequence = NO_SEQUENCE
                batch.maybe_appended = False
        elif self.rewind_to is not None:
            kept = [batch for batch in sequenced if _comes_before(batch.sequence, self.rewind_to)]
            for batch in sequenced:
                if batch not in kept:
                    batch.sequence = NO_SEQUENCE
            self.next_sequence = self.rewind_to
            self.rewind_to = None
        self.waiting.extendleft(reversed(retried))


def _comes_before(sequence: int, other: int) -> bool:
    """Whether one sequence was given before another, not long before: they wrap after 2^31-1."""
    return 0 < (other - sequence) & 0x7FFFFFFF < 1 << 30
