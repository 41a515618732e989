"""The durable state of a streams group, from records in every order that a cleaned log can have."""

from __future__ import annotations

import itertools

import pytest
from kit.consumer_groups import GROUP, FakeTopics, through_the_wire
from kit.streams_machines import StreamsGroupUnderTest, StreamsMemberClient, settle

from ottla.broker.coordination.effects import CoordinatorRecord
from ottla.broker.groups.streams.member import MemberState, StreamsMember
from ottla.broker.groups.streams.records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_record,
)
from ottla.broker.groups.streams.state import FIRST_EPOCH, StreamsGroupState
from ottla.broker.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, TaskSets
from ottla.protocol.message import Struct
from ottla.protocol.stored.group import (
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
)

MEMBER = StreamsMember(
    "m",
    member_epoch=3,
    previous_member_epoch=2,
    state=MemberState.UNREVOKED_TASKS,
    instance_id="i",
    process_id="p",
    assigned=OwnedTasks({"0": {0: 2, 1: 3}}, {"1": frozenset([2])}, {"2": frozenset([3])}),
    pending_revocation=OwnedTasks({"0": {5: 1}}),
)


def state_of(records: list[CoordinatorRecord]) -> StreamsGroupState:
    state = StreamsGroupState(GROUP)
    for record in records:
        state.replay(*through_the_wire(record))
    return state


def test_a_member_is_the_same_after_its_records_in_either_order() -> None:
    for records in itertools.permutations([member_record(GROUP, MEMBER), current_assignment_record(GROUP, MEMBER)]):
        state = state_of(list(records))
        assert state.members == {"m": MEMBER}
        assert state.member_of_instance("i") == MEMBER
        assert state.active_process("0", 5) == "p", "it has still to give the task up"
        assert state.standby_processes("1", 2) == state.warmup_processes("2", 3) == {"p"}


def test_members_with_the_same_replica_on_one_process_are_counted() -> None:
    """Kafka keeps a set: there the first that goes takes the process with it."""
    one = MEMBER._replace(member_id="a", instance_id=None, assigned=OwnedTasks(standby={"1": frozenset([2])}))
    other = one._replace(member_id="b")
    records = [current_assignment_record(GROUP, each) for each in (one, other)]
    records[:0] = [member_record(GROUP, each) for each in (one, other)]
    assert state_of(records).standby_processes("1", 2) == {"p"}
    assert state_of([*records, *member_tombstones(GROUP, "a")]).standby_processes("1", 2) == {"p"}
    assert state_of([*records, *member_tombstones(GROUP, "a"), *member_tombstones(GROUP, "b")]).members == {}


def test_a_removed_assignment_takes_the_tasks_and_the_epoch() -> None:
    records = [member_record(GROUP, MEMBER), current_assignment_record(GROUP, MEMBER), member_tombstones(GROUP, "m")[0]]
    member = state_of(records).members["m"]
    assert (member.member_epoch, member.assigned, member.pending_revocation) == (-1, NOTHING_OWNED, NOTHING_OWNED)
    assert state_of(records).active_process("0", 0) is None


def test_a_static_id_is_that_of_the_member_that_came_last() -> None:
    new = MEMBER._replace(member_id="n")
    records = [member_record(GROUP, MEMBER), member_record(GROUP, new), *member_tombstones(GROUP, "m")]
    assert state_of(records).static_member_ids == {"i": "n"}


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    state = state_of(member_tombstones(GROUP, "m"))
    assert (state.members, state.target, state.group_epoch) == ({}, {}, FIRST_EPOCH)


def test_epochs_settings_and_the_time_of_an_assignment_are_kept() -> None:
    state = state_of(
        [
            epoch_record(GROUP, 7, -5, 2, {"num.standby.replicas": "1"}, (4, -1)),
            assignment_epoch_record(GROUP, 6, 1_234),
            target_record(GROUP, "m", TaskSets({"0": frozenset([1])})),
        ]
    )
    assert (state.group_epoch, state.metadata_hash, state.validated_topology_epoch) == (7, -5, 2)
    assert (state.assignment_epoch, state.assigned_at_ms) == (6, 1_234)
    assert state.assignment_settings == {"num.standby.replicas": "1"}
    assert state.described_topology_epochs == (4, -1), "a plugin of Kafka has this description: it is not forgotten"
    assert state.target_of("m") == TaskSets({"0": frozenset([1])})


def test_a_record_of_kafka_without_settings_is_read() -> None:
    value = StreamsGroupMetadataValue(epoch=3, metadata_hash=1, last_assignment_configs=None)
    assert state_of([(StreamsGroupMetadataKey(group_id=GROUP), value)]).assignment_settings == {}


@pytest.mark.parametrize("epochs", [None, [7]], ids=["none", "too few"])
def test_tasks_without_their_epochs_have_that_of_the_member(
    epochs: list[int] | None, caplog: pytest.LogCaptureFixture
) -> None:
    key, value = current_assignment_record(GROUP, MEMBER)
    assert isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
    value.active_tasks[0].assignment_epochs = epochs
    assert state_of([(key, value)]).members["m"].assigned.active == {"0": {0: 3, 1: 3}}
    assert ("epoch 3 is used" in caplog.text) == (epochs is not None)


def test_a_member_state_of_a_later_kafka_is_unknown() -> None:
    key, value = current_assignment_record(GROUP, MEMBER)
    assert isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
    value.state = 9
    assert state_of([(key, value)]).members["m"].state is MemberState.UNKNOWN


def test_a_log_that_was_cleaned_has_the_same_state() -> None:
    """Of each key the newest record is left, in the order of these."""
    group = StreamsGroupUnderTest(FakeTopics({"t": 4}))
    a, b = StreamsMemberClient(group, "a").join(), StreamsMemberClient(group, "b", instance_id="i").join()
    settle([a, b])
    a.leave()
    b.heartbeat()
    cleaned: dict[str, tuple[Struct, Struct | None]] = {}
    for key, value in group.records:
        cleaned.pop(repr(key), None)
        cleaned[repr(key)] = key, value
    left = state_of([(key, value) for key, value in cleaned.values() if value is not None])
    whole = group.group.durable
    for name in ("group_epoch", "assignment_epoch", "members", "target", "topology", "static_member_ids", "name"):
        assert getattr(left, name) == getattr(whole, name), name
