"""The record of a classic group: when it is written, what it says, and what comes back of it."""

from __future__ import annotations

import pytest
from kit.classic_groups import WALL_START_MS, ClassicTable, subscription

from ottla.broker.groups.classic import NEVER_IDLE_MS, ClassicGroup
from ottla.broker.groups.settings import GroupSettings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.group import GroupMetadataKey, GroupMetadataValue


def member(member_id: str, **values: object) -> GroupMetadataValue.MemberMetadata:
    fields: dict[str, object] = {
        "member_id": member_id,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 60_000,
        "session_timeout": 10_000,
        "subscription": subscription("t"),
        "assignment": b"A",
    }
    return GroupMetadataValue.MemberMetadata(**(fields | values))  # type: ignore[arg-type]  # names and values above


def value(*members: GroupMetadataValue.MemberMetadata, **values: object) -> GroupMetadataValue:
    fields: dict[str, object] = {
        "protocol_type": "consumer",
        "generation": 7,
        "protocol": "range" if members else None,
        "leader": members[0].member_id if members else None,
        "current_state_timestamp": 123,
        "members": list(members),
    }
    return GroupMetadataValue(**(fields | values))  # type: ignore[arg-type]  # names and values above


def loaded(*values: GroupMetadataValue | None, **settings: int) -> ClassicTable:
    table = ClassicTable(**settings)
    for each in values:
        table.group.replay(GroupMetadataKey(group="g"), each)
    table.take(table.group.on_load(table.now))
    return table


def test_a_group_begins_with_a_record_of_an_empty_group() -> None:
    table = ClassicTable()
    table.join()
    assert table.records == [
        (
            GroupMetadataKey(group="g"),
            GroupMetadataValue(
                protocol_type="",
                generation=0,
                protocol=None,
                leader=None,
                current_state_timestamp=WALL_START_MS + 1_000,
                members=[],
            ),
        )
    ]
    assert table.group.is_stored


def test_the_join_phase_writes_nothing() -> None:
    table = ClassicTable()
    table.new_member()
    assert len(table.records) == 1


def test_the_leaders_assignment_is_written_with_everything_about_the_members() -> None:
    table = ClassicTable()
    table.now_ms = 5_000
    waiter = table.join(
        instance="i", protocols=(("range", b"r"), ("sticky", b"s")), session_ms=11_000, rebalance_ms=22_000
    )
    leader = table.joined(waiter).member_id
    table.now_ms = 6_000
    table.sync(leader, assignments={leader: b"all of it"})
    assert table.records[-1] == (
        GroupMetadataKey(group="g"),
        GroupMetadataValue(
            protocol_type="consumer",
            generation=1,
            protocol="range",
            leader=leader,
            current_state_timestamp=WALL_START_MS + 5_000,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=leader,
                    group_instance_id="i",
                    client_id="client",
                    client_host="/127.0.0.1",
                    rebalance_timeout=22_000,
                    session_timeout=11_000,
                    subscription=b"r",
                    assignment=b"all of it",
                )
            ],
        ),
    )


def test_a_stable_group_comes_back_with_members_that_may_go_on() -> None:
    table = ClassicTable()
    leader, follower = table.stable(2)
    fresh = ClassicTable()
    for key, each in table.records:
        fresh.group.replay(key, each)
    fresh.take(fresh.group.on_load(fresh.now))
    assert fresh.group.describe() == table.group.describe()
    assert fresh.records == []
    assert fresh.heartbeat(leader) == fresh.heartbeat(follower) == ErrorCode.NONE
    fresh.group.check_commit(follower, None, fresh.generation, api_version=9)
    assert fresh.synced(fresh.sync(follower)).assignment == follower.encode()
    assert fresh.joined(fresh.join(follower)).generation_id == table.generation


def test_after_a_load_sessions_begin_again() -> None:
    table = loaded(value(member("a"), member("b", session_timeout=5_000)))
    table.pass_time(5_000)
    assert list(table.group.members) == ["a"]
    table.pass_time(5_000)
    assert table.state == "Empty"
    assert table.generation == 8


def test_a_restart_in_the_middle_of_a_rebalance_falls_back_to_the_generation_before() -> None:
    table = ClassicTable()
    (old,) = table.stable()
    table.new_member()
    table.join(old)
    assert table.generation == 2
    fresh = table.reload()
    assert (fresh.state, fresh.generation_id, list(fresh.members)) == ("Stable", 1, [old])


def test_the_newest_record_counts() -> None:
    table = loaded(
        value(member("a"), member("b"), generation=7),
        value(
            member("b", subscription=subscription("u"), assignment=b"B"), member("c"), generation=8, protocol="sticky"
        ),
    )
    assert (table.generation, list(table.group.members), table.group.roster.leader) == (8, ["b", "c"], "b")
    assert table.group.members["b"].protocols == (("sticky", subscription("u")),)
    assert table.group.members["b"].assignment == b"B"
    assert table.group.subscribed_topics == {"t", "u"}
    assert table.group.roster.supports(table.group.members["b"].protocols)


def test_the_leader_is_the_one_that_the_record_names() -> None:
    table = loaded(value(member("a"), member("b"), leader="b"))
    waiters = [table.join("b"), table.join("a")]
    assert [table.joined(waiter).leader for waiter in waiters] == ["b", "b"]


def test_a_tombstone_ends_it() -> None:
    table = loaded(value(member("a")), None)
    assert (table.state, table.group.members, table.group.is_stored) == ("Dead", {}, False)
    assert table.group.tombstones() == [(GroupMetadataKey(group="g"), None)]


def test_a_record_without_rebalance_timeout_uses_the_session_timeout() -> None:
    table = loaded(value(member("a", rebalance_timeout=-1)))
    assert table.group.members["a"].rebalance_timeout_ms == 10_000


def test_a_record_whose_leader_is_nobody_still_rebalances() -> None:
    table = loaded(value(member("a"), member("b"), leader="gone"))
    table.join("a", protocols=(("range", b"x"),))
    waiter = table.join("b")
    assert table.joined(waiter).leader == "a"


def test_a_loaded_group_that_is_too_large_now_rebalances_and_loses_the_last() -> None:
    table = loaded(value(member("a"), member("b"), member("c")), max_size=2)
    assert table.state == "PreparingRebalance"
    waiters = [table.join(each, protocols=(("range", b"m"),)) for each in ("c", "a", "b")]
    assert table.code(waiters[2]) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.joined(waiters[0])
    assert list(table.group.members) == ["a", "c"]


@pytest.mark.parametrize(
    ("members", "values", "expected"),
    [
        ([], {"protocol_type": ""}, None),
        ([], {}, 123),
        ([], {"current_state_timestamp": -1}, None),
        ([member("a")], {}, None),
        ([member("a", subscription=b"?")], {}, NEVER_IDLE_MS),
        ([member("a")], {"protocol_type": "connect"}, NEVER_IDLE_MS),
    ],
    ids=["offsets-only", "empty", "empty-old-record", "consumers", "unreadable", "connect"],
)
def test_since_when_offsets_are_unused(
    members: list[GroupMetadataValue.MemberMetadata], values: dict[str, object], expected: int | None
) -> None:
    assert loaded(value(*members, **values)).group.offsets_idle_since_ms() == expected


def test_during_a_rebalance_no_offset_is_unused() -> None:
    table = loaded(value(member("a")))
    table.new_member()
    assert table.group.offsets_idle_since_ms() == NEVER_IDLE_MS


def test_a_group_is_described_as_kafka_does() -> None:
    table = ClassicTable()
    empty = table.group.describe()
    assert (empty.group_state, empty.protocol_type, empty.protocol_data, empty.members) == ("Empty", "", "", [])
    (member_id,) = table.stable()
    stable = table.group.describe()
    assert (stable.group_state, stable.protocol_type, stable.protocol_data) == ("Stable", "consumer", "range")
    assert (stable.members[0].member_metadata, stable.members[0].member_assignment) == (b"m", member_id.encode())
    table.new_member()
    preparing = table.group.describe()
    assert (preparing.group_state, preparing.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata for m in preparing.members] == [b"", b""]
    assert preparing.members[0].member_assignment == member_id.encode()


def test_a_group_that_nobody_has_joined_is_not_stored() -> None:
    group = ClassicGroup("g", GroupSettings())
    assert not group.is_stored
    assert group.is_empty
    assert group.protocol_type == ""
