"""Records in flight, rule by rule; mixtures are compared with a naive model in `test_in_flight_machine.py`."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

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
from ottla.broker.share.runs import NEVER_MS
from ottla.protocol.api.share_fetch import AcknowledgeType
from ottla.protocol.errors import ErrorCode, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
MOST_DELIVERIES = 2
DEADLINE_MS, RENEWED_MS = 100.0, 250.0
FOUR_BATCHES = (Span(0, 2), Span(3, 4), Span(5, 9), Span(10, 10))


def wanted(most_records: int = 100, member_id: str = "a", **fields: object) -> Wanted:
    usual: dict[str, object] = {"batch_size": 1, "most_in_flight": 1_000, "deadline_ms": DEADLINE_MS}
    return Wanted(member_id, most_records, **{**usual, **fields})  # type: ignore[arg-type]  # fields by name


def acquired_by_a(first_offset: int = 0, last_offset: int = 9) -> InFlightRecords:
    records = InFlightRecords(first_offset)
    records.acquire(first_offset, [Span(first_offset, last_offset)], wanted())
    return records


def say(records: InFlightRecords, first: int, last: int, *types: int, member_id: str = "a") -> list[StateBatch]:
    return records.acknowledge(
        member_id,
        [Acknowledgement(first, last, types)],
        most_deliveries=MOST_DELIVERIES,
        renewed_until_ms=RENEWED_MS,
    )


def refusal(records: InFlightRecords, *said: Acknowledgement, member_id: str = "a") -> ErrorCode:
    """The code of a refused acknowledgement, which has changed nothing."""
    before = (records.batches(), records.start_offset, records.end_offset, records.next_deadline_ms)
    with pytest.raises(KafkaError) as error:
        records.acknowledge(member_id, said, most_deliveries=MOST_DELIVERIES, renewed_until_ms=RENEWED_MS)
    assert (records.batches(), records.start_offset, records.end_offset, records.next_deadline_ms) == before
    return error.value.code


# --- acquiring -------------------------------------------------------------------------------------------------------


def test_whole_batches_are_acquired_until_there_are_enough_records() -> None:
    records = InFlightRecords(0)
    assert records.acquire(0, FOUR_BATCHES, wanted(4)) == [Acquired(0, 2, 1), Acquired(3, 4, 1)]
    assert (records.start_offset, records.end_offset, records.next_deadline_ms) == (0, 5, DEADLINE_MS)


def test_under_a_record_limit_no_more_records_are_acquired() -> None:
    records = InFlightRecords(0)
    assert records.acquire(0, FOUR_BATCHES, wanted(4, is_strict=True)) == [Acquired(0, 2, 1), Acquired(3, 3, 1)]
    assert records.acquire(4, FOUR_BATCHES, wanted(4, is_strict=True)) == [Acquired(4, 4, 1), Acquired(5, 7, 1)]


def test_under_a_record_limit_the_rest_of_a_batch_goes_to_another_member() -> None:
    records = InFlightRecords(0)
    records.acquire(0, [Span(0, 9)], wanted(3, "a", is_strict=True))
    assert records.acquire(3, [Span(0, 9)], wanted(3, "b", is_strict=True)) == [Acquired(3, 5, 1)]


def test_nobody_gets_what_another_member_has() -> None:
    records = acquired_by_a(0, 4)
    assert records.acquire(0, [Span(0, 4)], wanted(member_id="b")) == []
    assert records.acquire(0, FOUR_BATCHES, wanted(member_id="b")) == [Acquired(5, 9, 1), Acquired(10, 10, 1)]


def test_small_batches_are_one_entry_until_it_has_the_batch_size() -> None:
    records = InFlightRecords(0)
    assert records.acquire(0, FOUR_BATCHES, wanted(batch_size=4)) == [
        Acquired(0, 4, 1),
        Acquired(5, 9, 1),
        Acquired(10, 10, 1),
    ]


def test_an_entry_has_records_that_were_delivered_equally_often() -> None:
    records = acquired_by_a(0, 2)
    records.release("a", MOST_DELIVERIES)
    assert records.acquire(0, FOUR_BATCHES[:2], wanted(batch_size=100)) == [Acquired(0, 2, 2), Acquired(3, 4, 1)]


def test_what_was_released_within_a_batch_is_acquired_alone() -> None:
    records = acquired_by_a(0, 9)
    say(records, 3, 5, RELEASE)
    assert records.next_available(1_000) == 3
    assert records.acquire(3, [Span(0, 9)], wanted(member_id="b")) == [Acquired(3, 5, 2)]


def test_offsets_that_are_missing_between_batches_are_archived() -> None:
    records = InFlightRecords(0)
    acquired = records.acquire(0, [Span(2, 3), Span(6, 6)], wanted())
    assert acquired == [Acquired(2, 3, 1), Acquired(6, 6, 1)]
    assert records.start_offset == 2, "nothing before the first batch needs a delivery"
    assert StateBatch(4, 5, ARCHIVED, 0) in records.batches()


def test_a_batch_of_an_aborted_transaction_is_archived() -> None:
    records = InFlightRecords(0)
    spans = [Span(0, 1), Span(2, 3, is_skipped=True), Span(4, 4)]
    assert records.acquire(0, spans, wanted()) == [Acquired(0, 1, 1), Acquired(4, 4, 1)]
    assert StateBatch(2, 3, ARCHIVED, 0) in records.batches()


def delivered(times: int, last_offset: int = 9, first_offset: int = 0) -> InFlightRecords:
    """Records that were delivered so often, and released."""
    records = InFlightRecords(first_offset)
    for _ in range(times):
        records.acquire(first_offset, [Span(first_offset, last_offset)], wanted())
        records.release("a", 100)
    return records


def test_after_half_of_their_deliveries_records_come_in_smaller_portions() -> None:
    records = delivered(3)
    assert records.acquire(0, [Span(0, 9), Span(10, 12)], wanted(most_deliveries=5)) == [Acquired(0, 4, 4)]
    assert records.acquire(5, [Span(0, 9), Span(10, 12)], wanted(most_deliveries=5)) == [Acquired(5, 6, 4)]
    assert delivered(4).acquire(0, [Span(0, 9)], wanted(most_deliveries=8)) == [Acquired(0, 4, 5)]
    assert delivered(5).acquire(0, [Span(0, 9)], wanted(most_deliveries=8)) == [Acquired(0, 1, 6)]
    assert delivered(2).acquire(0, [Span(0, 9)], wanted(most_deliveries=5)) == [Acquired(0, 9, 3)]


@pytest.mark.parametrize("most_deliveries", [3, 5, 6, 10])
def test_at_its_last_delivery_a_record_comes_alone(most_deliveries: int) -> None:
    records = delivered(most_deliveries - 1)
    for offset in range(3):
        acquired = records.acquire(offset, [Span(0, 9), Span(10, 12)], wanted(most_deliveries=most_deliveries))
        assert acquired == [Acquired(offset, offset, most_deliveries)]
        records.release("a", most_deliveries)


def test_records_delivered_often_do_not_come_with_others() -> None:
    records = delivered(4, first_offset=3)
    records = InFlightRecords(0, [StateBatch(0, 2, AVAILABLE, 1), *records.batches()])
    assert records.acquire(0, [Span(0, 20)], wanted(most_deliveries=5)) == [Acquired(0, 2, 2)]
    assert records.acquire(3, [Span(0, 20)], wanted(most_deliveries=5)) == [Acquired(3, 3, 5)]


@pytest.mark.parametrize("most_deliveries", [1, 2])
def test_with_few_deliveries_records_stay_together(most_deliveries: int) -> None:
    assert delivered(most_deliveries - 1).acquire(0, [Span(0, 9)], wanted(most_deliveries=most_deliveries)) == [
        Acquired(0, 9, most_deliveries)
    ]


def test_what_was_read_before_the_start_offset_moved_is_acquired_from_there() -> None:
    records = InFlightRecords(0)
    records.begin_at(4)
    assert records.acquire(0, FOUR_BATCHES, wanted(1)) == [Acquired(4, 4, 1)]


def test_no_new_record_is_acquired_while_as_many_are_in_flight_as_may_be() -> None:
    records = InFlightRecords(0)
    assert records.acquire(0, FOUR_BATCHES, wanted(most_in_flight=4)) == [Acquired(0, 2, 1), Acquired(3, 4, 1)]
    assert records.acquire(5, FOUR_BATCHES, wanted(most_in_flight=4)) == []
    assert records.next_available(5) is None
    assert records.next_available(6) == 5


def test_what_is_available_is_acquired_also_where_no_new_record_may_be() -> None:
    records = InFlightRecords(0)
    records.acquire(0, FOUR_BATCHES[:2], wanted())
    records.release("a", MOST_DELIVERIES)
    acquired = records.acquire(0, FOUR_BATCHES, wanted(member_id="b", most_in_flight=1))
    assert acquired == [Acquired(0, 2, 2), Acquired(3, 4, 2)]


@pytest.mark.parametrize("after", [Span(7, 7), Span(5, 6, is_skipped=True)], ids=["gap", "aborted"])
def test_records_for_which_there_was_no_room_are_not_lost_to_a_gap_after_them(after: Span) -> None:
    """They were archived with the gap, although no member had ever got them."""
    records = InFlightRecords(0)
    records.acquire(0, [Span(0, 2)], wanted(most_in_flight=3))
    say(records, 1, 1, RELEASE)
    acquired = records.acquire(1, [Span(0, 2), Span(3, 4), after], wanted(member_id="b", most_in_flight=3))
    assert acquired == [Acquired(1, 1, 2)]
    assert records.end_offset == 3
    assert records.acquire(3, [Span(3, 4), after], wanted(member_id="b"))[0] == Acquired(3, 4, 1)


def test_the_next_available_offset_is_that_of_a_released_record_before_a_new_one() -> None:
    records = acquired_by_a()
    assert records.next_available(1_000) == 10
    say(records, 5, 6, RELEASE)
    assert records.next_available(1_000) == 5
    assert InFlightRecords(7).next_available(1) == 7


# --- acknowledging ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "state", "start_offset"), [(ACCEPT, ACKNOWLEDGED, 3), (REJECT, ARCHIVED, 3), (GAP, ARCHIVED, 3)]
)
def test_a_record_that_needs_no_delivery_any_more_moves_the_start(
    kind: AcknowledgeType, state: RecordState, start_offset: int
) -> None:
    records = acquired_by_a()
    assert say(records, 0, 2, kind) == [StateBatch(0, 2, state, 1)]
    assert (records.start_offset, records.end_offset, records.complete_count) == (start_offset, 10, 0)


def test_a_released_record_is_available_with_the_deliveries_that_it_had() -> None:
    records = acquired_by_a()
    assert say(records, 0, 2, RELEASE) == [StateBatch(0, 2, AVAILABLE, 1)]
    assert records.batches() == [StateBatch(0, 2, AVAILABLE, 1), StateBatch(3, 9, ACQUIRED, 1)]


def test_after_the_last_delivery_that_is_allowed_a_released_record_is_archived() -> None:
    records = acquired_by_a(0, 0)
    say(records, 0, 0, RELEASE)
    records.acquire(0, [Span(0, 0)], wanted())
    assert say(records, 0, 0, RELEASE) == [StateBatch(0, 0, ARCHIVED, MOST_DELIVERIES)]
    assert records.start_offset == 1


def test_renewed_records_are_kept_for_longer_and_nothing_is_written() -> None:
    records = acquired_by_a()
    assert say(records, 0, 4, RENEW) == []
    assert records.time_out(DEADLINE_MS, MOST_DELIVERIES) == [StateBatch(5, 9, AVAILABLE, 1)]
    assert records.next_deadline_ms == RENEWED_MS


def test_each_offset_of_a_batch_may_have_its_own_type() -> None:
    records = acquired_by_a(5, 10)
    changes = say(records, 5, 10, ACCEPT, ACCEPT, RELEASE, REJECT, GAP, RENEW)
    assert changes == [
        StateBatch(5, 6, ACKNOWLEDGED, 1),
        StateBatch(7, 7, AVAILABLE, 1),
        StateBatch(8, 9, ARCHIVED, 1),
    ]
    assert records.batches() == [*changes[1:], StateBatch(10, 10, ACQUIRED, 1)]
    assert (records.start_offset, records.complete_count) == (7, 2)


def test_offsets_before_the_start_need_no_acknowledgement() -> None:
    records = acquired_by_a()
    say(records, 0, 4, ACCEPT)
    assert say(records, 0, 3, ACCEPT) == []
    assert say(records, 3, 5, RELEASE, RELEASE, ACCEPT) == [StateBatch(5, 5, ACKNOWLEDGED, 1)]
    assert records.start_offset == 6


@pytest.mark.parametrize(
    ("said", "member_id", "code"),
    [
        (Acknowledgement(0, 2, [ACCEPT]), "b", ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(3, 3, [ACCEPT]), "a", ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(2, 4, [ACCEPT]), "a", ErrorCode.INVALID_RECORD_STATE),
        (Acknowledgement(5, 10, [ACCEPT]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(10, 11, [ACCEPT]), "a", ErrorCode.INVALID_REQUEST),
        (Acknowledgement(3, 3, [RENEW]), "a", ErrorCode.INVALID_RECORD_STATE),
    ],
    ids=["another member", "available", "partly available", "beyond the end", "after the end", "renewed"],
)
def test_a_wrong_acknowledgement_changes_nothing(said: Acknowledgement, member_id: str, code: ErrorCode) -> None:
    records = acquired_by_a()
    say(records, 3, 3, RELEASE)
    assert refusal(records, said, member_id=member_id) is code


def test_one_wrong_acknowledgement_takes_the_right_ones_with_it() -> None:
    records = acquired_by_a()
    say(records, 3, 3, RELEASE)
    right, wrong = Acknowledgement(0, 2, [ACCEPT]), Acknowledgement(3, 3, [ACCEPT])
    assert refusal(records, right, wrong) is ErrorCode.INVALID_RECORD_STATE


def test_a_record_is_acknowledged_once() -> None:
    records = acquired_by_a()
    say(records, 1, 1, ACCEPT)
    assert refusal(records, Acknowledgement(1, 1, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


# --- what ends an acquisition ----------------------------------------------------------------------------------------


def test_a_record_is_available_again_when_its_time_is_over_and_not_before() -> None:
    records = acquired_by_a()
    assert records.time_out(DEADLINE_MS - 1, MOST_DELIVERIES) == []
    assert records.has_acquired
    assert records.time_out(DEADLINE_MS, MOST_DELIVERIES) == [StateBatch(0, 9, AVAILABLE, 1)]
    assert not records.has_acquired
    assert records.next_deadline_ms == NEVER_MS


def test_a_member_may_not_acknowledge_what_has_timed_out() -> None:
    records = acquired_by_a()
    records.time_out(DEADLINE_MS, MOST_DELIVERIES)
    assert refusal(records, Acknowledgement(0, 9, [ACCEPT])) is ErrorCode.INVALID_RECORD_STATE


def test_the_end_of_a_session_releases_what_its_member_has_and_nothing_else() -> None:
    records = InFlightRecords(0)
    records.acquire(0, FOUR_BATCHES, wanted(1, "a"))
    records.acquire(3, FOUR_BATCHES, wanted(1, "b"))
    records.acquire(5, FOUR_BATCHES, wanted(1, "a"))
    assert records.release("a", MOST_DELIVERIES) == [StateBatch(0, 2, AVAILABLE, 1), StateBatch(5, 9, AVAILABLE, 1)]
    assert say(records, 3, 4, ACCEPT, member_id="b")
    assert records.release("a", MOST_DELIVERIES) == []


@pytest.mark.parametrize("end", ["time_out", "release"])
def test_the_last_delivery_ends_in_the_archive(end: str) -> None:
    records = InFlightRecords(0)
    records.acquire(0, [Span(0, 1)], wanted())
    what = DEADLINE_MS if end == "time_out" else "a"
    assert getattr(records, end)(what, 1) == [StateBatch(0, 1, ARCHIVED, 1)]
    assert records.start_offset == 2


# --- a log that begins later -----------------------------------------------------------------------------------------


def test_available_records_that_are_not_in_the_log_any_more_are_passed_over() -> None:
    records = acquired_by_a()
    records.release("a", MOST_DELIVERIES)
    records.begin_at(4)
    assert (records.start_offset, records.next_available(1_000)) == (4, 4)


def test_acquired_records_that_are_not_in_the_log_any_more_can_still_be_acknowledged() -> None:
    records = acquired_by_a()
    records.begin_at(20)
    assert (records.start_offset, records.end_offset) == (0, 20)
    assert say(records, 0, 9, ACCEPT) == [StateBatch(0, 9, ACKNOWLEDGED, 1)]
    assert (records.start_offset, records.end_offset, records.batches()) == (20, 20, [])


def test_a_log_that_begins_after_everything_leaves_nothing_in_flight() -> None:
    records = acquired_by_a()
    records.release("a", MOST_DELIVERIES)
    records.begin_at(15)
    assert (records.start_offset, records.end_offset, records.batches()) == (15, 15, [])


def test_the_start_offset_never_goes_back_with_the_log() -> None:
    records = InFlightRecords(9)
    records.begin_at(3)
    assert records.start_offset == 9


def test_only_available_records_are_archived() -> None:
    records = acquired_by_a()
    say(records, 5, 9, RELEASE)
    records.archive(0, 6)
    assert records.batches() == [
        StateBatch(0, 4, ACQUIRED, 1),
        StateBatch(5, 6, ARCHIVED, 1),
        StateBatch(7, 9, AVAILABLE, 1),
    ]


# --- a restart -------------------------------------------------------------------------------------------------------


def test_after_a_restart_offsets_without_a_stored_state_were_never_delivered() -> None:
    records = InFlightRecords(5, [StateBatch(5, 6, ACKNOWLEDGED, 1), StateBatch(9, 9, ARCHIVED, 2)])
    assert (records.start_offset, records.end_offset, records.complete_count) == (7, 10, 1)
    assert records.batches() == [StateBatch(7, 8, AVAILABLE, 0), StateBatch(9, 9, ARCHIVED, 2)]


def test_stored_states_before_the_start_offset_do_not_count() -> None:
    records = InFlightRecords(5, [StateBatch(0, 3, AVAILABLE, 2), StateBatch(4, 5, AVAILABLE, 1)])
    assert records.batches() == [StateBatch(5, 5, AVAILABLE, 1)]


def test_deliveries_are_counted_on_from_the_stored_state() -> None:
    records = InFlightRecords(5, [StateBatch(5, 6, AVAILABLE, 3)])
    assert records.acquire(5, [Span(5, 6)], wanted()) == [Acquired(5, 6, 4)]


# --- dead letters ----------------------------------------------------------------------------------------------------


def with_letters() -> InFlightRecords:
    records = acquired_by_a()
    records.has_dead_letters = True
    return records


def test_a_rejected_record_is_archiving_until_its_letter_is_written() -> None:
    records = with_letters()
    assert say(records, 0, 1, REJECT) == [StateBatch(0, 1, ARCHIVING, 1)]
    assert records.take_letters() == [DeadLetters(0, 1, 1, Cause.REJECTED)]
    assert records.take_letters() == []
    assert (records.start_offset, records.complete_count, records.has_archiving) == (0, 0, True)
    assert records.archived(0, 1) == [StateBatch(0, 1, ARCHIVED, 1)]
    assert (records.start_offset, records.has_archiving) == (2, False)


def test_a_record_that_was_delivered_too_often_is_archiving_and_a_gap_is_not() -> None:
    records = with_letters()
    changes = records.acknowledge(
        "a", [Acknowledgement(0, 2, [RELEASE, REJECT, GAP])], most_deliveries=1, renewed_until_ms=0
    )
    assert changes == [StateBatch(0, 1, ARCHIVING, 1), StateBatch(2, 2, ARCHIVED, 1)]
    assert records.take_letters() == [
        DeadLetters(0, 0, 1, Cause.DELIVERED_TOO_OFTEN),
        DeadLetters(1, 1, 1, Cause.REJECTED),
    ]


def test_an_archiving_record_is_neither_acknowledged_nor_acquired_nor_timed_out() -> None:
    records = with_letters()
    say(records, 0, 9, REJECT)
    with pytest.raises(KafkaError) as refused:
        say(records, 0, 0, ACCEPT)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert records.time_out(1e9, 1) == records.release("a", 1) == []
    assert records.next_available(10) is None, "they count among the records in flight"
    assert records.next_available(11) == 10


def test_a_log_that_begins_after_it_leaves_an_archiving_record_as_it_is() -> None:
    records = with_letters()
    say(records, 0, 9, REJECT)
    records.begin_at(50)
    assert (records.start_offset, records.end_offset) == (0, 50)
    records.archived(0, 9)
    assert (records.start_offset, records.end_offset) == (50, 50)


def test_archiving_records_are_archiving_after_a_restart() -> None:
    records = InFlightRecords(5, [StateBatch(5, 6, ARCHIVING, 1), StateBatch(7, 7, ARCHIVED, 2)])
    assert (records.start_offset, records.complete_count, records.has_archiving) == (5, 1, True)
    assert records.archived(0, 100) == [StateBatch(5, 6, ARCHIVED, 1)]
    assert records.start_offset == 8


def test_an_acknowledgement_of_records_that_alternate_costs_at_most_250_bytecodes_a_record() -> None:
    """2,000 records are 2,000 runs: they are divided in one pass (before, each was looked for, and inserted)."""
    records, count, steps = InFlightRecords(0), 2_000, 0
    records.acquire(0, [Span(0, count - 1)], Wanted("a", count, count, count, 1_000))
    said = [Acknowledgement(0, count - 1, [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE] * (count // 2))]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        changes = records.acknowledge("a", said, most_deliveries=5, renewed_until_ms=0)
    finally:
        sys.settrace(before)
    assert len(changes) == count
    assert len(records.batches()) == count - 1  # the first is done
    assert steps / count <= 250
