"""A partition's batches on their way to the broker, in order, with the sequences of an idempotent producer (KIP-98).

It only holds state: `send_queues` decides when something moves. A client's own batch is a `QueuedBatch` with what that
client needs beside.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, Self, TypeVar
from uuid import UUID

from ottla.protocol.types import ZERO_UUID


class ProducerIdentity(NamedTuple):
    """What an idempotent producer is known by; sequences count again for each."""

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(-1, -1)
NO_SEQUENCE = -1
_serials = itertools.count()


class QueuedBatch:
    """The records of one partition that travel together, as far as sending them goes."""

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
        """The order in which batches were opened; the parts of a split one come in its place."""
        self.sequence = NO_SEQUENCE
        self.sealed: bytearray | None = None
        """Its bytes as they are sent, with its sequence."""
        self.is_closed = False
        """No more records; set when it is full and when it is first sent."""
        self.is_finished = False
        """The records are delivered or given up, also while it is still in flight."""
        self.maybe_appended = False
        """An attempt ended without a clear answer: the broker may have it."""

    @property
    def size_bytes(self) -> int:
        """How much of a request the batch takes, at most or about."""
        raise NotImplementedError


B = TypeVar("B", bound=QueuedBatch)


class PartitionQueue(Generic[B]):
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
        """How large its batches grow; less than `batch_size` once one was found too large for the topic."""
        self.used_at = 0.0
        """When its last batch was opened."""
        self.waiting: deque[B] = deque()
        self.in_flight: deque[B] = deque()
        self.failed: list[B] = []
        self.failures = 0
        self.not_before = 0.0
        self.leader: Hashable = None
        self.topic_id = ZERO_UUID
        """Where the last batch was sent to, as `leader`: another id is another topic, made under the same name."""
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

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return not (self.waiting or self.in_flight or self.failed)

    def number(self, batch: B, identity: ProducerIdentity) -> None:
        """Give a batch its sequence, when it is first sent and after `settle` took it back."""
        if self.identity == NO_IDENTITY:
            self.identity = identity
            self.next_sequence = 0
        if batch.sequence == NO_SEQUENCE:
            batch.sequence = self.next_sequence
            batch.sealed = None
            self.next_sequence = (self.next_sequence + batch.record_count) & 0x7FFFFFFF

    def follow(self, identity: ProducerIdentity) -> None:
        """Count from 0 again if the identity is another one: nothing of the old one is under way or waits."""
        if self.identity == identity:
            return
        if self.identity.producer_id != identity.producer_id:
            self.is_known_to_broker = False
        self.identity = identity
        self.next_sequence = 0
        self.unknown_gap = self.rewind_to = None

    def note_given_up(self, batch: B) -> None:
        """Remember what a sequenced batch that failed for good leaves behind."""
        if batch.sequence == NO_SEQUENCE:
            return
        if batch.maybe_appended:
            self.unknown_gap = batch.sequence
        elif self.rewind_to is None or _comes_before(batch.sequence, self.rewind_to):
            self.rewind_to = batch.sequence

    def appended(self, batch: B) -> bool:
        """Let go of a batch in flight that the broker has, and accepts what follows; return whether more is left."""
        self.in_flight.remove(batch)
        self.failures = 0
        self.is_known_to_broker = True
        if self.unknown_gap is not None and _comes_before(self.unknown_gap, batch.sequence):
            self.unknown_gap = None
        if self.failed or self.rewind_to is not None or self.wants_new_identity:
            self.settle()
        return bool(self.waiting or self.in_flight or self.failed)

    def go_to(self, leader: Hashable, topic_id: UUID) -> None:
        """Note where the next batch goes. A topic that was rebuilt knows no producer."""
        self.leader = leader
        if self.topic_id is not topic_id and self.topic_id != topic_id:  # ids are compared in Python
            self.topic_id = topic_id
            self.is_known_to_broker = False

    def may_overtake(self, batch: B) -> bool:
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
