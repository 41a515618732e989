"""SyncGroup, Heartbeat and LeaveGroup of the classic protocol, code by code."""

from __future__ import annotations

import pytest
from kit.classic_groups import ClassicTable, subscription

from ottla.protocol.api.leave_group import LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import decode, encode


def completing(count: int = 2) -> tuple[ClassicTable, list[str]]:
    """A group whose members have the generation and not yet their assignments; the leader first."""
    table = ClassicTable()
    members = table.stable(count)
    for member_id in members[1:]:
        table.join(member_id, protocols=(("range", b"changed"),))
    table.join(members[0])
    assert table.state == "CompletingRebalance"
    return table, members


@pytest.mark.parametrize("version", range(6))
def test_each_member_gets_what_the_leader_gave_it(version: int) -> None:
    table, (leader, follower) = completing()
    waiting = table.sync(follower, version=version)
    assert table.is_waiting(waiting)
    own = table.sync(leader, assignments={leader: b"L", follower: b"F"}, version=version)
    assert (table.synced(own).assignment, table.synced(waiting).assignment) == (b"L", b"F")
    reported = decode(SyncGroupResponse, encode(table.answers[own], version), version)
    assert reported.assignment == b"L"
    assert (reported.protocol_type, reported.protocol_name) == (("consumer", "range") if version >= 5 else (None, None))
    assert table.state == "Stable"


def test_a_follower_that_comes_after_the_leader_is_answered_at_once() -> None:
    table, (leader, follower) = completing()
    table.sync(leader, assignments={follower: b"F"})
    assert table.synced(table.sync(follower)).assignment == b"F"


def test_a_member_that_the_leader_left_out_gets_nothing() -> None:
    table, (leader, follower) = completing()
    own = table.sync(leader, assignments={"somebody else": b"X"})
    assert table.synced(own).assignment == b""
    assert table.synced(table.sync(follower)).assignment == b""
    assert set(table.group.members) == {leader, follower}


def test_what_a_follower_says_about_assignments_counts_for_nothing() -> None:
    table, (leader, follower) = completing()
    waiting = table.sync(follower, assignments={follower: b"everything"})
    table.sync(leader, assignments={follower: b"F"})
    assert table.synced(waiting).assignment == b"F"


def test_a_group_without_members_knows_nobody() -> None:
    table = ClassicTable()
    assert table.code(table.sync("a", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.heartbeat("a", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.leave("a").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (member_id,) = table.stable()
    table.leave(member_id)
    assert table.state == "Empty"
    assert table.code(table.sync(member_id, instance="i")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("delta", [-1, 1])
def test_another_generation_is_refused_and_changes_nothing(delta: int) -> None:
    table, (leader, _) = completing()
    generation = table.generation + delta
    assert table.code(table.sync(leader, generation, {leader: b"L"})) == ErrorCode.ILLEGAL_GENERATION
    assert table.heartbeat(leader, generation) == ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError, match="ILLEGAL_GENERATION"):
        table.group.check_commit(leader, None, generation, api_version=9)
    assert table.state == "CompletingRebalance"


@pytest.mark.parametrize(("kind", "name"), [("connect", "range"), ("consumer", "sticky")], ids=["type", "protocol"])
def test_another_protocol_is_refused(kind: str, name: str) -> None:
    table, (leader, _) = completing()
    waiter = table.sync(leader, protocol_type=kind, protocol_name=name)
    assert table.code(waiter) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert table.is_waiting(table.sync(list(table.group.members)[1], protocol_type="consumer", protocol_name="range"))


def test_during_a_rebalance_sync_and_heartbeat_ask_to_join_again() -> None:
    table = ClassicTable()
    (old,) = table.stable()
    table.new_member()
    assert table.code(table.sync(old)) == ErrorCode.REBALANCE_IN_PROGRESS
    assert table.heartbeat(old) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_rebalance_takes_parked_syncs_back() -> None:
    table, (leader, follower) = completing()
    waiting = table.sync(follower)
    table.new_member()
    assert table.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert table.group.members[leader].assignment == b""


def test_a_second_sync_of_the_same_member_answers_the_first() -> None:
    table, (leader, follower) = completing()
    first = table.sync(follower)
    second = table.sync(follower)
    assert table.code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    table.sync(leader, assignments={follower: b"F"})
    assert table.synced(second).assignment == b"F"


def test_heartbeats_are_good_while_assignments_are_awaited() -> None:
    table, members = completing()
    assert [table.heartbeat(member_id) for member_id in members] == [ErrorCode.NONE] * 2


def test_an_id_that_was_only_given_out_may_not_heartbeat() -> None:
    table = ClassicTable()
    member_id = table.answers[table.join()].member_id
    assert table.heartbeat(member_id) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves(version: int) -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    answer = decode(LeaveGroupResponse, encode(table.leave(follower, version=version), version), version)
    assert answer.error_code == ErrorCode.NONE
    assert [(m.member_id, m.error_code) for m in answer.members] == ([(follower, 0)] if version >= 3 else [])
    assert list(table.group.members) == [leader]
    assert table.state == "PreparingRebalance"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_the_code_of_the_one_member_stands_at_the_top(version: int) -> None:
    table = ClassicTable()
    table.stable()
    assert table.leave("somebody", version=version).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_several_members_leave_at_once_each_with_its_own_code() -> None:
    table = ClassicTable()
    dynamic = table.stable()[0]
    static = table.join(instance="i")
    table.join(dynamic)
    table.settle()
    pending = table.answers[table.join()].member_id
    answer = table.leave(dynamic, "somebody", ("", "i"), ("", "unknown"), ("", None), pending)
    assert [m.error_code for m in answer.members] == [0, 25, 0, 25, 25, 0]
    assert [(m.member_id, m.group_instance_id) for m in answer.members][2] == ("", "i")
    assert table.joined(static)
    assert table.state == "Empty"
    assert not table.group.roster.pending_joins


def test_the_last_member_leaves_an_empty_group_of_the_next_generation() -> None:
    table = ClassicTable()
    (member_id,) = table.stable()
    table.leave(member_id)
    assert (table.state, table.generation, table.group.roster.leader) == ("Empty", 2, None)
    value = table.records[-1][1]
    assert value is not None
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, [])
    assert value.protocol_type == "consumer"


def test_a_leader_that_leaves_is_followed_by_another() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    table.leave(leader)
    assert table.joined(table.join(follower)).leader == follower


def test_who_leaves_in_the_join_phase_does_not_hold_it_up() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    waiter = table.join(leader)
    table.leave(follower)
    assert [m.member_id for m in table.joined(waiter).members] == [leader]


def test_what_a_member_that_is_taken_out_has_parked_is_answered() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    parked = table.join(leader)
    table.leave(leader)
    assert (table.code(parked), table.answers[parked].member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")

    table, (leader, follower) = completing()
    parked = table.sync(follower)
    table.leave(follower)
    assert table.code(parked) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_that_is_unloaded_sends_everybody_away() -> None:
    table, (leader, follower) = completing()
    syncing = table.sync(follower)
    table.take(table.group.on_unload())
    assert table.code(syncing) == ErrorCode.NOT_COORDINATOR
    assert table.group.next_deadline_ms is None

    table = ClassicTable()
    table.stable()
    _, joining = table.new_member()
    table.take(table.group.on_unload())
    assert table.code(joining) == ErrorCode.NOT_COORDINATOR
    assert table.code(table.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.code(table.sync(leader)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.heartbeat(leader) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert table.leave(leader).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    for check in (lambda: table.group.check_fetch_offsets(None, -1), table.group.check_delete):
        with pytest.raises(KafkaError, match="GROUP_ID_NOT_FOUND"):
            check()


NOBODY = ("", None, -1)


@pytest.mark.parametrize(
    ("state", "who", "code"),
    [
        ("Empty", NOBODY, None),
        ("Empty", ("x", None, 3), "UNKNOWN_MEMBER_ID"),
        ("Stable", NOBODY, "UNKNOWN_MEMBER_ID"),
        ("Stable", ("leader", None, 1), None),
        ("Stable", ("leader", None, -1), "ILLEGAL_GENERATION"),
        ("Stable", ("leader", None, 2), "ILLEGAL_GENERATION"),
        ("Stable", ("leader", "i", 1), "UNKNOWN_MEMBER_ID"),
        ("Stable", ("x", None, 1), "UNKNOWN_MEMBER_ID"),
        ("PreparingRebalance", ("leader", None, 1), None),
        ("CompletingRebalance", ("leader", None, 1), "REBALANCE_IN_PROGRESS"),
    ],
)
def test_who_may_commit(state: str, who: tuple[str, str | None, int], code: str | None) -> None:
    table = ClassicTable()
    if state != "Empty":
        leader, _ = table.new_member()
        who = (leader if who[0] == "leader" else who[0], *who[1:])
        if state != "CompletingRebalance":
            table.settle()
        if state == "PreparingRebalance":
            table.new_member()
    assert table.state == state
    if code is None:
        table.group.check_commit(*who, api_version=9)
    else:
        with pytest.raises(KafkaError, match=code):
            table.group.check_commit(*who, api_version=9)


def test_a_fenced_member_may_not_commit_and_an_old_transaction_may() -> None:
    table = ClassicTable()
    first = table.joined(table.join(instance="i")).member_id
    table.settle()
    table.join(instance="i")
    with pytest.raises(KafkaError, match="FENCED_INSTANCE_ID"):
        table.group.check_commit(first, "i", 1, api_version=9)
    table.group.check_commit("", None, -1, api_version=2, is_transactional=True)


def test_only_an_empty_group_may_be_deleted() -> None:
    table = ClassicTable()
    table.group.check_delete()
    (member_id,) = table.stable()
    with pytest.raises(KafkaError, match="NON_EMPTY_GROUP"):
        table.group.check_delete()
    table.leave(member_id)
    table.group.check_delete()


def test_a_consumer_group_uses_the_topics_that_its_members_name() -> None:
    table = ClassicTable()
    assert not table.group.is_subscribed_to("t")
    (member_id,) = table.stable(protocols=(("range", subscription("t", "u")),))
    assert [table.group.is_subscribed_to(topic) for topic in ("t", "u", "v")] == [True, True, False]
    table.leave(member_id)
    assert not table.group.is_subscribed_to("t")


@pytest.mark.parametrize("version", [0, 1, 3, 99])
def test_subscriptions_of_every_version_are_read_by_their_beginning(version: int) -> None:
    table = ClassicTable()
    blob = version.to_bytes(2, "big") + subscription("t", version=0)[2:] + b"more"
    table.stable(protocols=(("range", blob),))
    assert table.group.subscribed_topics == {"t"}


@pytest.mark.parametrize(
    "blob", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00"]
)
def test_a_group_with_a_malformed_subscription_may_use_every_topic(blob: bytes) -> None:
    table = ClassicTable()
    table.stable(protocols=(("range", blob),))
    assert table.state == "Stable"
    assert table.group.subscribed_topics is None
    assert table.group.is_subscribed_to("anything")


def test_a_group_of_another_kind_uses_no_topics() -> None:
    table = ClassicTable()
    table.stable(protocol_type="connect", protocols=(("v1", subscription("t")),))
    assert not table.group.is_subscribed_to("t")


def test_an_assignment_that_the_log_cannot_take_is_refused_and_the_group_goes_on() -> None:
    table, (leader, follower) = completing()
    records = len(table.records)
    table.settings.record_max_bytes = 10_000
    waiting = table.sync(follower)
    own = table.sync(leader, assignments={follower: bytes(20_000)})
    assert table.code(own) == table.code(waiting) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (table.state, len(table.records)) == ("PreparingRebalance", records)
    assert table.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    for member_id in (leader, follower):
        table.join(member_id)
    table.settle()


def test_a_new_run_that_the_log_cannot_take_leaves_the_old_one_in_place() -> None:
    table = ClassicTable()
    member_id = table.joined(table.join(instance="i")).member_id
    table.settle()
    table.settings.record_max_bytes = 10_000
    before = table.group.describe()
    waiter = table.join(instance="i", protocols=(("range", bytes(20_000)),))
    assert (table.code(waiter), table.answers[waiter].member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
    assert table.group.describe() == before
    assert table.heartbeat(member_id, instance="i") == ErrorCode.NONE
