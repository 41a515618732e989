"""A streams group with a manual clock: members that join, stay, leave and fall silent, and their epochs."""

from __future__ import annotations

from typing import Any

import pytest
from kit.consumer_groups import FakeTopics
from kit.streams_machines import (
    REBALANCE_TIMEOUT_MS,
    StreamsGroupUnderTest,
    StreamsMemberClient,
    heartbeat,
    ids,
    joining,
    settle,
    subtopology,
    topology,
)

from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupStatus
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.group import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTopologyKey,
)

SESSION_MS = 45_000
ALL = {("0", partition) for partition in range(4)}


@pytest.fixture
def topics() -> FakeTopics:
    return FakeTopics({"t": 4})


@pytest.fixture
def group(topics: FakeTopics) -> StreamsGroupUnderTest:
    return StreamsGroupUnderTest(topics)


def member(group: StreamsGroupUnderTest, member_id: str, **fields: Any) -> StreamsMemberClient:
    return StreamsMemberClient(group, member_id, **fields).join()


def with_settings(topics: FakeTopics, **fields: Any) -> StreamsGroupUnderTest:
    return StreamsGroupUnderTest(topics, streams=StreamsSettings(**{"assignment_interval_ms": 0, **fields}))


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"member_id": " "}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"active_tasks": None}, "ActiveTasks must be empty when (re-)joining."),
        ({"standby_tasks": ids({"0": [0]})}, "StandbyTasks must be empty when (re-)joining."),
        ({"warmup_tasks": None}, "WarmupTasks must be empty when (re-)joining."),
        ({"topology": None}, "Topology must be non-null when (re-)joining."),
        ({"member_epoch": -3}, "MemberEpoch is -3, but must be greater than or equal to -2."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": 1}, "Topology can only be provided when (re-)joining."),
        (
            {"member_epoch": 1, "topology": None, "active_tasks": None},
            "If one task-type is non-null, all must be non-null.",
        ),
        (
            {"client_tags": [StreamsGroupHeartbeatRequest.KeyValue(key="a", value=value) for value in "xy"]},
            "ClientTags must not have the same key twice.",
        ),
    ],
)
def test_a_heartbeat_that_cannot_be_is_refused(
    group: StreamsGroupUnderTest, fields: dict[str, Any], words: str
) -> None:
    refused = group.refused(joining("a").replace(**fields))
    assert (refused.code, refused.message) == (ErrorCode.INVALID_REQUEST, words)


def test_a_topology_with_a_fixed_changelog_is_refused(group: StreamsGroupUnderTest) -> None:
    odd = topology(subtopology("0", ["t"], changelogs=["log"]))
    odd.subtopologies[0].state_changelog_topics[0].partitions = 2
    assert group.refusal(joining("a", topology=odd)) is ErrorCode.STREAMS_INVALID_TOPOLOGY


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_member_is_assigned_all_tasks_as_it_joins(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    assert (a.epoch, a.active, a.statuses, group.state) == (2, ALL, [], "Stable")


def test_what_is_written_as_the_first_member_joins_is_in_kafkas_order(group: StreamsGroupUnderTest) -> None:
    member(group, "a")
    assert [type(key) for key, _ in group.records] == [
        StreamsGroupMemberMetadataKey,
        StreamsGroupTopologyKey,
        StreamsGroupMetadataKey,
        StreamsGroupTargetAssignmentMemberKey,
        StreamsGroupTargetAssignmentMetadataKey,
        StreamsGroupCurrentMemberAssignmentKey,
    ]


def test_a_heartbeat_without_news_writes_nothing_and_has_no_tasks(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    before = len(group.records)
    answer = group.ask(heartbeat("a", a.epoch))
    assert (answer.active_tasks, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 2, 5_000)
    assert (answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (60_000, 10_000)
    assert len(group.records) == before


def test_a_task_moves_only_after_its_member_has_given_it_up(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    b = member(group, "b")
    assert (b.active, group.state) == (set(), "Reconciling")
    a.is_slow = True
    a.heartbeat()
    assert (b.heartbeat().active, a.epoch) == (set(), 2)
    a.is_slow = False
    a.heartbeat(active_tasks=None, standby_tasks=None, warmup_tasks=None)
    a.epoch, a.tasks = 2, group.group.durable.members["a"].assigned.without_epochs()
    a.heartbeat()
    assert (a.epoch, len(a.active), len(b.heartbeat().active)) == (3, 2, 2)
    assert a.active | b.active == ALL
    assert group.state == "Stable"


def test_a_member_that_leaves_gives_its_tasks_to_the_others(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    settle([a, b])
    answer = a.leave()
    assert (answer.member_epoch, answer.status, answer.active_tasks) == (-1, [], None)
    assert b.heartbeat().active == ALL
    assert group.refusal(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refusal(heartbeat("a", -1)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_an_empty_group_that_keeps_its_topology_and_epochs(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    a.leave()
    assert (group.group.is_empty, group.state, group.group.next_deadline_ms) == (True, "Empty", None)
    assert group.group.durable.assigned_at_ms == 0
    assert group.group.durable.assignment_epoch == group.group.durable.group_epoch == 3
    assert a.join().epoch == 4
    assert sum(isinstance(key, StreamsGroupTopologyKey) for key, _ in group.records) == 1


def test_no_more_members_join_than_a_group_may_have(topics: FakeTopics) -> None:
    group = with_settings(topics, max_size=2)
    a = member(group, "a")
    member(group, "b", instance_id="i")
    assert group.refusal(joining("c")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    a.join()
    group.ask(heartbeat("b", -2, instance_id="i"))
    assert member(group, "c", instance_id="i").epoch > 0, "it replaces a static member"
    assert group.refusal(joining("d", instance_id="j")) is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_records_that_the_log_would_not_take_are_refused(topics: FakeTopics) -> None:
    group = StreamsGroupUnderTest(topics, record_max_bytes=600)
    assert group.refusal(joining("a", process_id="p" * 400)) is ErrorCode.UNKNOWN_SERVER_ERROR
    long = topology(subtopology("0", ["t", *(f"source-{number:03}" for number in range(60))]))
    assert group.refusal(joining("a", topology=long)) is ErrorCode.UNKNOWN_SERVER_ERROR
    topics.grow("t", 40)
    assert group.refusal(joining("a")) is ErrorCode.UNKNOWN_SERVER_ERROR
    topics.create("small", 4)
    assert group.ask(joining("a", topology=topology(subtopology("0", ["small"])))).member_epoch == 2


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_a_member_whose_answer_was_lost_comes_with_its_previous_epoch(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    a.heartbeat()
    lost = group.ask(a.request())
    assert (lost.member_epoch, a.epoch) == (3, 2)
    assert a.heartbeat().epoch == 3
    assert b.heartbeat().active | a.active == ALL


def test_tasks_whose_answer_was_lost_are_given_again(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    a.heartbeat()
    a.heartbeat()
    lost = group.ask(b.request())
    assert lost.active_tasks
    assert b.active == set()
    assert b.heartbeat(active_tasks=None, standby_tasks=None, warmup_tasks=None).active == set(), "it reports nothing"
    assert a.active | b.heartbeat().active == ALL
    assert group.ask(b.request()).active_tasks is None, "it has what it should have"


def test_tasks_to_give_up_whose_answer_was_lost_are_taken_again(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    member(group, "b")
    lost = group.ask(a.request())
    assert lost.active_tasks is not None
    assert a.active == ALL
    assert len(a.heartbeat().active) == 2
    assert a.heartbeat().epoch == 3


def test_a_previous_epoch_with_tasks_that_are_not_the_members_is_fenced(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    member(group, "b")
    a.heartbeat()
    group.ask(a.request())
    too_many = {"active_tasks": ids({"0": range(4)}), "standby_tasks": [], "warmup_tasks": []}
    assert group.refusal(heartbeat("a", 2, **too_many)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refusal(heartbeat("a", 2)) is ErrorCode.FENCED_MEMBER_EPOCH, "it reports nothing"


@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_a_member_at_another_epoch_is_fenced_and_joins_again(group: StreamsGroupUnderTest, epoch: int) -> None:
    a = member(group, "a")
    assert group.refusal(heartbeat("a", epoch)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert a.join().active == ALL
    assert len(group.group.durable.members) == 1


def test_a_task_that_the_topology_does_not_have_is_refused(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    for tasks in ({"0": [4]}, {"0": [-1]}, {"1": [0]}):
        fields = {"active_tasks": ids(tasks), "standby_tasks": [], "warmup_tasks": []}
        assert group.refusal(heartbeat("a", a.epoch, **fields)) is ErrorCode.INVALID_REQUEST


# --- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_to_its_tasks_without_a_new_assignment(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a", instance_id="i", process_id="p")
    epoch = group.group.durable.group_epoch
    assert a.leave(-2).member_epoch == -2
    group.pass_time(SESSION_MS - 1)
    again = member(group, "a2", instance_id="i", process_id="p")
    assert (again.active, group.group.durable.group_epoch) == (ALL, epoch)
    assert group.refusal(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refusal(heartbeat("a", a.epoch, instance_id="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert list(group.group.durable.members) == ["a2"]


def test_a_static_member_that_comes_back_as_another_process_begins_an_epoch(group: StreamsGroupUnderTest) -> None:
    member(group, "a", instance_id="i", process_id="p").leave(-2)
    epoch = group.group.durable.group_epoch
    member(group, "a2", instance_id="i", process_id="q")
    assert group.group.durable.group_epoch == epoch + 1


def test_an_instance_id_is_not_free_before_its_member_has_left(group: StreamsGroupUnderTest) -> None:
    member(group, "a", instance_id="i")
    assert group.refusal(joining("b", instance_id="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.refusal(heartbeat("b", 2, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refusal(heartbeat("b", -1, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_is_removed_when_its_session_ends(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a", instance_id="i"), member(group, "b")
    settle([a, b])
    a.leave(-2)
    b.heartbeat()
    assert len(b.active) == 2
    group.pass_time(SESSION_MS - 1)
    b.heartbeat()
    group.pass_time(1)
    assert b.heartbeat().active == ALL


def test_a_static_member_may_leave_for_good(group: StreamsGroupUnderTest) -> None:
    member(group, "a", instance_id="i").leave()
    assert (group.group.is_empty, group.group.durable.static_member_ids) == (True, {})


# --- time ------------------------------------------------------------------------------------------------------------


def test_a_member_that_falls_silent_is_removed_when_its_session_ends(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    settle([a, b])
    group.pass_time(SESSION_MS - 1)
    b.heartbeat()
    group.pass_time(1)
    assert group.refusal(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat().active == ALL


def test_a_member_that_gives_up_nothing_is_removed_after_its_rebalance_timeout(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    a.is_slow = True
    a.heartbeat()
    group.pass_time(REBALANCE_TIMEOUT_MS - 1)
    a.heartbeat()
    b.heartbeat()
    group.pass_time(1)
    assert group.refusal(heartbeat("a", a.epoch)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.heartbeat().active == ALL


def test_a_member_that_has_given_up_its_tasks_in_time_stays(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    settle([a, b])
    group.pass_time(REBALANCE_TIMEOUT_MS)
    assert group.group.durable.members.keys() == {"a", "b"}


def test_a_refused_heartbeat_makes_no_session_longer(group: StreamsGroupUnderTest) -> None:
    member(group, "a")
    group.pass_time(SESSION_MS - 1)
    group.refused(heartbeat("a", 9))
    group.pass_time(1)
    assert group.group.is_empty


def test_an_empty_group_waits_for_further_members_before_it_assigns(topics: FakeTopics) -> None:
    group = with_settings(topics, initial_rebalance_delay_ms=3_000)
    a = member(group, "a")
    assert (a.statuses, a.epoch, a.active) == ([StreamsGroupStatus.ASSIGNMENT_DELAYED], 1, set())
    group.pass_time(2_999)
    b = member(group, "b")
    assert (b.statuses, group.state) == ([StreamsGroupStatus.ASSIGNMENT_DELAYED], "Assigning")
    group.pass_time(1)
    assert (group.group.durable.assignment_epoch, group.group.durable.group_epoch) == (3, 3)
    assert (len(a.heartbeat().active), len(b.heartbeat().active), a.statuses) == (2, 2, [])


def test_a_group_that_is_empty_when_its_initial_delay_ends_assigns_nothing(topics: FakeTopics) -> None:
    group = with_settings(topics, initial_rebalance_delay_ms=3_000)
    member(group, "a").leave()
    before = len(group.records)
    group.pass_time(3_000)
    assert (len(group.records), group.group.next_deadline_ms) == (before, None)


def test_assignments_follow_each_other_after_the_interval(topics: FakeTopics) -> None:
    group = with_settings(topics, assignment_interval_ms=1_000)
    a, b = member(group, "a"), member(group, "b")
    assert (a.statuses, b.statuses) == ([], [StreamsGroupStatus.ASSIGNMENT_DELAYED])
    assert group.state == "Assigning"
    group.pass_time(999)
    assert b.heartbeat().statuses == [StreamsGroupStatus.ASSIGNMENT_DELAYED]
    group.pass_time(1)
    assert b.heartbeat().statuses == []
    settle([a, b])
    assert (len(a.active), len(b.active)) == (2, 2)


def test_a_clock_that_goes_back_delays_no_assignment(topics: FakeTopics) -> None:
    group = with_settings(topics, assignment_interval_ms=1_000)
    member(group, "a")
    group.wall_offset_ms -= 86_400_000
    assert member(group, "b").statuses == []


@pytest.mark.parametrize(("evict_ms", "members_left"), [(-1, 3), (0, 2), (100, 3)])
def test_the_end_of_a_connection_ends_sessions_of_dynamic_members_where_the_settings_say_so(
    topics: FakeTopics, evict_ms: int, members_left: int
) -> None:
    group = StreamsGroupUnderTest(topics, evict_on_disconnect_ms=evict_ms)
    group.ask(joining("a"), connection="first")
    group.ask(joining("b"), connection="second")
    group.ask(joining("c", instance_id="i"), connection="first")
    group.run(group.group.on_disconnect("first", group.now))
    assert len(group.group.durable.members) == members_left
    group.pass_time(100)
    assert set(group.group.durable.members) == ({"a", "b", "c"} if evict_ms < 0 else {"b", "c"})
