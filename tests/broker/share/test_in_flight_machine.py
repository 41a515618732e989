"""Records in flight against a naive model with one entry for each offset, through restarts from what was written, with
and without dead letters.

The model takes each rule one offset at a time. Restarts begin from what the product reports as changes,
and from the records of `__share_group_state`, in their bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.examples import examples

from ottla.broker.share.deliveries import Acknowledgement, Acquired, RecordState, Span, StateBatch, Wanted
from ottla.broker.share.in_flight import InFlightRecords
from ottla.broker.share.runs import NEVER_MS
from ottla.broker.share.stored_state import (
    Change,
    SharePartitionKey,
    StoredState,
    change_record,
    replayed_snapshot,
    replayed_update,
)
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.share_state import (
    ShareSnapshotValue,
    ShareUpdateValue,
    decode_share_state_record,
    encode_share_state_key,
    encode_share_state_value,
)

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
DONE = (ACKNOWLEDGED, ARCHIVED)
KEY = SharePartitionKey("g", UUID(int=7), 0)
MOST_DELIVERIES = 3
MOST_UPDATES = 4
LOCK_MS = 50
RESULTS = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}
member_ids = st.sampled_from(["a", "b", "c"])
limits = st.sampled_from([2, 5, 9, 1_000])


@dataclass(frozen=True)
class Entry:
    """One offset in flight."""

    state: RecordState = AVAILABLE
    delivery_count: int = 0
    member_id: str = ""
    deadline_ms: float = NEVER_MS


class Model:
    """One entry for each offset from `start` to `end`, and what was written of each."""

    def __init__(self, start: int, *, has_dead_letters: bool) -> None:
        self.has_dead_letters = has_dead_letters
        self.start = self.end = self.written_start = start
        self.entries: dict[int, Entry] = {}
        self.written: dict[int, Entry] = {}

    def advance(self) -> None:
        while self.start < self.end and self.entries[self.start].state in DONE:
            del self.entries[self.start]
            self.start += 1

    def put(self, offset: int, entry: Entry) -> None:
        assert offset == self.end
        self.entries[offset] = entry
        self.end += 1

    def archive(self, first: int, last: int) -> None:
        for offset in range(first, last + 1):
            if self.entries[offset].state is AVAILABLE:
                self.entries[offset] = replace(self.entries[offset], state=ARCHIVED)

    def acquire(self, read_offset: int, spans: Sequence[Span], wanted: Wanted) -> dict[int, int]:
        """How often each offset that is acquired was delivered by now."""
        acquired: dict[int, int] = {}
        position = max(read_offset, self.start)
        for span in spans:
            if len(acquired) >= wanted.most_records or position > self.end:
                break
            if span.last_offset < position:
                continue
            unread_until = span.last_offset + 1 if span.is_skipped else span.first_offset
            for offset in range(position, unread_until):
                if offset == self.end:
                    self.put(offset, Entry(ARCHIVED))
                self.archive(offset, offset)
            has_room = not self.entries or self.end - self.start < wanted.most_in_flight
            for offset in range(max(position, unread_until), span.last_offset + 1):
                if wanted.is_strict and len(acquired) >= wanted.most_records:
                    break
                if offset == self.end and has_room:
                    self.put(offset, Entry())
                entry = self.entries.get(offset)
                if entry is not None and entry.state is AVAILABLE:
                    acquired[offset] = entry.delivery_count + 1
                    self.entries[offset] = Entry(ACQUIRED, acquired[offset], wanted.member_id, wanted.deadline_ms)
            position = span.last_offset + 1
        self.advance()
        return acquired

    def refusal(self, member_id: str, said: Acknowledgement) -> ErrorCode | None:
        first = max(said.first_offset, self.start)
        if said.last_offset < self.start:
            return None
        if self.entries and said.last_offset >= self.end:
            return ErrorCode.INVALID_REQUEST
        for offset in range(first, said.last_offset + 1):
            entry = self.entries.get(offset)
            if entry is None or entry.state is not ACQUIRED or entry.member_id != member_id:
                return ErrorCode.INVALID_RECORD_STATE
        return None

    def acknowledge(self, said: Acknowledgement, renewed_until_ms: float) -> set[int]:
        """The offsets that have changed."""
        changed = set()
        for offset in range(max(said.first_offset, self.start), said.last_offset + 1):
            kind = AcknowledgeType(said.types[0 if len(said.types) == 1 else offset - said.first_offset])
            if kind is AcknowledgeType.RENEW:
                self.entries[offset] = replace(self.entries[offset], deadline_ms=renewed_until_ms)
            else:
                self.end_of(offset, RESULTS[kind], is_rejected=kind is AcknowledgeType.REJECT)
                changed.add(offset)
        return changed

    def end_of(self, offset: int, state: RecordState, *, is_rejected: bool = False) -> None:
        count = self.entries[offset].delivery_count
        is_too_often = state is AVAILABLE and count >= MOST_DELIVERIES
        if is_too_often or is_rejected:
            state = ARCHIVING if self.has_dead_letters else ARCHIVED
        self.entries[offset] = Entry(state, count)

    def end_all(self, offsets: set[int]) -> set[int]:
        for offset in offsets:
            self.end_of(offset, AVAILABLE)
        return offsets

    def begin_at(self, log_start: int) -> None:
        if log_start <= self.start:
            return
        for offset in range(self.end, log_start):
            self.put(offset, Entry())
        self.archive(self.start, log_start - 1)
        self.advance()

    def write(self, changed: set[int]) -> None:
        """To be called before the start moves over what has changed."""
        self.written.update((offset, self.entries[offset]) for offset in changed)
        self.advance()
        if changed:
            self.written_start = self.start

    def restart(self) -> None:
        self.start = self.end = self.written_start
        self.entries = {}
        for offset in range(self.start, max(self.written, default=-1) + 1):
            self.put(offset, self.written.get(offset, Entry()))
        self.advance()

    def in_states(self, *states: RecordState) -> set[int]:
        return {offset for offset, entry in self.entries.items() if entry.state in states}


class RecordsInFlight(RuleBasedStateMachine):
    """Three members, a log with gaps and aborted transactions, reads that take their time, restarts."""

    @initialize(start=st.integers(0, 3), has_dead_letters=st.booleans())
    def begin(self, start: int, has_dead_letters: bool) -> None:
        self.now_ms = 0
        self.log: list[Span] = []
        self.log_start, self.log_end = 0, start
        self.records, self.model = InFlightRecords(start), Model(start, has_dead_letters=has_dead_letters)
        self.records.has_dead_letters = has_dead_letters
        self.letters: set[int] = set()
        """Those that are not written yet."""
        self.stored = StoredState(0, 0, 0, start, 0, 0)
        self.reading: tuple[int, list[Span]] | None = None
        self.newest_start = start
        self.produce([(0, 2, False), (1, 3, False), (0, 1, True)])

    @rule(
        batches=st.lists(
            st.tuples(st.integers(0, 2), st.integers(1, 4), st.sampled_from([False, False, False, True])),
            min_size=1,
            max_size=4,
        )
    )
    def produce(self, batches: list[tuple[int, int, bool]]) -> None:
        for missing, count, is_skipped in batches:
            first = self.log_end + missing
            self.log.append(Span(first, first + count - 1, is_skipped))
            self.log_end = first + count

    def read_from(self, offset: int) -> list[Span]:
        return [span for span in self.log if span.last_offset >= offset]

    def acquire(self, read_offset: int, spans: list[Span], wanted: Wanted) -> None:
        acquired = self.records.acquire(read_offset, iter(spans), wanted)
        expected = self.model.acquire(read_offset, spans, wanted)
        assert counts(acquired) == expected
        assert not wanted.is_strict or len(expected) <= wanted.most_records
        for one, after in pairwise(acquired):
            assert one.last_offset < after.first_offset
            may_join = one.last_offset + 1 == after.first_offset and one.delivery_count == after.delivery_count
            assert not may_join or one.last_offset - one.first_offset + 1 >= wanted.batch_size

    @rule(
        member_id=member_ids,
        most=st.integers(1, 8),
        batch_size=st.integers(1, 6),
        limit=limits,
        is_strict=st.booleans(),
        batches=st.integers(1, 6),
    )
    def fetch(self, member_id: str, most: int, batch_size: int, limit: int, is_strict: bool, batches: int) -> None:
        self.records.begin_at(self.log_start)
        self.model.begin_at(self.log_start)
        offset = self.records.next_available(limit)
        if offset is not None:
            wanted = Wanted(member_id, most, batch_size, limit, self.now_ms + LOCK_MS, is_strict)
            self.acquire(offset, self.read_from(offset)[:batches], wanted)

    @precondition(lambda self: self.reading is None)
    @rule(limit=limits)
    def begin_to_read(self, limit: int) -> None:
        offset = self.records.next_available(limit)
        if offset is not None:
            self.reading = offset, self.read_from(offset)

    @precondition(lambda self: self.reading is not None)
    @rule(member_id=member_ids, most=st.integers(1, 8), limit=limits, is_strict=st.booleans())
    def what_was_read_comes(self, member_id: str, most: int, limit: int, is_strict: bool) -> None:
        assert self.reading is not None
        read_offset, spans = self.reading
        self.reading = None
        self.acquire(read_offset, spans, Wanted(member_id, most, 1, limit, self.now_ms + LOCK_MS, is_strict))

    @precondition(lambda self: self.records.has_acquired)
    @rule(data=st.data(), kinds=st.lists(st.sampled_from(AcknowledgeType), min_size=1, max_size=6))
    def acknowledge_what_it_has(self, data: st.DataObject, kinds: list[AcknowledgeType]) -> None:
        first = data.draw(st.sampled_from(sorted(self.model.in_states(ACQUIRED))))
        member_id = self.model.entries[first].member_id
        last = first
        while (
            last - first + 1 < len(kinds)
            and self.model.refusal(member_id, Acknowledgement(first, last + 1, kinds)) is None
        ):
            last += 1
        types = kinds[:1] if data.draw(st.booleans()) else kinds[: last - first + 1]
        self.say(member_id, [Acknowledgement(first, last, types)])

    @rule(
        member_id=member_ids,
        kinds=st.lists(st.sampled_from(AcknowledgeType), min_size=1, max_size=4),
        from_start=st.integers(-3, 12),
        between=st.integers(1, 3),
    )
    def acknowledge_anything(self, member_id: str, kinds: list[AcknowledgeType], from_start: int, between: int) -> None:
        first = max(self.model.start + from_start, 0)
        second = first + len(kinds) - 1 + between
        self.say(
            member_id,
            [Acknowledgement(first, first + len(kinds) - 1, kinds), Acknowledgement(second, second, kinds[:1])],
        )

    def say(self, member_id: str, said: list[Acknowledgement]) -> None:
        refusals = [self.model.refusal(member_id, one) for one in said]
        expected = next((code for code in refusals if code is not None), None)
        renewed_ms = self.now_ms + LOCK_MS
        if expected is not None:
            with pytest.raises(KafkaError) as error:
                self.acknowledge(member_id, said, renewed_ms)
            assert error.value.code is expected
            return
        changes = self.acknowledge(member_id, said, renewed_ms)
        self.changed(changes, set().union(*(self.model.acknowledge(one, renewed_ms) for one in said)))

    def acknowledge(self, member_id: str, said: list[Acknowledgement], renewed_ms: float) -> list[StateBatch]:
        return self.records.acknowledge(member_id, said, most_deliveries=MOST_DELIVERIES, renewed_until_ms=renewed_ms)

    @rule(member_id=member_ids)
    def end_session(self, member_id: str) -> None:
        held = {o for o in self.model.in_states(ACQUIRED) if self.model.entries[o].member_id == member_id}
        self.changed(self.records.release(member_id, MOST_DELIVERIES), self.model.end_all(held))

    @rule(ms=st.sampled_from([1, LOCK_MS // 2, LOCK_MS]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        due = {offset for offset, entry in self.model.entries.items() if entry.deadline_ms <= self.now_ms}
        self.changed(self.records.time_out(self.now_ms, MOST_DELIVERIES), self.model.end_all(due))

    @precondition(lambda self: self.letters)
    @rule(data=st.data(), count=st.integers(1, 3))
    def letters_are_written(self, data: st.DataObject, count: int) -> None:
        first = data.draw(st.sampled_from(sorted(self.letters)))
        written = {offset for offset in range(first, first + count) if offset in self.letters}
        self.letters -= written
        for offset in written:
            self.model.entries[offset] = replace(self.model.entries[offset], state=ARCHIVED)
        self.changed(self.records.archived(first, max(written)) if written else [], written)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        self.log_start = data.draw(st.integers(self.log_start, min(self.log_end, self.model.end + 3)))
        self.log = [span for span in self.log if span.last_offset >= self.log_start]
        self.records.begin_at(self.log_start)
        self.model.begin_at(self.log_start)

    @rule()
    def restart(self) -> None:
        self.reading = None
        self.records = InFlightRecords(self.stored.start_offset, self.stored.batches)
        self.records.has_dead_letters = self.model.has_dead_letters
        self.model.restart()
        self.letters = self.model.in_states(ARCHIVING)
        self.newest_start = self.model.start  # what was not written may come again
        self.records.begin_at(self.log_start)
        self.model.begin_at(self.log_start)

    def changed(self, changes: Sequence[StateBatch], changed: set[int]) -> None:
        """Compare the changes, and write them."""
        expected = {o: (self.model.entries[o].state, self.model.entries[o].delivery_count) for o in changed}
        assert expanded(changes) == expected
        letters = [offset for one in self.records.take_letters() for offset in range(one[0], one[1] + 1)]
        assert len(set(letters)) == len(letters)
        assert {offset for offset in changed if self.model.entries[offset].state is ARCHIVING} == set(letters)
        self.letters |= set(letters)
        self.model.write(changed)
        if not changes:
            return
        records = self.records
        change = Change(records.start_offset, records.complete_count, changes, 0)
        before = self.stored
        key, value = change_record(KEY, before, change, most_updates=MOST_UPDATES, now_ms=self.now_ms)
        assert value is not None
        _, read = decode_share_state_record(encode_share_state_key(key), encode_share_state_value(value))
        if isinstance(read, ShareSnapshotValue):
            assert before.updates == MOST_UPDATES
            self.stored = replayed_snapshot(before, read, 0)
        else:
            assert isinstance(read, ShareUpdateValue)
            self.stored = replayed_update(before, read)
        assert self.stored.start_offset >= before.start_offset
        assert self.stored.complete_count == records.complete_count
        self.counts_on_disk_never_decrease(before)

    def counts_on_disk_never_decrease(self, before: StoredState) -> None:
        now = expanded(self.stored.batches)
        for offset, (_, count) in expanded(before.batches).items():
            assert offset < self.stored.start_offset or now[offset][1] >= count

    @invariant()
    def all_is_as_in_the_model(self) -> None:
        records, model = self.records, self.model
        assert (records.start_offset, records.end_offset) == (model.start, model.end)
        assert expanded(records.batches()) == {
            offset: (entry.state, entry.delivery_count) for offset, entry in model.entries.items()
        }
        assert records.has_acquired == bool(model.in_states(ACQUIRED))
        assert records.has_archiving == bool(model.in_states(ARCHIVING)) == bool(self.letters)
        assert records.complete_count == len(model.in_states(*DONE))
        assert records.next_deadline_ms == min((one.deadline_ms for one in model.entries.values()), default=NEVER_MS)
        for limit in (1, 5, 1_000):
            new = model.end if not model.entries or model.end - model.start < limit else None
            assert records.next_available(limit) == min(model.in_states(AVAILABLE), default=new)

    @invariant()
    def the_start_never_goes_back(self) -> None:
        assert self.model.start >= self.newest_start
        assert self.model.start >= self.model.written_start == self.stored.start_offset
        self.newest_start = self.model.start

    @invariant()
    def neighbours_differ(self) -> None:
        """A run for each offset would be as right, and slow."""
        batches = self.records.batches()
        for one, after in pairwise(batches):
            assert one[2:] != after[2:] or one.state is ACQUIRED


def expanded(batches: Sequence[StateBatch]) -> dict[int, tuple[RecordState, int]]:
    """State and deliveries by offset; no offset is in two batches."""
    found: dict[int, tuple[RecordState, int]] = {}
    for batch in batches:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            assert offset not in found
            found[offset] = (batch.state, batch.delivery_count)
    return found


def counts(acquired: Sequence[Acquired]) -> dict[int, int]:
    return {offset: one.delivery_count for one in acquired for offset in range(one.first_offset, one.last_offset + 1)}


RecordsInFlight.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=40)
TestRecordsInFlight = RecordsInFlight.TestCase
