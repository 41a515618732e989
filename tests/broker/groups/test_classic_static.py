"""Static members (KIP-345): replaced without a rebalance where that is safe, fenced where two claim one instance."""

from __future__ import annotations

import pytest
from kit.classic_groups import ClassicTable

from ottla.protocol.errors import ErrorCode


def static(table: ClassicTable, *instances: str, version: int = 9) -> dict[str, str]:
    """A stable group of static members; their member ids by instance."""
    ids: dict[str, str] = {}
    for instance in instances:
        waiter = table.join(instance=instance, version=version)
        for other, member_id in ids.items():
            table.join(member_id, instance=other, version=version)
        ids[instance] = table.joined(waiter).member_id
    table.settle()
    return ids


def test_a_stable_group_stays_when_a_follower_is_replaced() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    generation, records = table.generation, len(table.records)
    answer = table.joined(table.join(instance="b", connection="new", client_id="second run"))
    assert (answer.generation_id, answer.leader, answer.skip_assignment) == (generation, ids["a"], False)
    assert answer.members == []
    assert table.state == "Stable"
    assert len(table.records) == records + 1
    assert table.synced(table.sync(answer.member_id, instance="b")).assignment == ids["b"].encode()
    assert table.group.members[answer.member_id].client_id == "second run"
    assert ids["b"] not in table.group.members


def test_from_version_9_a_leader_that_returns_leads_and_skips_the_assignment() -> None:
    table = ClassicTable()
    static(table, "a", "b")
    answer = table.joined(table.join(instance="a"))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id == table.group.roster.leader
    assert {m.group_instance_id for m in answer.members} == {"a", "b"}


@pytest.mark.parametrize("version", [5, 7, 8])
def test_before_version_9_a_leader_that_returns_is_answered_that_its_old_id_leads(version: int) -> None:
    table = ClassicTable()
    ids = static(table, "a", "b", version=version)
    answer = table.joined(table.join(instance="a", version=version))
    assert (answer.leader, answer.members, answer.skip_assignment) == (ids["a"], [], False)
    assert table.group.roster.leader == answer.member_id


def test_the_record_of_a_replacement_survives_a_restart() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    new_id = table.joined(table.join(instance="b")).member_id
    fresh = table.reload()
    assert set(fresh.members) == {ids["a"], new_id}
    assert fresh.roster.static_ids == {"a": ids["a"], "b": new_id}
    assert fresh.members[new_id].assignment == ids["b"].encode()
    assert fresh.describe() == table.group.describe()


def test_the_old_run_of_a_static_member_is_fenced() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    table.join(instance="b")
    old = ids["b"]
    assert table.heartbeat(old, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert table.code(table.sync(old, instance="b")) == ErrorCode.FENCED_INSTANCE_ID
    assert table.code(table.join(old, instance="b")) == ErrorCode.FENCED_INSTANCE_ID
    assert table.leave((old, "b")).members[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert table.heartbeat(old) == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.state == "Stable"


def test_a_parked_join_of_the_old_run_is_fenced() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    parked = table.join(ids["b"], instance="b", protocols=(("range", b"other"),))
    second = table.join(instance="b")
    assert table.code(parked) == ErrorCode.FENCED_INSTANCE_ID
    assert table.answers[parked].member_id == ids["b"]
    assert table.is_waiting(second)
    table.join(ids["a"], instance="a")
    assert table.joined(second).generation_id == 3


def test_a_replacement_between_join_and_sync_makes_a_rebalance() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    table.join(ids["a"], instance="a")
    table.join(ids["b"], instance="b")
    assert table.state == "CompletingRebalance"
    parked = table.sync(ids["b"], instance="b")
    second = table.join(instance="b")
    assert table.code(parked) == ErrorCode.FENCED_INSTANCE_ID
    assert table.state == "PreparingRebalance"
    assert table.code(table.sync(ids["a"], instance="a")) == ErrorCode.REBALANCE_IN_PROGRESS
    table.join(ids["a"], instance="a")
    assert table.joined(second).leader == ids["a"]


def test_a_replacement_that_changes_the_protocol_makes_a_rebalance() -> None:
    table = ClassicTable()
    both = (("range", b""), ("sticky", b""))
    a = table.joined(table.join(instance="a", protocols=both)).member_id
    waiter = table.join(instance="b", protocols=both)
    table.join(a, instance="a", protocols=both)
    table.joined(waiter)
    table.settle()
    assert table.group.protocol_name == "range"
    second = table.join(instance="b", protocols=(("sticky", b""),))
    assert table.is_waiting(second)
    assert table.state == "PreparingRebalance"
    table.join(a, instance="a", protocols=both)
    assert table.joined(second).protocol_name == "sticky"


def test_an_instance_that_nobody_is_is_unknown() -> None:
    table = ClassicTable()
    ids = static(table, "a")
    assert table.heartbeat(ids["a"], instance="z") == ErrorCode.UNKNOWN_MEMBER_ID
    assert table.code(table.join(ids["a"], instance="z")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_join_again_keeps_its_place_for_one_generation() -> None:
    table = ClassicTable()
    ids = static(table, "a", "b")
    waiter = table.join(ids["a"], instance="a", session_ms=600_000)
    table.group.members[ids["b"]].session_timeout_ms = 600_000
    table.heartbeat(ids["b"], instance="b")
    table.pass_time(60_000)
    assert {m.group_instance_id for m in table.joined(waiter).members} == {"a", "b"}
    table.sync(ids["a"], assignments={})
    table.pass_time(60_000)
    assert ids["b"] not in table.group.members, "it has not fetched its assignment"


def test_while_only_static_members_are_left_and_none_joins_the_group_waits_for_their_sessions() -> None:
    table = ClassicTable()
    ids = static(table, "a")
    dynamic, _ = table.new_member()
    table.join(ids["a"], instance="a")
    table.settle()
    table.heartbeat(ids["a"], instance="a")
    table.leave(dynamic)
    table.group.members[ids["a"]].session_timeout_ms = 200_000
    table.heartbeat(ids["a"], instance="a")
    table.pass_time(150_000)
    assert table.state == "PreparingRebalance"
    table.pass_time(50_000)
    assert (table.state, table.group.members) == ("Empty", {})


def test_a_full_group_takes_no_replacement_while_it_is_stable() -> None:
    table = ClassicTable(max_size=1)
    ids = static(table, "a")
    assert table.code(table.join(instance="a")) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert table.heartbeat(ids["a"], instance="a") == ErrorCode.NONE
