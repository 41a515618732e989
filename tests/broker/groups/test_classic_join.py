"""JoinGroup of the classic protocol: who gets in, with which code, and what the answers say."""

from __future__ import annotations

import pytest
from kit.classic_groups import ClassicTable

from ottla.broker.groups.classic_roster import MAX_PENDING_JOINS
from ottla.protocol.api.join_group import JoinGroupResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import decode, encode


@pytest.mark.parametrize("version", range(10))
def test_the_answer_of_every_version_survives_its_own_bytes(version: int) -> None:
    table = ClassicTable()
    instance = "i" if version >= 5 else None
    waiter = table.join(version=version, instance=instance)
    if version == 4:
        assert table.code(waiter) == ErrorCode.MEMBER_ID_REQUIRED
        waiter = table.join(table.answers[waiter].member_id, version=version)
    answer = table.joined(waiter)
    reported = decode(JoinGroupResponse, encode(answer, version), version)
    assert (reported.generation_id, reported.protocol_name, reported.leader, reported.member_id) == (
        1,
        "range",
        answer.leader,
        reported.leader,
    )
    assert reported.protocol_type == ("consumer" if version >= 7 else None)
    assert [(m.member_id, m.metadata) for m in reported.members] == [(reported.leader, b"m")]
    assert [m.group_instance_id for m in reported.members] == [instance]


@pytest.mark.parametrize("version", range(10))
def test_a_refusal_of_every_version_survives_its_own_bytes(version: int) -> None:
    table = ClassicTable()
    waiter = table.join(version=version, protocols=())
    reported = decode(JoinGroupResponse, encode(table.answers[waiter], version), version)
    assert reported.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert reported.protocol_name == (None if version >= 7 else "")
    assert (reported.generation_id, reported.leader, reported.members) == (-1, "", [])


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_dynamic_member_is_in_at_once(version: int) -> None:
    table = ClassicTable()
    answer = table.joined(table.join(version=version, client_id="old"))
    assert answer.member_id == "old-id1"
    assert table.state == "CompletingRebalance"


@pytest.mark.parametrize("version", [4, 5, 9])
def test_from_version_4_a_dynamic_member_gets_an_id_to_come_back_with(version: int) -> None:
    table = ClassicTable()
    first = table.answers[table.join(version=version, client_id="new")]
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "new-id1")
    assert table.state == "Empty"
    assert not table.group.members
    assert table.joined(table.join("new-id1", version=version)).generation_id == 1


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_member_never_has_to_come_back(version: int) -> None:
    table = ClassicTable()
    answer = table.joined(table.join(version=version, instance="i"))
    assert answer.member_id == "i-id1"
    assert answer.members[0].group_instance_id == "i"


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout_too() -> None:
    table = ClassicTable()
    member_id = table.joined(table.join(version=0, session_ms=7_000, rebalance_ms=-1)).member_id
    assert table.group.members[member_id].rebalance_timeout_ms == 7_000


def test_a_member_id_is_wanted_back_within_the_session_timeout() -> None:
    table = ClassicTable()
    member_id = table.answers[table.join(session_ms=10_000)].member_id
    table.pass_time(9_999)
    assert member_id in table.group.roster.pending_joins
    table.pass_time(1)
    assert member_id not in table.group.roster.pending_joins
    assert table.code(table.join(member_id)) == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_so_many_ids_are_remembered_and_the_oldest_is_forgotten() -> None:
    table = ClassicTable()
    ids = [table.answers[table.join()].member_id for _ in range(MAX_PENDING_JOINS + 1)]
    assert len(table.group.roster.pending_joins) == MAX_PENDING_JOINS
    assert table.code(table.join(ids[0])) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.joined(table.join(ids[1])).member_id == ids[1]


def test_a_group_that_does_not_exist_knows_no_member() -> None:
    table = ClassicTable()
    assert table.code(table.join("somebody")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.answers[1].member_id == "somebody"
    assert table.records == []
    assert not table.group.is_stored


def test_an_unknown_member_is_refused_and_changes_nothing() -> None:
    table = ClassicTable()
    table.stable(2)
    before = table.group.describe()
    assert table.code(table.join("somebody")) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.group.describe() == before


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", (("range", b""),)), ("consumer", ()), ("", ())], ids=["type", "none", "both"]
)
def test_a_first_member_without_protocol_or_type_is_refused(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    table = ClassicTable()
    waiter = table.join(protocol_type=protocol_type, protocols=protocols)
    assert table.code(waiter) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert not table.group.is_stored


@pytest.mark.parametrize(
    ("protocol_type", "protocol"), [("connect", "range"), ("consumer", "roundrobin")], ids=["type", "protocol"]
)
def test_a_member_that_has_no_protocol_in_common_is_refused(protocol_type: str, protocol: str) -> None:
    table = ClassicTable()
    table.stable()
    before = table.group.describe()
    waiter = table.join(protocol_type=protocol_type, protocols=((protocol, b""),))
    assert table.code(waiter) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert table.group.describe() == before


def test_an_empty_group_takes_another_protocol_type() -> None:
    table = ClassicTable()
    (member_id,) = table.stable()
    table.leave(member_id)
    table.new_member(protocol_type="connect", protocols=(("v1", b""),))
    assert table.group.protocol_type == "connect"
    assert table.generation == 3


def test_the_protocol_is_the_one_with_most_votes_among_those_that_all_know() -> None:
    table = ClassicTable()
    likes = {"a": ("only-a", "x", "y"), "b": ("y", "x"), "c": ("y", "x", "only-c")}
    ids = {}
    for name, protocols in likes.items():
        member_id, _ = table.new_member(protocols=[(p, name.encode()) for p in protocols])
        for other in ids.values():
            table.join(other, protocols=[(p, b"") for p in likes[other[0]]])
        ids[name] = member_id
    assert table.state == "CompletingRebalance"
    assert table.group.protocol_name == "y"


def test_equal_votes_are_decided_by_who_came_first() -> None:
    table = ClassicTable(initial_rebalance_delay_ms=100)
    for protocols in (("x", "y"), ("y", "x")):
        table.join(version=3, protocols=[(p, b"") for p in protocols])
    table.pass_time(200)
    assert table.group.protocol_name == "x"


def test_a_protocol_named_twice_counts_once() -> None:
    table = ClassicTable()
    _, waiter = table.new_member(protocols=[("range", b"1"), ("range", b"2")])
    assert table.joined(waiter).protocol_name == "range"
    _, second = table.new_member()
    assert table.is_waiting(second)


@pytest.mark.parametrize("protocols", [(("range", b"m"),), (("sticky", b""), ("range", b"other"))])
def test_only_the_leader_gets_the_members(protocols: tuple[tuple[str, bytes], ...]) -> None:
    table = ClassicTable()
    leader = table.stable()[0]
    follower, waiter = table.new_member(protocols=protocols)
    again = table.join(leader)
    assert {m.member_id: m.metadata for m in table.joined(again).members} == {
        leader: b"m",
        follower: dict(protocols)["range"],
    }
    assert table.joined(waiter).members == []
    assert table.joined(waiter).leader == table.joined(again).leader == leader


def test_a_new_member_makes_the_others_join_again() -> None:
    table = ClassicTable()
    (old,) = table.stable()
    new, waiter = table.new_member()
    assert table.state == "PreparingRebalance"
    assert table.is_waiting(waiter)
    assert table.heartbeat(old) == ErrorCode.REBALANCE_IN_PROGRESS
    table.join(old)
    assert table.joined(waiter).generation_id == 2
    assert set(table.group.members) == {old, new}


def test_a_follower_with_the_same_metadata_gets_the_present_generation() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    generation = table.generation
    answer = table.joined(table.join(follower))
    assert (answer.generation_id, answer.leader, answer.members) == (generation, leader, [])
    assert table.state == "Stable"
    assert table.synced(table.sync(follower)).assignment == follower.encode()


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    assert table.is_waiting(table.join(leader))
    assert table.state == "PreparingRebalance"
    table.join(follower)
    assert table.state == "CompletingRebalance"


def test_changed_metadata_makes_a_rebalance() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    table.join(follower, protocols=(("range", b"owns something now"),))
    again = table.join(leader)
    assert {m.member_id: m.metadata for m in table.joined(again).members}[follower] == b"owns something now"


def test_between_join_and_sync_a_repeated_join_gets_the_present_generation() -> None:
    table = ClassicTable()
    leader, waiter = table.new_member()
    assert table.joined(waiter).members == table.joined(table.join(leader)).members
    assert table.generation == 1


def test_between_join_and_sync_changed_metadata_makes_a_rebalance() -> None:
    table = ClassicTable()
    leader, _ = table.new_member()
    answer = table.joined(table.join(leader, protocols=(("range", b"other"),)))
    assert (answer.generation_id, answer.members[0].metadata) == (2, b"other")


def test_a_second_join_of_the_same_member_answers_the_first() -> None:
    table = ClassicTable()
    table.stable()
    new, first = table.new_member()
    second = table.join(new)
    assert table.code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert table.is_waiting(second)


@pytest.mark.parametrize("state", ["Stable", "CompletingRebalance"])
def test_a_full_group_takes_nobody_else(state: str) -> None:
    table = ClassicTable(max_size=2)
    members = table.stable(2)
    if state == "CompletingRebalance":
        for member_id in members:
            table.join(member_id, protocols=(("range", b"new"),))
    assert table.state == state
    waiter = table.join()
    assert table.code(waiter) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.answers[waiter].member_id == ""
    assert table.state == state


def test_a_full_group_lets_its_own_members_join_again() -> None:
    table = ClassicTable(max_size=2)
    leader, follower = table.stable(2)
    table.join(leader)
    assert table.joined(table.join(follower)).generation_id == table.generation


def test_a_group_that_is_too_large_now_turns_the_last_away() -> None:
    table = ClassicTable()
    members = table.stable(3)
    table.settings.max_size = 2
    waiters = [table.join(member_id) for member_id in members]
    assert table.code(waiters[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [table.joined(waiter).generation_id for waiter in waiters[:2]] == [4, 4]
    assert set(table.group.members) == set(members[:2])


def test_an_id_from_member_id_required_cannot_become_a_static_member() -> None:
    table = ClassicTable()
    member_id = table.answers[table.join()].member_id
    assert table.code(table.join(member_id, instance="i")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_very_long_client_id_gives_a_member_id_that_can_be_sent() -> None:
    table = ClassicTable()
    assert encode(table.answers[table.join(client_id="\N{SNOWMAN}" * 10_000)], 9)


def test_the_clients_reason_is_kept_for_people_and_cut() -> None:
    table = ClassicTable()
    table.new_member(reason="r" * 1_000)
    assert "client reason: 'rrr" in table.group.rebalance_reason
    assert len(table.group.rebalance_reason) < 400


def test_generations_start_again_after_the_largest() -> None:
    table = ClassicTable()
    leader = table.stable()[0]
    table.group.generation_id = (1 << 31) - 1
    assert table.joined(table.join(leader)).generation_id == 0
