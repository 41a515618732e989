"""The records of a share partition between its start offset and its end offset: who has which, and how often.

Pure: no clock, no log, no disk. Every offset in between is in one *run*, of neighbours in the same state:

    available --acquire--> acquired --accept--> acknowledged
        ^                     |  `---reject, gap--> archived
        `--release, time out--'        (and so does a release after the last delivery that is allowed)

    offsets      5  6  7 | 8  9 | 10 .. 14 | 15 ...
    state        acquired| avail| archived | not in flight: never acquired

In a group with dead letters (KIP-1191) a record that is rejected, or released after its last delivery, is archiving
first, until `archived` says that its dead letter is written. It is in flight until then.

The start offset moves over acknowledged and archived records, the end offset over records that are acquired for the
first time. An offset without a record (compacted, a marker) is acquired like any other, and acknowledged as a gap;
offsets that are missing between two batches are archived.

A record that makes its members crash must not take its neighbours along, which were delivered as often as it. So
records that have had half of their deliveries come in smaller portions, and alone at their last delivery.

Acquisitions are soft: after a restart these records are available again. All else is written: each method returns the
changes that the caller writes (`stored_state.py`). Source: Kafka's `SharePartition`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

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
from ottla.broker.share.runs import NEVER_MS, Run, add_change, pieces
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError

_first_offset = attrgetter("first_offset")
_DONE = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
_RENEW, _REJECT = int(AcknowledgeType.RENEW), int(AcknowledgeType.REJECT)
_RESULT: dict[int, RecordState] = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


class InFlightRecords:
    """See the module's text. `batches` are those of the stored state, in their order; what is between them was never
    delivered.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        """The first offset that may be delivered (Kafka's share-partition start offset)."""
        self.end_offset = start_offset
        """The first offset that was never in flight."""
        self.has_dead_letters = False
        """Whether records are archiving before they are archived; the caller sets it before each step."""
        self._letters: list[DeadLetters] = []
        self._runs: list[Run] = []
        for batch in batches:
            if batch.last_offset < self.end_offset:
                continue
            first_offset = max(batch.first_offset, self.end_offset)
            self._extend(first_offset - 1, RecordState.AVAILABLE, 0)
            self._extend(batch.last_offset, batch.state, batch.delivery_count)
        self._advance()

    # --- figures ---------------------------------------------------------------------------------------------------

    @property
    def next_deadline_ms(self) -> float:
        """When the first acquisition times out; `NEVER_MS` without any."""
        return min((run.deadline_ms for run in self._runs), default=NEVER_MS)

    @property
    def has_acquired(self) -> bool:
        """Whether any record is acquired."""
        return any(run.state is RecordState.ACQUIRED for run in self._runs)

    @property
    def has_archiving(self) -> bool:
        """Whether any record waits for its dead letter."""
        return any(run.state is RecordState.ARCHIVING for run in self._runs)

    @property
    def complete_count(self) -> int:
        """Offsets from the start offset on that need no delivery any more (KIP-1226)."""
        return sum(run.last_offset - run.first_offset + 1 for run in self._runs if run.state in _DONE)

    def next_available(self, most_in_flight: int) -> int | None:
        """The first offset that may be acquired, in flight or new; None where too many are in flight for a new one."""
        for run in self._runs:
            if run.state is RecordState.AVAILABLE:
                return run.first_offset
        if self._runs and self.end_offset - self.start_offset >= most_in_flight:
            return None
        return self.end_offset

    def batches(self) -> list[StateBatch]:
        """The runs, for tests and descriptions."""
        return [StateBatch(run.first_offset, run.last_offset, run.state, run.delivery_count) for run in self._runs]

    # --- steps -----------------------------------------------------------------------------------------------------

    def acquire(self, read_offset: int, spans: Iterable[Span], wanted: Wanted) -> list[Acquired]:
        """Give available records to a member: those of `spans`, the batches that were read from `read_offset` on."""
        acquired: list[Acquired] = []
        missing_records, is_strict = wanted.most_records, wanted.is_strict
        last_wanted: int | None = None
        position = max(read_offset, self.start_offset)
        for span in spans:
            if missing_records <= 0 or position > self.end_offset:  # there was no room for the span before
                break
            if span.last_offset < position:
                continue
            self._archive_unread(position, span.last_offset if span.is_skipped else span.first_offset - 1)
            position = max(position, span.first_offset)
            for first_offset, last_offset, run in self._available_in(position, span.last_offset, wanted.most_in_flight):
                if last_wanted is not None and first_offset > last_wanted:
                    missing_records = 0
                    break
                if run is not None and last_wanted is None:
                    portion = wanted.portion(run.delivery_count, run.last_offset - run.first_offset + 1)
                    if portion is not None:
                        if acquired:
                            missing_records = 0
                            break
                        missing_records, is_strict, last_wanted = min(missing_records, portion), True, run.last_offset
                last = min(last_offset, first_offset + missing_records - 1) if is_strict else last_offset
                missing_records -= last - first_offset + 1
                self._take(first_offset, last, wanted, acquired)
                if is_strict and missing_records <= 0:
                    break
            position = span.last_offset + 1
        self._advance()
        return acquired

    def archive(self, first_offset: int, last_offset: int) -> None:
        """Let available records never be delivered: they are of an aborted transaction, or not in the log any more.

        Nothing has to be written of it: a restart finds the same.
        """
        last_offset = min(last_offset, self.end_offset - 1)
        for run in self._split(max(first_offset, self.start_offset), last_offset):
            if run.state is RecordState.AVAILABLE:
                run.state = RecordState.ARCHIVED
        self._advance()

    def begin_at(self, log_start_offset: int) -> None:
        """The log begins at a later offset now: archive what was available before it."""
        if log_start_offset <= self.start_offset:
            return
        if log_start_offset >= self.end_offset and not self.has_acquired and not self.has_archiving:
            self.start_offset = self.end_offset = log_start_offset
            self._runs.clear()
            return
        self._extend(log_start_offset - 1, RecordState.ARCHIVED, 0)
        self.archive(self.start_offset, log_start_offset - 1)

    def acknowledge(
        self,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        *,
        most_deliveries: int,
        renewed_until_ms: float,
    ) -> list[StateBatch]:
        """Apply what a member says of the records that it has; the changes. All of it or, with an error, nothing.

        Raises KafkaError INVALID_RECORD_STATE for records that the member does not have, INVALID_REQUEST for offsets
        that were never in flight.
        """
        for each in acknowledgements:
            self._check(member_id, each)
        changes: list[StateBatch] = []
        for each in acknowledgements:
            first_offset = max(each.first_offset, self.start_offset)
            if first_offset > each.last_offset:
                continue
            begin, end = self._bounds(first_offset, each.last_offset)
            changed: list[Run] = []
            for run, kind in pieces(self._runs[begin:end], each):
                changed.append(run)
                if kind == _RENEW:
                    run.deadline_ms = renewed_until_ms
                else:
                    self._end(run, _RESULT[kind], most_deliveries, kind == _REJECT)
                    add_change(changes, run)
            self._runs[begin:end] = changed
        self._advance()
        return changes

    def time_out(self, now_ms: float, most_deliveries: int) -> list[StateBatch]:
        """End the acquisitions whose time is over; the changes."""
        changes: list[StateBatch] = []
        for run in self._runs:
            if run.deadline_ms <= now_ms:
                self._end(run, RecordState.AVAILABLE, most_deliveries)
                add_change(changes, run)
        self._advance()
        return changes

    def release(self, member_id: str, most_deliveries: int) -> list[StateBatch]:
        """The member's session has ended: release what it has; the changes."""
        changes: list[StateBatch] = []
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id:
                self._end(run, RecordState.AVAILABLE, most_deliveries)
                add_change(changes, run)
        self._advance()
        return changes

    def take_letters(self) -> list[DeadLetters]:
        """What has begun to be archiving since the last call."""
        letters, self._letters = self._letters, []
        return letters

    def archived(self, first_offset: int, last_offset: int) -> list[StateBatch]:
        """The dead letters of these records are written: archive those that are archiving; the changes."""
        changes: list[StateBatch] = []
        for run in self._split(max(first_offset, self.start_offset), min(last_offset, self.end_offset - 1)):
            if run.state is RecordState.ARCHIVING:
                run.state = RecordState.ARCHIVED
                add_change(changes, run)
        self._advance()
        return changes

    # --- below -----------------------------------------------------------------------------------------------------

    def _check(self, member_id: str, said: Acknowledgement) -> None:
        if said.last_offset < self.start_offset:
            return  # of records that need no acknowledgement any more
        first_offset = max(said.first_offset, self.start_offset)
        if not self._runs:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"offset {first_offset} is not acquired")
        if said.last_offset >= self.end_offset:
            reason = f"offset {said.last_offset} was never acquired, the last that was is {self.end_offset - 1}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
        for run in self._covering(first_offset, said.last_offset):
            if run.state is not RecordState.ACQUIRED:
                reason = f"offset {max(run.first_offset, first_offset)} is {run.state.name.lower()}, not acquired"
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, reason)
            if run.member_id != member_id:
                reason = f"offset {max(run.first_offset, first_offset)} is acquired by another member"
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, reason)

    def _end(self, run: Run, state: RecordState, most_deliveries: int, is_rejected: bool = False) -> None:
        cause = Cause.REJECTED if is_rejected else None
        if state is RecordState.AVAILABLE and run.delivery_count >= most_deliveries:
            state, cause = RecordState.ARCHIVED, Cause.DELIVERED_TOO_OFTEN
        if state is RecordState.ARCHIVED and cause is not None and self.has_dead_letters:
            state = RecordState.ARCHIVING
            self._letters.append(DeadLetters(run.first_offset, run.last_offset, run.delivery_count, cause))
        run.state, run.member_id, run.deadline_ms = state, "", NEVER_MS

    def _take(self, first_offset: int, last_offset: int, wanted: Wanted, acquired: list[Acquired]) -> None:
        self._extend(last_offset, RecordState.AVAILABLE, 0)
        for run in self._split(first_offset, last_offset):
            run.state, run.member_id, run.deadline_ms = RecordState.ACQUIRED, wanted.member_id, wanted.deadline_ms
            run.delivery_count += 1
            new = Acquired(run.first_offset, run.last_offset, run.delivery_count)
            before = acquired[-1] if acquired else None
            if (
                before is not None
                and before.last_offset + 1 == new.first_offset
                and before.delivery_count == new.delivery_count
                and before.last_offset - before.first_offset + 1 < wanted.batch_size
            ):
                acquired[-1] = before._replace(last_offset=new.last_offset)
            else:
                acquired.append(new)

    def _available_in(
        self, first_offset: int, last_offset: int, most_in_flight: int
    ) -> list[tuple[int, int, Run | None]]:
        """The offsets that may be acquired: the first, the last, and the run that they are of if they are in flight."""
        found: list[tuple[int, int, Run | None]] = [
            (max(run.first_offset, first_offset), min(run.last_offset, last_offset), run)
            for run in self._covering(first_offset, min(last_offset, self.end_offset - 1))
            if run.state is RecordState.AVAILABLE
        ]
        has_room = not self._runs or self.end_offset - self.start_offset < most_in_flight
        if last_offset >= self.end_offset and has_room:
            found.append((max(first_offset, self.end_offset), last_offset, None))
        return found

    def _archive_unread(self, first_offset: int, last_offset: int) -> None:
        """The log has no record at these offsets, or none that may be delivered."""
        if last_offset < first_offset:
            return
        if self.end_offset <= last_offset:
            self._extend(last_offset, RecordState.ARCHIVED, 0)
        for run in self._split(first_offset, last_offset):
            if run.state is RecordState.AVAILABLE:
                run.state = RecordState.ARCHIVED

    def _extend(self, last_offset: int, state: RecordState, delivery_count: int) -> None:
        """Put the offsets up to `last_offset` in flight, those that are not."""
        if last_offset >= self.end_offset:
            self._runs.append(Run(self.end_offset, last_offset, state, delivery_count))
            self.end_offset = last_offset + 1

    def _covering(self, first_offset: int, last_offset: int) -> list[Run]:
        """The runs that have any of these offsets, in order."""
        begin = max(self._index_of(first_offset), 0)
        return self._runs[begin : self._index_of(last_offset) + 1]

    def _index_of(self, offset: int) -> int:
        """The index of the run that has an offset, or of the last one before it; -1 without one."""
        return bisect_right(self._runs, offset, key=_first_offset) - 1

    def _split(self, first_offset: int, last_offset: int) -> list[Run]:
        """The runs of exactly these offsets; those at the edges are divided."""
        if last_offset < first_offset:
            return []
        begin, end = self._bounds(first_offset, last_offset)
        return self._runs[begin:end]

    def _bounds(self, first_offset: int, last_offset: int) -> tuple[int, int]:
        """Divide the runs at the edges; the index of the first run of exactly these offsets, and of that after them."""
        begin = self._divide_before(first_offset)
        return begin, self._divide_before(last_offset + 1)

    def _divide_before(self, offset: int) -> int:
        """Let a run begin at an offset; its index, that of the end if none has the offset."""
        index = bisect_right(self._runs, offset, key=_first_offset) - 1
        if index < 0:
            return 0
        run = self._runs[index]
        if run.first_offset == offset:
            return index
        if offset <= run.last_offset:
            after = Run(offset, run.last_offset, run.state, run.delivery_count, run.member_id, run.deadline_ms)
            run.last_offset = offset - 1
            self._runs.insert(index + 1, after)
        return index + 1

    def _advance(self) -> None:
        """Join neighbours that are alike, and move the start offset over what needs no delivery any more."""
        runs: list[Run] = []
        for run in self._runs:
            if not runs and run.state in _DONE:
                self.start_offset = run.last_offset + 1
            elif runs and runs[-1].is_like(run):
                runs[-1].last_offset = run.last_offset
            else:
                runs.append(run)
        self._runs = runs
        self.end_offset = max(self.end_offset, self.start_offset)
