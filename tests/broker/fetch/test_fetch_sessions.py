"""Fetch sessions (KIP-227): epochs, what an answer has, and which client gets a place in the cache."""

from __future__ import annotations

import random
from functools import partial

import pytest
from kit.clock import ManualClock

from ottla.broker.fetch.fetch_sessions import EVICTABLE_AFTER_MS, MAX_EPOCH, FetchSessions, FetchTarget, TopicKey
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

Wanted = list[tuple[TopicKey, FetchRequest.FetchPartition]]


def wanted(*partitions: int, offset: int = 0) -> Wanted:
    return [
        ("t", FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=100))
        for index in partitions
    ]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(2, clock, partial(random.Random(1).randint, 1, MAX_EPOCH))


def test_epochs_go_up_by_one_and_begin_again_at_one(sessions: FetchSessions) -> None:
    session = sessions.open(wanted(0), uses_topic_ids=False)
    assert session is not None
    for epoch in (1, 2, 3):
        sessions.resume(session.id, epoch, uses_topic_ids=False)
    session.epoch = MAX_EPOCH
    sessions.resume(session.id, MAX_EPOCH, uses_topic_ids=False)
    sessions.resume(session.id, 1, uses_topic_ids=False)


def test_a_request_that_is_repeated_or_out_of_turn_is_refused(sessions: FetchSessions) -> None:
    session = sessions.open(wanted(0), uses_topic_ids=True)
    assert session is not None
    sessions.resume(session.id, 1, uses_topic_ids=True)
    for session_id, epoch, uses_ids, code in (
        (session.id, 1, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (session.id + 1, 2, True, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (session.id, 2, False, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        with pytest.raises(KafkaError) as refused:
            sessions.resume(session_id, epoch, uses_topic_ids=uses_ids)
        assert refused.value.code is code
    sessions.resume(session.id, 2, uses_topic_ids=True)


def test_an_answer_to_an_earlier_request_brings_back_no_partition_that_was_forgotten_and_added_again(
    sessions: FetchSessions,
) -> None:
    """A Fetch may wait while another connection continues its session."""
    session = sessions.open(wanted(0, 1), uses_topic_ids=False)
    assert session is not None
    former = session.targets[("t", 0)]
    sessions.update(session, [], [("t", 0)])
    session.read_last(former)
    assert list(session.targets) == [("t", 1)]
    sessions.update(session, wanted(0, offset=7), [])
    sessions.update(session, wanted(2), [])
    session.read_last(former)
    assert [(target.partition, target.fetch_offset) for target in session.targets.values()] == [(1, 0), (2, 0), (0, 7)]


def test_a_session_adds_changes_and_forgets_partitions(sessions: FetchSessions) -> None:
    session = sessions.open(wanted(0, 1), uses_topic_ids=False)
    assert session is not None
    sessions.update(session, wanted(1, 2, offset=7), [("t", 0)])
    assert {key: target.fetch_offset for key, target in session.targets.items()} == {("t", 1): 7, ("t", 2): 7}


def test_a_full_cache_keeps_what_is_used(sessions: FetchSessions, clock: ManualClock) -> None:
    for _ in range(2):
        assert sessions.open(wanted(0), uses_topic_ids=False)
    clock.advance(EVICTABLE_AFTER_MS)
    assert sessions.open(wanted(0), uses_topic_ids=False) is None
    assert len(sessions) == 2


def test_a_session_that_nobody_used_for_two_minutes_makes_room(sessions: FetchSessions, clock: ManualClock) -> None:
    old = sessions.open(wanted(0), uses_topic_ids=False)
    used = sessions.open(wanted(0), uses_topic_ids=False)
    assert old
    assert used
    clock.advance(EVICTABLE_AFTER_MS + 1)
    sessions.resume(used.id, 1, uses_topic_ids=False)
    assert sessions.open(wanted(0), uses_topic_ids=False)
    sessions.resume(used.id, 2, uses_topic_ids=False)
    with pytest.raises(KafkaError):
        sessions.resume(old.id, 1, uses_topic_ids=False)
    assert sessions.evictions == 1


def test_a_larger_session_takes_the_place_of_an_old_smaller_one(sessions: FetchSessions, clock: ManualClock) -> None:
    small = sessions.open(wanted(0), uses_topic_ids=False)
    large = sessions.open(wanted(0, 1, 2), uses_topic_ids=False)
    assert small
    assert large
    clock.advance(EVICTABLE_AFTER_MS + 1)
    sessions.resume(small.id, 1, uses_topic_ids=False)
    sessions.resume(large.id, 1, uses_topic_ids=False)
    assert sessions.open(wanted(0), uses_topic_ids=False) is None
    assert sessions.open(wanted(0, 1), uses_topic_ids=False)
    sessions.resume(large.id, 2, uses_topic_ids=False)
    with pytest.raises(KafkaError):
        sessions.resume(small.id, 2, uses_topic_ids=False)


def test_without_slots_nobody_gets_a_session(clock: ManualClock) -> None:
    assert FetchSessions(0, clock).open(wanted(0), uses_topic_ids=False) is None


def test_one_session_cannot_name_more_and_more_partitions_for_ever(clock: ManualClock) -> None:
    sessions = FetchSessions(2, clock, max_partitions=10)
    session = sessions.open(wanted(*range(8)), uses_topic_ids=False)
    assert session is not None
    sessions.resume(session.id, 1, uses_topic_ids=False)
    sessions.update(session, wanted(8, 9), ())
    sessions.resume(session.id, 2, uses_topic_ids=False)
    sessions.update(session, wanted(10), [("t", 0)])
    assert sessions.partition_count == 10
    sessions.resume(session.id, 3, uses_topic_ids=False)
    with pytest.raises(KafkaError) as refused:
        sessions.update(session, wanted(11), ())
    assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "clients begin again when they hear this"
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_a_full_session_goes_on_with_the_partitions_that_it_has(clock: ManualClock) -> None:
    sessions = FetchSessions(2, clock, max_partitions=3)
    session = sessions.open(wanted(0, 1, 2), uses_topic_ids=False)
    assert session is not None
    sessions.resume(session.id, 1, uses_topic_ids=False)
    sessions.update(session, wanted(1, offset=7), ())
    assert session.targets["t", 1].fetch_offset == 7


def test_sessions_that_nobody_uses_make_room_for_partitions(clock: ManualClock) -> None:
    sessions = FetchSessions(10, clock, max_partitions=10)
    left = [sessions.open(wanted(*range(3)), uses_topic_ids=False) for _ in range(3)]
    assert all(left)
    assert sessions.open(wanted(0, 1), uses_topic_ids=False) is None
    clock.advance(EVICTABLE_AFTER_MS + 1)
    new = sessions.open(wanted(0, 1), uses_topic_ids=False)
    assert new is not None
    assert (sessions.evictions, sessions.partition_count) == (1, 8)
    sessions.resume(new.id, 1, uses_topic_ids=False)
    sessions.update(new, wanted(2, 3, 4, 5), ())
    assert (sessions.evictions, sessions.partition_count) == (2, 9)


def test_partitions_of_closed_sessions_are_not_counted(sessions: FetchSessions) -> None:
    for _ in range(3):
        session = sessions.open(wanted(0, 1), uses_topic_ids=False)
        assert session is not None
        assert sessions.partition_count == 2
        sessions.resume(session.id, 1, uses_topic_ids=False)
        sessions.update(session, (), [("t", 0), ("t", 1)])
        assert (len(sessions), sessions.partition_count) == (0, 0)


def test_news_are_told_once_and_the_end_of_an_error_is_news() -> None:
    target = FetchTarget("t", wanted(0)[0][1])

    def data(high_watermark: int, code: ErrorCode = ErrorCode.NONE) -> FetchResponse.PartitionData:
        return FetchResponse.PartitionData(
            partition_index=0, error_code=code, high_watermark=high_watermark, log_start_offset=0, records=b""
        )

    assert target.note_sent(data(5))
    assert not target.note_sent(data(5))
    assert target.note_sent(data(6))
    assert target.note_sent(data(6, ErrorCode.FENCED_LEADER_EPOCH))
    assert target.note_sent(data(6))
    assert not target.note_sent(data(6))
