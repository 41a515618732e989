"""What passes by itself in a group of the classic protocol: sessions, phases, first rebalances, ended connections."""

from __future__ import annotations

import pytest
from kit.classic_groups import ClassicTable

from ottla.broker.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.protocol.errors import ErrorCode


def test_a_member_that_is_silent_for_its_session_timeout_is_removed() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2, session_ms=10_000)
    table.pass_time(9_999)
    table.heartbeat(leader)
    assert len(table.group.members) == 2
    table.pass_time(1)
    assert list(table.group.members) == [leader]
    assert table.state == "PreparingRebalance"
    assert table.heartbeat(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def test_every_heartbeat_begins_the_session_again() -> None:
    table = ClassicTable()
    (member_id,) = table.stable(session_ms=10_000)
    for _ in range(10):
        table.pass_time(9_999)
        assert table.heartbeat(member_id) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "counts"), [("Stable", True), ("PreparingRebalance", True), ("CompletingRebalance", False)]
)
def test_a_commit_is_as_good_as_a_heartbeat_but_between_join_and_sync(state: str, counts: bool) -> None:
    table = ClassicTable()
    member_id, _ = table.new_member(session_ms=10_000)
    if state != "CompletingRebalance":
        table.settle()
    if state == "PreparingRebalance":
        table.new_member()
    table.pass_time(9_000)
    table.group.note_commit(member_id, table.now)
    table.group.note_commit("nobody", table.now)
    table.pass_time(1_000)
    assert (member_id in table.group.members) is counts


def test_the_last_session_to_end_leaves_an_empty_group_and_its_record() -> None:
    table = ClassicTable()
    table.stable(2)
    table.pass_time(10_000)
    assert (table.state, table.generation) == ("Empty", 3)
    assert table.group.next_deadline_ms is None
    assert table.reload().describe() == table.group.describe()


def test_a_member_with_a_parked_request_needs_no_heartbeat() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2, session_ms=10_000, rebalance_ms=300_000)
    waiter = table.join(leader, rebalance_ms=300_000)
    for _ in range(5):
        table.pass_time(9_000)
        table.heartbeat(follower)
    assert table.is_waiting(waiter)
    table.join(follower)
    assert table.joined(waiter).generation_id == 3


def test_a_new_member_that_is_left_waiting_is_asked_to_come_again() -> None:
    table = ClassicTable()
    (old,) = table.stable(rebalance_ms=1_800_000)
    new, waiter = table.new_member()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        assert table.is_waiting(waiter)
        table.pass_time(5_000)
        table.heartbeat(old)
    assert (table.code(waiter), table.answers[waiter].member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert new not in table.group.members


def test_members_that_do_not_join_again_in_time_are_removed_and_the_others_go_on() -> None:
    table = ClassicTable()
    leader, follower, third = table.stable(3, rebalance_ms=20_000)
    waiter = table.join(follower, protocols=(("range", b"other"),), rebalance_ms=20_000)
    for _ in range(4):
        assert table.is_waiting(waiter)
        table.pass_time(5_000)
        table.heartbeat(leader)
        table.heartbeat(third)
    answer = table.joined(waiter)
    assert answer.leader == follower
    assert [m.member_id for m in answer.members] == [follower]


def test_the_rebalance_timeout_is_the_longest_of_all_members() -> None:
    table = ClassicTable()
    (old,) = table.stable(rebalance_ms=30_000, session_ms=1_000_000)
    _, waiter = table.new_member(rebalance_ms=5_000)
    table.pass_time(29_999)
    assert table.is_waiting(waiter)
    table.pass_time(1)
    assert table.joined(waiter)
    assert old not in table.group.members


def test_a_leader_that_never_assigns_is_removed() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2, rebalance_ms=20_000)
    table.join(leader, rebalance_ms=20_000)
    table.join(follower, rebalance_ms=20_000)
    waiting = table.sync(follower)
    for _ in range(4):
        table.pass_time(5_000)
        table.heartbeat(leader, 3)
    assert table.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(table.group.members) == [follower]
    assert table.joined(table.join(follower)).leader == follower


def test_a_follower_that_never_fetches_its_assignment_is_removed() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2, rebalance_ms=20_000)
    table.join(leader, rebalance_ms=20_000)
    table.join(follower, rebalance_ms=20_000)
    table.sync(leader)
    assert table.state == "Stable"
    for _ in range(4):
        table.pass_time(5_000)
        table.heartbeat(leader, 3)
        table.heartbeat(follower, 3)
    assert list(table.group.members) == [leader]
    assert table.state == "PreparingRebalance"


def test_once_all_have_their_assignments_nothing_but_sessions_is_awaited() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2, rebalance_ms=5_000)
    for _ in range(10):
        table.pass_time(5_000)
        assert table.heartbeat(leader) == table.heartbeat(follower) == ErrorCode.NONE


def test_an_id_that_was_given_out_holds_the_join_phase_up_until_it_expires() -> None:
    table = ClassicTable()
    (old,) = table.stable()
    table.join(session_ms=3_000)
    _, waiter = table.new_member()
    table.join(old)
    assert table.is_waiting(waiter)
    table.pass_time(3_000)
    assert table.joined(waiter)


def test_timeouts_of_zero_and_less_end_at_once_and_not_for_ever() -> None:
    table = ClassicTable()
    (old,) = table.stable(rebalance_ms=-5)
    _, waiter = table.new_member(rebalance_ms=0)
    table.pass_time(1)
    assert table.joined(waiter)
    assert old not in table.group.members


class TestInitialRebalanceDelay:
    def test_without_one_the_first_member_goes_on_at_once(self) -> None:
        table = ClassicTable()
        _, waiter = table.new_member()
        assert table.joined(waiter).generation_id == 1

    def test_with_one_all_who_come_in_time_are_in_the_first_generation(self) -> None:
        table = ClassicTable(initial_rebalance_delay_ms=3_000)
        _, first = table.new_member()
        table.pass_time(2_900)
        _, second = table.new_member()
        table.pass_time(100)
        assert table.is_waiting(first)
        assert table.is_waiting(second)
        table.pass_time(3_000)
        assert len(table.joined(first).members) == 2
        assert table.joined(second).generation_id == 1

    def test_it_is_never_longer_than_the_rebalance_timeout(self) -> None:
        table = ClassicTable(initial_rebalance_delay_ms=3_000)
        _, first = table.new_member(rebalance_ms=7_000, session_ms=100_000)
        for _ in range(7):
            assert table.is_waiting(first)
            table.new_member(rebalance_ms=7_000, session_ms=100_000)
            table.pass_time(1_000)
        assert len(table.joined(first).members) == 8

    def test_members_that_come_to_a_known_group_do_not_wait_for_it(self) -> None:
        table = ClassicTable(initial_rebalance_delay_ms=3_000)
        old, _ = table.new_member()
        table.pass_time(3_000)
        table.settle()
        _, waiter = table.new_member()
        table.join(old)
        assert table.joined(waiter).generation_id == 2

    def test_a_group_that_everybody_left_before_its_end_is_empty_again(self) -> None:
        table = ClassicTable(initial_rebalance_delay_ms=3_000)
        member_id, waiter = table.new_member()
        table.leave(member_id)
        assert table.code(waiter) == ErrorCode.UNKNOWN_MEMBER_ID
        table.pass_time(3_000)
        assert (table.state, table.generation) == ("Empty", 1)

    def test_joining_again_in_the_meantime_is_no_reason_to_go_on(self) -> None:
        table = ClassicTable(initial_rebalance_delay_ms=3_000)
        member_id, _ = table.new_member()
        waiter = table.join(member_id)
        assert table.is_waiting(waiter)
        table.pass_time(6_000)
        assert table.joined(waiter)


class TestDisconnect:
    def test_as_in_kafka_a_member_keeps_its_session_when_its_connection_ends(self) -> None:
        table = ClassicTable()
        (member_id,) = table.stable(session_ms=10_000)
        table.pass_time(4_000)
        table.disconnect()
        table.pass_time(5_999)
        assert member_id in table.group.members
        table.pass_time(1)
        assert table.state == "Empty"

    def test_a_join_that_was_parked_on_it_does_not_count(self) -> None:
        table = ClassicTable()
        leader, follower = table.stable(2, session_ms=10_000)
        lost = table.join(leader, connection="ends")
        table.disconnect("ends")
        waiter = table.join(follower)
        assert table.is_waiting(waiter)
        again = table.join(leader, connection="next")
        assert table.joined(again).generation_id == table.joined(waiter).generation_id
        assert table.is_waiting(lost)

    def test_a_member_whose_parked_join_was_lost_has_its_session_timeout_to_come_again(self) -> None:
        table = ClassicTable()
        leader, follower = table.stable(2, session_ms=10_000)
        table.join(leader, connection="ends")
        table.heartbeat(follower)
        table.pass_time(8_000)
        table.heartbeat(follower)
        table.disconnect("ends")
        waiter = table.join(follower)
        table.pass_time(9_999)
        assert table.is_waiting(waiter)
        table.pass_time(1)
        assert [m.member_id for m in table.joined(waiter).members] == [follower]

    def test_a_sync_that_was_parked_on_it_must_be_sent_again(self) -> None:
        table = ClassicTable()
        leader, follower = table.stable(2, rebalance_ms=20_000)
        table.join(leader, rebalance_ms=20_000)
        table.join(follower, rebalance_ms=20_000)
        lost = table.sync(follower, connection="ends")
        table.disconnect("ends")
        table.sync(leader, assignments={follower: b"F"})
        assert table.is_waiting(lost)
        assert table.synced(table.sync(follower, connection="next")).assignment == b"F"

    def test_a_new_member_that_never_got_its_id_is_removed_at_once(self) -> None:
        table = ClassicTable()
        (old,) = table.stable()
        table.join(version=3, connection="ends")
        assert len(table.group.members) == 2
        table.disconnect("ends")
        assert list(table.group.members) == [old]
        assert table.joined(table.join(old)).generation_id == 2

    def test_a_new_member_that_knows_its_id_may_come_again(self) -> None:
        table = ClassicTable()
        (old,) = table.stable()
        new, _ = table.new_member(connection="ends", session_ms=10_000)
        table.disconnect("ends")
        table.pass_time(5_000)
        again = table.join(new, connection="next")
        table.join(old)
        assert table.joined(again)

    @pytest.mark.parametrize("evict_ms", [0, 500])
    def test_with_the_option_a_dynamic_member_is_removed_that_long_after(self, evict_ms: int) -> None:
        table = ClassicTable(evict_on_disconnect_ms=evict_ms)
        leader, follower = table.stable(2)
        table.heartbeat(follower, connection="ends")
        table.disconnect("ends")
        if evict_ms:
            table.pass_time(evict_ms - 1)
            assert follower in table.group.members
            table.pass_time(1)
        assert list(table.group.members) == [leader]

    @pytest.mark.parametrize("sign", ["heartbeat", "commit", "join"])
    def test_a_sign_of_life_by_another_connection_keeps_it(self, sign: str) -> None:
        table = ClassicTable(evict_on_disconnect_ms=500)
        member_id = table.stable(2)[1]
        table.heartbeat(member_id, connection="ends")
        table.disconnect("ends")
        if sign == "heartbeat":
            table.heartbeat(member_id, connection="next")
        elif sign == "join":
            table.join(member_id, connection="next")
        else:
            table.group.note_commit(member_id, table.now)
        table.disconnect("ends")
        table.pass_time(2_000)
        assert member_id in table.group.members

    def test_a_static_member_keeps_its_session_all_the_same(self) -> None:
        table = ClassicTable(evict_on_disconnect_ms=0)
        member_id = table.joined(table.join(instance="i", session_ms=10_000)).member_id
        table.settle()
        table.disconnect()
        table.pass_time(9_000)
        assert table.joined(table.join(instance="i", connection="next")).generation_id == 1
        assert member_id not in table.group.members

    def test_with_the_option_an_id_that_was_given_out_goes_with_its_connection(self) -> None:
        table = ClassicTable(evict_on_disconnect_ms=0)
        table.join(connection="ends")
        table.join(connection="stays")
        table.disconnect("ends")
        assert len(table.group.roster.pending_joins) == 1

    def test_all_members_of_one_connection_go_together(self) -> None:
        table = ClassicTable(evict_on_disconnect_ms=0)
        table.stable(5)
        table.disconnect()
        assert (table.state, table.group.members) == ("Empty", {})
        assert table.group.next_deadline_ms is None
