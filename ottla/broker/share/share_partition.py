"""A share partition while members use it: the log that it reads, its records in flight, its state, and who waits.

    acquire, acknowledge, time out -> records in flight -> change -> shard -> durable

One timer ends the acquisitions that took too long. Members wait in the order in which they came: what becomes available
wakes the first of them, and the next one only while something is left, so that a record does not wake a thousand.

Made when a member fetches from it first, and forgotten when no session has it and no record is acquired: all else is in
the shard's state. Source: Kafka's `SharePartition` and `SharePartitionManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from ottla.broker.share.deliveries import (
    Acknowledgement,
    Acquired,
    Cause,
    DeadLetters,
    RecordState,
    Span,
    StateBatch,
    Wanted,
)
from ottla.broker.share.in_flight import InFlightRecords
from ottla.broker.share.read_size import ReadSize
from ottla.broker.share.runs import NEVER_MS
from ottla.broker.share.stored_state import Change, SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CorruptBatch
from ottla.protocol.records.formats import iter_any

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services
    from ottla.broker.share.dead_letter_queue import DeadLetterQueue
    from ottla.broker.share.settings import GroupSettings, ShareSettings
    from ottla.broker.share.shard import ShareStateShard
    from ottla.protocol.records.batch import BatchHeader
    from ottla.protocol.types import Buffer

_first_offset = itemgetter(1)


class Waiting(Protocol):
    """A ShareFetch that waits for records."""

    def try_again(self) -> None:
        """Something may be available."""


class SharePartition:
    """See the module's text. All calls on the broker's thread."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        shard: ShareStateShard,
        services: Services,
        settings: GroupSettings,
        dead_letters: DeadLetterQueue,
    ) -> None:
        state = shard.states[key]
        self.key = key
        self.partition = partition
        self.shard = shard
        self.records = InFlightRecords(state.start_offset, state.batches)
        self.sessions: set[object] = set()
        """The share sessions that have it."""
        self.is_being_read = False
        """Whether a worker reads records for a member, which no other needs to do at the same time."""
        self.is_begun = True
        """Whether the start offset is durable."""
        self.is_closed = False
        self._services = services
        self._counters = services.metrics.share_groups
        self._settings = settings
        self.read_size = ReadSize()
        """How much a member has to read of it."""
        self._dead_letters = dead_letters
        self._waiting: dict[Waiting, None] = {}
        self._is_watching = False
        self._is_planned = False
        self._timer: Timer | None = None
        self._timer_ms = NEVER_MS
        """The deadline for which `_timer` was planned; NEVER_MS once that has passed."""
        self.records.begin_at(partition.log_start_offset)

    @property
    def is_idle(self) -> bool:
        """Whether nothing would be lost if it were forgotten."""
        in_use = self.sessions or self._waiting or self.is_being_read
        return not in_use and not self.records.has_acquired and not self.records.has_archiving

    @property
    def settings(self) -> ShareSettings:
        """The settings of its group, as they are now."""
        return self._settings.now

    # --- what is there ---------------------------------------------------------------------------------------------

    def readable_from(self) -> int | None:
        """The offset from which a member may read, None where nothing is available. Raises KafkaError, as `check`."""
        self.check()
        self.records.begin_at(self.partition.log_start_offset)
        offset = self.records.next_available(self.settings.most_in_flight)
        return offset if offset is not None and offset < self.end_offset else None

    def check(self) -> None:
        """Raises KafkaError NOT_LEADER_OR_FOLLOWER where it must be found again, KAFKA_STORAGE_ERROR."""
        if self.partition.is_closed:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition is closed")
        if self.is_closed or self.shard.is_dead:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the state of the share partition is loaded again")

    @property
    def committed_only(self) -> bool:
        """Whether records of open and aborted transactions are not delivered."""
        return self.settings.committed_only

    @property
    def end_offset(self) -> int:
        """The first offset that may not be delivered yet."""
        partition = self.partition
        partition.settle()
        return partition.last_stable_offset if self.committed_only else partition.high_watermark

    @property
    def lag(self) -> int:
        """Records that need a delivery still."""
        return lag_of(self.records.start_offset, self.records.complete_count, self.partition.high_watermark)

    # --- steps -----------------------------------------------------------------------------------------------------

    def acquire(self, read_offset: int, data: Buffer, wanted: Wanted) -> tuple[Buffer, list[Acquired]]:
        """Let a member have records of `data`, whole batches that were read from `read_offset` on: the bytes that it
        needs, and what it has.

        Raises KafkaError CORRUPT_MESSAGE where no batch is at the beginning of `data`.
        """
        places = self._places(read_offset, data)
        self.read_size.note(places)
        acquired = self.records.acquire(read_offset, (span for span, _, _ in places), wanted)
        self._plan_time_out()
        if not acquired:
            return b"", []
        self._counters.acquired_records += sum(one.last_offset - one.first_offset + 1 for one in acquired)
        needed = [
            (begin, end)
            for span, begin, end in places
            if span.last_offset >= acquired[0].first_offset and span.first_offset <= acquired[-1].last_offset
        ]
        return memoryview(data)[needed[0][0] : needed[-1][1]], acquired

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], renewed_until_ms: float) -> None:
        """Write what a member says of its records. Raises KafkaError: nothing of it counts then."""
        self.check()
        settings = self.settings
        self.records.has_dead_letters = settings.has_dead_letters
        changes = self.records.acknowledge(
            member_id,
            acknowledgements,
            most_deliveries=settings.most_deliveries,
            renewed_until_ms=renewed_until_ms,
        )
        self._count(changes)
        self._changed(changes)
        if not changes:  # the log has no such records any more: a crash must not bring them back to the group
            self.note_start()

    def release(self, member_id: str) -> None:
        """The member's session has ended."""
        if not self.is_closed and not self.shard.is_dead:
            self.records.has_dead_letters = self.settings.has_dead_letters
            changes = self.records.release(member_id, self.settings.most_deliveries)
            self._count(changes)
            self._changed(changes)

    def begin(self) -> None:
        """Let no member be answered as if the group had begun here, until its state is durable: it may have been begun
        just now, perhaps for a member that is gone already.
        """
        self.is_begun = False
        self.shard.when_durable(self.key.text, self._begun)

    def _begun(self, error: KafkaError | None) -> None:
        self.is_begun = error is None

    def note_start(self) -> None:
        """Write that the start offset has moved over records that are not delivered, if nothing else has said so:
        aborted ones, or such that the log has no more. Otherwise the group would seem to have them before it.
        """
        if self.is_closed or self.shard.is_dead:
            return
        records = self.records
        records.begin_at(self.partition.log_start_offset)
        if records.start_offset > self.shard.states[self.key].start_offset:
            change = Change(records.start_offset, records.complete_count, (), self.partition.leader_epoch)
            self.shard.change(self.key, change)

    # --- dead letters (KIP-1191) -----------------------------------------------------------------------------------

    def resume_letters(self, batches: Sequence[StateBatch]) -> None:
        """Write the dead letters of records that were archiving when the state was loaded, as these batches say."""
        for first_offset, last_offset, state, delivery_count in batches:
            if state is RecordState.ARCHIVING:
                is_last = delivery_count >= self.settings.most_deliveries
                cause = Cause.DELIVERED_TOO_OFTEN if is_last else Cause.REJECTED
                self._bury(DeadLetters(first_offset, last_offset, delivery_count, cause))

    def _bury(self, letters: DeadLetters) -> None:
        """Write dead letters once it is durable that the records are archiving: else a crash could deliver a record
        again that has one.
        """

        def durable(error: KafkaError | None) -> None:
            if error is None:
                self._dead_letters.add(self.key, self.partition.topic, letters, lambda: self._buried(letters))
            elif not self.shard.is_dead:  # the disk is slow
                self.shard.when_durable(self.key.text, durable)
            # else the next load finds what was written

        self.shard.when_durable(self.key.text, durable)

    def _buried(self, letters: DeadLetters) -> None:
        """The dead letters are durable."""
        if not self.is_closed and not self.shard.is_dead:
            self._changed(self.records.archived(letters.first_offset, letters.last_offset))

    # --- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Its state is not the shard's any more: those who wait look for it again."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake()

    def _count(self, changes: Sequence[StateBatch]) -> None:
        acknowledged = archived = released = 0
        for first_offset, last_offset, state, _ in changes:
            if state is RecordState.ACKNOWLEDGED:
                acknowledged += last_offset - first_offset + 1
            elif state is RecordState.AVAILABLE:
                released += last_offset - first_offset + 1
            else:
                archived += last_offset - first_offset + 1
        counters = self._counters
        counters.acknowledged_records += acknowledged
        counters.archived_records += archived
        counters.released_records += released

    def _changed(self, changes: Sequence[StateBatch]) -> None:
        if changes:
            records = self.records
            self.shard.change(
                self.key, Change(records.start_offset, records.complete_count, changes, self.partition.leader_epoch)
            )
        self._plan_time_out()
        if changes:  # some are available again, or there is room for others
            self.wake()
        for letters in self.records.take_letters():
            self._bury(letters)

    def _time_out(self) -> None:
        self._timer_ms = NEVER_MS
        if not self.is_closed and not self.shard.is_dead:
            self.records.has_dead_letters = self.settings.has_dead_letters
            changes = self.records.time_out(self._services.clock.monotonic_ms(), self.settings.most_deliveries)
            self._counters.timed_out_records += sum(map(_record_count, changes))
            self._changed(changes)

    def _plan_time_out(self) -> None:
        deadline_ms, timer = self.records.next_deadline_ms, self._timer
        if timer is not None and self._timer_ms == deadline_ms < NEVER_MS:
            return
        is_ever = deadline_ms < NEVER_MS
        self._timer = self._services.timers.surely_at(deadline_ms, self._time_out) if is_ever else None
        self._timer_ms = deadline_ms
        if timer is not None:
            timer.cancel()  # after the next is planned: if there is no memory for it, this one runs again

    # --- members that wait -----------------------------------------------------------------------------------------

    def wait(self, waiting: Waiting) -> None:
        """Have `waiting.try_again` called when something may be available."""
        self._waiting[waiting] = None
        if not self._is_watching:
            self._is_watching = True
            self.partition.watch(self)

    def stop_waiting(self, waiting: Waiting) -> None:
        """Take `wait` back; fine where it does not wait."""
        self._waiting.pop(waiting, None)
        if not self._waiting and self._is_watching:
            self._is_watching = False
            self.partition.unwatch(self)

    def wake(self) -> None:
        """Something may be available, or is wrong: after this turn's appends the first who waits tries."""
        if self._waiting and not self._is_planned:
            self._is_planned = True
            self._services.turn.after_append(self._serve)

    def _serve(self) -> None:
        self._is_planned = False
        for waiting in list(self._waiting):
            try:
                if self.readable_from() is None or self.is_being_read:
                    return
            except KafkaError:
                pass  # each request that waits gets the error
            if waiting in self._waiting:
                waiting.try_again()

    # --- below -----------------------------------------------------------------------------------------------------

    def _places(self, read_offset: int, data: Buffer) -> list[tuple[Span, int, int]]:
        """The batches of `data`: offsets, and where they begin and end. Those of aborted transactions are marked where
        the group reads committed records only (Kafka's `filterAbortedTransactionalAcquiredRecords`).
        """
        is_aborted = self._aborted_batches(read_offset, data)
        places: list[tuple[Span, int, int]] = []
        try:
            for position, header in iter_any(data, allow_partial_tail=True):
                span = Span(header.base_offset, header.next_offset - 1, is_aborted(header))
                places.append((span, position, position + header.size_bytes))
        except CorruptBatch as error:
            if not places:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return places

    def _aborted_batches(self, read_offset: int, data: Buffer) -> Callable[[BatchHeader], bool]:
        """Whether each batch is of an aborted transaction; to be called with them in their order."""
        if not self.committed_only or not self.partition.must_list_aborted(read_offset):
            return lambda header: False
        begins = sorted(self.partition.aborted_transactions(read_offset, data), key=_first_offset, reverse=True)
        producers: set[int] = set()

        def is_aborted(header: BatchHeader) -> bool:
            while begins and begins[-1][1] < header.next_offset:
                producers.add(begins.pop()[0])
            if header.is_control:
                producers.discard(header.producer_id)
            return header.is_transactional and header.producer_id in producers

        return is_aborted


def _record_count(batch: StateBatch) -> int:
    return batch.last_offset - batch.first_offset + 1


def lag_of(start_offset: int, complete_count: int, end_offset: int) -> int:
    """Records that a share partition needs to deliver still (KIP-1226); -1 where that is not known."""
    return max(end_offset - start_offset - complete_count, 0) if complete_count >= 0 else -1
