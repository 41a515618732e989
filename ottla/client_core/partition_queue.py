"""A partition's batches on their way to the broker, in order, with the sequences of an idempotent producer (KIP-98).

It only holds state: `send_queues` makes the decisions. Each client has its own subclass of `QueuedBatch`.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, Self, TypeVar
from uuid import UUID

from ottla.protocol.types import ZERO_UUID


class ProducerIdentity(NamedTuple):
    """The identity of an idempotent producer; sequences begin again at 0 for each."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
NO_SEQUENCE = -1
_serials = itertools.count()


class QueuedBatch:
    """The records of one partition that are sent together: the part of a batch that sending needs."""

    __slots__ = (
        "attempts",
        "is_closed",
        "is_finished",
        "linger_until",
        "maybe_appended",
        "queue",
        "record_count",
        "sealed",
        "sequence",
        "serial",
    )

    queue: PartitionQueue[Self]
    """Set before the batch is queued."""

    def __init__(self) -> None:
        self.attempts = 0
        self.record_count = 0
        self.linger_until = 0.0
        self.serial: tuple[int, ...] = (next(_serials),)
        """The order in which batches were opened; the parts of a split batch take its place."""
        self.sequence = NO_SEQUENCE
        self.sealed: bytearray | None = None
        """The bytes to send, with its sequence."""
        self.is_closed = False
        """Whether it takes no more records: it is full, or was sent."""
        self.is_finished = False
        """Whether the records are delivered or given up, perhaps while it is still in flight."""
        self.maybe_appended = False
        """Whether an attempt ended without a clear answer, so that the broker may have it."""

    @property
    def size_bytes(self) -> int:
        """The size of the batch in a request, at most or about."""
        raise NotImplementedError


B = TypeVar("B", bound=QueuedBatch)


class PartitionQueue(Generic[B]):
    """A partition's batches: `waiting` in order, the last one perhaps open; `in_flight` in order; `failed`, to retry.

    While there are batches in `failed`, no new one is sent. When all batches in flight are answered, `settle` puts the
    failed ones in front again, in their order and with sequences that the broker will accept.
    """

    __slots__ = (
        "batch_bytes",
        "failed",
        "failures",
        "identity",
        "in_flight",
        "is_known_to_broker",
        "leader",
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

    def __init__(self, topic: str, partition: int, batch_bytes: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.batch_bytes = batch_bytes
        """The size up to which its batches grow; less than `batch_size` after one was too large for the topic."""
        self.used_at = 0.0
        """When its last batch was opened."""
        self.waiting: deque[B] = deque()
        self.in_flight: deque[B] = deque()
        self.failed: list[B] = []
        self.failures = 0
        self.not_before = 0.0
        self.leader: Hashable = None
        self.topic_id = ZERO_UUID
        """The topic of the last batch, as `leader` is its broker. Another id means that the topic was created again."""
        self.identity = NO_IDENTITY
        self.next_sequence = NO_SEQUENCE
        """The sequence of the next batch that gets one; a producer that is not idempotent assigns none."""
        self.is_known_to_broker = False
        """Whether the broker has a batch of this identity. Before that it lets a producer begin at any sequence, so a
        second batch could be appended although the first one was refused: only one may be in flight."""
        self.rewind_to: int | None = None
        """The sequence of a batch that was refused permanently; the batches after it move up at the next `settle`."""
        self.unknown_gap: int | None = None
        """The sequence of a batch that was given up although the broker may have it; later ones may be refused."""
        self.wants_new_identity = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_idle(self) -> bool:
        """Whether no batch is in flight or waits."""
        return not (self.waiting or self.in_flight or self.failed)

    def number(self, batch: B, identity: ProducerIdentity) -> None:
        """Assign a batch its sequence, when it is first sent and after `settle` has removed it."""
        if self.identity == NO_IDENTITY:
            self.identity = identity
            self.next_sequence = 0
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            batch.sealed = None
            self.take_sequences(batch.record_count)

    def take_sequences(self, record_count: int) -> None:
        """Count the records of a batch that gets the next sequence, if the producer is idempotent."""
        if self.next_sequence != NO_SEQUENCE:
            self.next_sequence = (self.next_sequence + record_count) & 0x7FFFFFFF

    def follow(self, identity: ProducerIdentity) -> None:
        """Count from 0 again under a new identity: no batch of the old one is in flight or waits."""
        if self.identity == identity:
            return
        if self.identity.producer_id != identity.producer_id:
            self.is_known_to_broker = False
        self.identity = identity
        self.next_sequence = 0
        self.unknown_gap = self.rewind_to = None

    def note_given_up(self, batch: B) -> None:
        """Note the effect of a permanently failed batch on the sequences after it."""
        if batch.sequence == NO_SEQUENCE:
            return
        if batch.maybe_appended:
            self.unknown_gap = batch.sequence
        elif self.rewind_to is None or _comes_before(batch.sequence, self.rewind_to):
            self.rewind_to = batch.sequence

    def appended(self, batch: B) -> bool:
        """Remove a batch in flight that the broker has appended; return whether there are more batches."""
        self.in_flight.remove(batch)
        self.failures = 0
        self.is_known_to_broker = True
        if self.unknown_gap is not None and _comes_before(self.unknown_gap, batch.sequence):
            self.unknown_gap = None
        if self.failed or self.rewind_to is not None or self.wants_new_identity:
            self.settle()
        return bool(self.waiting or self.in_flight or self.failed)

    def go_to(self, leader: Hashable, topic_id: UUID) -> None:
        """Note the destination of the next batch. A topic that was created again knows no producer."""
        self.leader = leader
        if self.topic_id is not topic_id and self.topic_id != topic_id:  # ids are compared in Python
            self.topic_id = topic_id
            self.is_known_to_broker = False

    def may_overtake(self, batch: B) -> bool:
        """Whether an idempotent producer may send `batch` while others of the queue are in flight.

        A new batch must wait while one of those is sent again. The broker may have appended that one although its
        answer was lost, and later ones, too. With the new batch, more would be under way than the broker remembers, and
        it would refuse the oldest as out of order.
        """
        return self.is_known_to_broker and (batch.attempts > 0 or all(sent.attempts < 2 for sent in self.in_flight))

    @property
    def is_unsettled(self) -> bool:
        """Whether no batch may be sent before all batches in flight are answered."""
        return bool(self.failed) or self.rewind_to is not None or self.wants_new_identity

    def settle(self) -> None:
        """If no batch is in flight, put the failed ones in front again, with the sequences that the broker expects."""
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
    """Whether a sequence was assigned (not long) before another one; sequences wrap after 2^31-1."""
    return 0 < (other - sequence) & 0x7FFFFFFF < 1 << 30
