"""Share sessions: epochs, partitions, connections, and both limits."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.broker.peer import Peer
from ottla.broker.share.sessions import FINAL_EPOCH, MAX_EPOCH, Place, ShareSession, ShareSessions
from ottla.protocol.errors import ErrorCode, KafkaError

TOPIC_ID = UUID(int=1)


def places(*indexes: int) -> list[Place]:
    return [(TOPIC_ID, index) for index in indexes]


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(2, 10)


@pytest.fixture
def session(sessions: ShareSessions) -> ShareSession:
    return sessions.open("g", "a", Peer())


def refusal_of_epoch(sessions: ShareSessions, epoch: int, member_id: str = "a") -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        sessions.resume("g", member_id, epoch, Peer())
    return refused.value.code


def refusal_of_partitions(sessions: ShareSessions, session: ShareSession, *indexes: int) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        sessions.update(session, places(*indexes), ())
    return refused.value.code


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_epochs_go_up_by_one_and_begin_again_at_one(sessions: ShareSessions, session: ShareSession) -> None:
    for epoch in (1, 2, 3):
        assert sessions.resume("g", "a", epoch, Peer()) is session
    session.epoch = MAX_EPOCH
    sessions.resume("g", "a", MAX_EPOCH, Peer())
    sessions.resume("g", "a", 1, Peer())


def test_a_request_that_is_repeated_or_out_of_turn_is_refused(sessions: ShareSessions, session: ShareSession) -> None:
    sessions.resume("g", "a", 1, Peer())
    for epoch in (1, 3, MAX_EPOCH, -2):
        assert refusal_of_epoch(sessions, epoch) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.resume("g", "a", 2, Peer()) is session, "a refused request changes nothing"


def test_the_final_epoch_fits_at_any_time(sessions: ShareSessions, session: ShareSession) -> None:
    assert sessions.resume("g", "a", FINAL_EPOCH, Peer()) is session
    assert sessions.resume("g", "a", 1, Peer()) is session


@pytest.mark.parametrize("epoch", [1, FINAL_EPOCH])
def test_a_member_without_a_session_is_sent_to_open_one(sessions: ShareSessions, epoch: int) -> None:
    sessions.open("g", "b", Peer())
    assert refusal_of_epoch(sessions, epoch) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_member_has_a_session_in_each_group(sessions: ShareSessions, session: ShareSession) -> None:
    other = sessions.open("h", "a", Peer())
    assert sessions.get("g", "a") is session
    assert sessions.get("h", "a") is other
    sessions.close(session)
    assert (sessions.get("g", "a"), sessions.get("h", "a")) == (None, other)


def test_a_closed_session_is_not_found_and_closed_once(sessions: ShareSessions, session: ShareSession) -> None:
    sessions.update(session, places(0, 1), ())
    for _ in range(2):
        sessions.close(session)
    assert (len(sessions), sessions.partition_count, session.is_closed) == (0, 0, True)
    assert refusal_of_epoch(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND


# --- partitions ------------------------------------------------------------------------------------------------------


def test_a_session_remembers_its_partitions(sessions: ShareSessions, session: ShareSession) -> None:
    assert sessions.update(session, places(0, 1), ()) == []
    assert sessions.update(session, places(1, 2), places(0, 9)) == places(0)
    assert list(session.places) == places(1, 2)
    assert sessions.partition_count == 2


def test_a_partition_that_is_added_and_removed_at_once_is_removed(
    sessions: ShareSessions, session: ShareSession
) -> None:
    assert sessions.update(session, places(0, 1), places(1)) == places(1)
    assert (list(session.places), sessions.partition_count) == (places(0), 1)


def test_each_request_begins_with_another_partition(sessions: ShareSessions, session: ShareSession) -> None:
    sessions.update(session, places(0, 1, 2), ())
    firsts = []
    for epoch in range(1, 7):
        sessions.resume("g", "a", epoch, Peer())
        in_turn = session.in_turn()
        assert sorted(in_turn) == places(0, 1, 2)
        firsts.append(in_turn[0][1])
    assert firsts == [2, 0, 1, 2, 0, 1]


def test_a_session_without_partitions_has_no_turn(session: ShareSession) -> None:
    assert session.in_turn() == []


# --- limits ----------------------------------------------------------------------------------------------------------


def test_no_more_sessions_are_opened_than_are_allowed(sessions: ShareSessions, session: ShareSession) -> None:
    sessions.open("g", "b", Peer())
    with pytest.raises(KafkaError) as refused:
        sessions.open("g", "c", Peer())
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(sessions) == 2
    sessions.close(session)
    assert sessions.open("g", "c", Peer())


def test_partitions_are_limited_over_all_sessions(sessions: ShareSessions, session: ShareSession) -> None:
    other = sessions.open("g", "b", Peer())
    sessions.update(session, places(*range(6)), ())
    sessions.update(other, places(*range(4)), ())
    assert refusal_of_partitions(sessions, other, 4) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.close(session)
    sessions.update(other, places(*range(10)), ())


def test_a_session_that_is_refused_again_and_again_does_not_grow(
    sessions: ShareSessions, session: ShareSession
) -> None:
    """It kept the partitions with which it was refused: a client had no limit."""
    sessions.update(session, places(*range(8)), ())
    for begin in range(10, 100, 10):
        code = refusal_of_partitions(sessions, session, *range(begin, begin + 10))
        assert code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert (len(session.places), sessions.partition_count) == (8, 8)


def test_a_full_session_goes_on_with_the_partitions_that_it_has(sessions: ShareSessions, session: ShareSession) -> None:
    sessions.update(session, places(*range(10)), ())
    assert sessions.update(session, places(3), ()) == []
    assert sessions.update(session, places(20), places(3)) == places(3)
    assert sessions.partition_count == 10


def test_the_sessions_of_some_groups_are_found(sessions: ShareSessions, session: ShareSession) -> None:
    other = sessions.open("h", "a", Peer())
    assert sessions.of_groups({"g", "i"}) == [session]
    assert sessions.of_groups({"h", "g"}) == [session, other]


# --- connections -----------------------------------------------------------------------------------------------------


def test_a_session_belongs_to_the_connection_of_its_newest_request(sessions: ShareSessions) -> None:
    first, second = Peer(), Peer()
    session, other = sessions.open("g", "a", first), sessions.open("g", "b", first)
    assert sessions.of_peer(first) == [session, other]
    sessions.resume("g", "a", 1, second)
    assert (sessions.of_peer(first), sessions.of_peer(second)) == ([other], [session])
    with pytest.raises(KafkaError):
        sessions.resume("g", "b", 5, second)
    assert sessions.of_peer(second) == [session], "a refused request takes nothing over"
