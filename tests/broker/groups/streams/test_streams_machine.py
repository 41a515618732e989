"""A streams group by itself: members that come and go, topics that change, answers that are lost, restarts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.consumer_groups import FakeTopics
from kit.examples import examples
from kit.streams_machines import (
    REBALANCE_TIMEOUT_MS,
    STATEFUL,
    StreamsGroupUnderTest,
    StreamsMemberClient,
    heartbeat,
    ids,
    joining,
    settle,
    snapshot,
    subtopology,
    topology,
)

from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Struct
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


# --- topology and topics ---------------------------------------------------------------------------------------------


def test_a_missing_source_topic_is_a_status_and_the_group_is_not_ready(topics: FakeTopics) -> None:
    group = StreamsGroupUnderTest(topics)
    a = StreamsMemberClient(group, "a", topology=topology(subtopology("0", ["later"]))).join()
    assert (a.statuses, a.active, group.state) == ([StreamsGroupStatus.MISSING_SOURCE_TOPICS], set(), "NotReady")
    topics.create("later", 2)
    assert (a.heartbeat().statuses, len(a.active), group.state) == ([], 2, "Stable")


def test_missing_internal_topics_are_a_status_until_they_are_there(topics: FakeTopics) -> None:
    group = StreamsGroupUnderTest(topics)
    a = StreamsMemberClient(group, "a", topology=STATEFUL).join()
    assert (a.statuses, group.state) == ([StreamsGroupStatus.MISSING_INTERNAL_TOPICS], "NotReady")
    configured = group.group.configured
    assert configured is not None
    assert [(one.name, one.partition_count) for one in configured.topics_to_create] == [("log", 4)]
    topics.create("log", 4)
    assert (a.heartbeat().statuses, a.active, a.epoch) == ([], ALL, 3)


def test_a_topic_that_grows_has_more_tasks_with_the_next_heartbeat(
    group: StreamsGroupUnderTest, topics: FakeTopics
) -> None:
    a = member(group, "a")
    topics.grow("t", 6)
    assert (len(a.heartbeat().active), a.epoch) == (6, 3)


def test_a_topic_that_is_deleted_takes_the_tasks_back(group: StreamsGroupUnderTest, topics: FakeTopics) -> None:
    a = member(group, "a")
    topics.delete("t")
    a.heartbeat()
    assert (a.statuses, group.state) == ([StreamsGroupStatus.MISSING_SOURCE_TOPICS], "NotReady")
    topics.create("t", 2)
    assert len(a.heartbeat().heartbeat().active) == 2


def test_topics_of_others_change_nothing(group: StreamsGroupUnderTest, topics: FakeTopics) -> None:
    a = member(group, "a")
    before = len(group.records)
    topics.create("other", 3)
    a.heartbeat()
    assert (len(group.records), a.epoch) == (before, 2)


def test_another_topology_is_refused_and_an_older_one_is_a_status(group: StreamsGroupUnderTest) -> None:
    newer = topology(subtopology("0", ["t"]), epoch=3)
    member(group, "a", topology=newer)
    for other in (topology(subtopology("1", ["t"]), epoch=3), topology(subtopology("0", ["t"]), epoch=4)):
        refused = group.refused(joining("b", topology=other))
        assert (refused.code, refused.message) == (
            ErrorCode.INVALID_REQUEST,
            "Topology updates are not supported yet.",
        )
    b = member(group, "b", topology=topology(subtopology("9", ["other"]), epoch=2))
    assert b.statuses == [StreamsGroupStatus.STALE_TOPOLOGY]
    assert b.heartbeat().statuses == [StreamsGroupStatus.STALE_TOPOLOGY]


# --- standby tasks ---------------------------------------------------------------------------------------------------


def test_a_standby_task_is_never_beside_its_active_one_on_one_process(topics: FakeTopics) -> None:
    topics.create("log", 4)
    group = with_settings(topics, num_standby_replicas=1)
    threads = [
        StreamsMemberClient(group, f"{process}{thread}", topology=STATEFUL, process_id=process)
        for process in "pq"
        for thread in range(2)
    ]
    for thread in threads:
        thread.join()
    settle(threads)
    for process in "pq":
        of_process = [one for one in threads if one.fields["process_id"] == process]
        active = set().union(*(one.active for one in of_process))
        standby = set().union(*(one.standby for one in of_process))
        assert (len(active), len(standby), active & standby) == (2, 2, set())
    assert group.state == "Stable"


def test_a_changed_setting_of_the_assignment_begins_an_epoch(topics: FakeTopics) -> None:
    topics.create("log", 4)
    group = with_settings(topics)
    a, b = (StreamsMemberClient(group, one, topology=STATEFUL).join() for one in "ab")
    settle([a, b])
    assert (a.standby, b.standby) == (set(), set())
    group.streams = group.streams._replace(num_standby_replicas=1)
    settle([a, b])
    assert (a.standby, b.standby) == (b.active, a.active)
    assert group.group.durable.assignment_settings == {"num.standby.replicas": "1"}


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


# --- what else an answer says ----------------------------------------------------------------------------------------


def test_a_requested_shutdown_reaches_all_members_until_the_group_is_empty(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    assert a.heartbeat(shutdown_application=True).statuses == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
    assert b.heartbeat(shutdown_application=True).statuses == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
    assert group.group.shutdown_member_id == "a"
    a.leave()
    assert b.heartbeat().statuses == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
    b.leave()
    assert a.join().statuses == []


def test_a_member_that_leaves_may_request_a_shutdown(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    group.ask(heartbeat("a", -1, shutdown_application=True))
    assert b.heartbeat().statuses == [StreamsGroupStatus.SHUTDOWN_APPLICATION]
    assert a.member_id not in group.group.durable.members


def test_missing_tags_are_named_to_clients_that_know_the_status(topics: FakeTopics) -> None:
    group = with_settings(topics, rack_aware_assignment_tags=("zone", "cluster"))
    tagged = [StreamsGroupHeartbeatRequest.KeyValue(key="zone", value="z")]
    (status,) = group.ask(joining("a", client_tags=tagged)).status or ()
    assert status.status_code == StreamsGroupStatus.MISSING_CLIENT_TAGS
    assert "[cluster]" in status.status_detail
    assert group.ask(heartbeat("a", 2), version=0).status == []


def test_members_learn_the_partitions_of_each_endpoint_once(group: StreamsGroupUnderTest) -> None:
    endpoint = StreamsGroupHeartbeatRequest.Endpoint(host="h", port=80)
    a = member(group, "a")
    b = member(group, "b", user_endpoint=endpoint)
    settle([a, b])
    a.endpoint_epoch = 0
    answer = group.ask(a.request())
    assert answer.endpoint_information_epoch == group.group.endpoint_epoch > 0
    (entry,) = answer.partitions_by_user_endpoint or ()
    assert (entry.user_endpoint.host, entry.user_endpoint.port, entry.standby_partitions) == ("h", 80, [])
    (topic,) = entry.active_partitions
    assert {("0", index) for index in topic.partitions} == b.active
    a.note(answer)
    assert group.ask(a.request()).partitions_by_user_endpoint is None


def test_a_member_that_joins_again_without_an_endpoint_has_none(group: StreamsGroupUnderTest) -> None:
    endpoint = StreamsGroupHeartbeatRequest.Endpoint(host="h", port=80)
    a = member(group, "a", user_endpoint=endpoint)
    a.heartbeat()
    assert group.group.durable.members["a"].user_endpoint is not None
    a.fields.pop("user_endpoint")
    a.join()
    assert group.group.durable.members["a"].user_endpoint is None


def test_offsets_of_tasks_are_shown_and_those_of_no_task_are_dropped(group: StreamsGroupUnderTest) -> None:
    def offsets(*listed: tuple[str, int, int]) -> list[StreamsGroupHeartbeatRequest.TaskOffset]:
        task_offset = StreamsGroupHeartbeatRequest.TaskOffset
        return [task_offset(subtopology_id=one, partition=index, offset=offset) for one, index, offset in listed]

    a = member(group, "a")
    a.heartbeat(task_offsets=offsets(("0", 3, 7), ("0", 4, 8), ("x", 0, 9)), task_end_offsets=offsets(("0", 3, 10)))
    a.heartbeat()
    (described,) = group.group.describe().members
    assert [(one.subtopology_id, one.partition, one.offset) for one in described.task_offsets] == [("0", 3, 7)]
    assert [(one.partition, one.offset) for one in described.task_end_offsets] == [(3, 10)]
    twice = group.refused(a.request(task_offsets=offsets(("0", 1, 1), ("0", 1, 2))))
    assert twice.code is ErrorCode.INVALID_REQUEST


# --- committed offsets and administration ----------------------------------------------------------------------------


def commit(group: StreamsGroupUnderTest, member_id: str, epoch: int, **fields: Any) -> Any:
    return group.group.check_commit(member_id, None, epoch, **{"api_version": 9, **fields})


def test_a_member_commits_with_its_epoch_or_with_one_since_which_it_has_the_task(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    settle([a, b])
    assert commit(group, "a", 3) is None
    check = commit(group, "a", 2)
    kept = next(index for _, index in a.active)
    check("t", None, kept)
    for topic, index in (("t", next(index for _, index in b.active)), ("other", 0)):
        with pytest.raises(KafkaError) as stale:
            check(topic, None, index)
        assert stale.value.code is ErrorCode.STALE_MEMBER_EPOCH
    late = commit(group, "b", 2)
    with pytest.raises(KafkaError, match="older than assignment epoch"):
        late("t", None, next(index for _, index in b.active))


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code"),
    [
        ("x", 2, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 3, {}, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, {"api_version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        ("", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_that_is_not_a_members_is_refused(
    group: StreamsGroupUnderTest, member_id: str, epoch: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    member(group, "a")
    with pytest.raises(KafkaError) as refused:
        commit(group, member_id, epoch, **fields)
    assert refused.value.code is code


def test_an_administrator_commits_for_an_empty_group_and_a_producer_without_a_member(
    group: StreamsGroupUnderTest,
) -> None:
    a = member(group, "a")
    assert commit(group, "", -1, is_transactional=True) is None
    a.leave()
    assert commit(group, "", -1) is None


def test_only_members_that_are_current_fetch_offsets_by_name(group: StreamsGroupUnderTest) -> None:
    member(group, "a")
    group.group.check_fetch_offsets(None, -1)
    group.group.check_fetch_offsets("a", 2)
    for member_id, epoch, code in (
        ("a", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            group.group.check_fetch_offsets(member_id, epoch)
        assert refused.value.code is code


def test_offsets_of_source_topics_are_used_as_long_as_there_are_members(group: StreamsGroupUnderTest) -> None:
    a = member(group, "a")
    assert (group.group.is_subscribed_to("t"), group.group.is_subscribed_to("u")) == (True, False)
    with pytest.raises(KafkaError) as refused:
        group.group.check_delete()
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    group.group.check_delete()
    assert not group.group.is_subscribed_to("t")


def test_a_description_has_topology_members_and_tasks(group: StreamsGroupUnderTest) -> None:
    member(group, "a", rack_id="r", instance_id="i")
    described = group.group.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert (described.assignor_name, described.topology_description_status) == ("sticky", 0)
    assert described.topology is not None
    (one,) = described.topology.subtopologies or ()
    assert (one.subtopology_id, one.source_topics) == ("0", ["t"])
    (shown,) = described.members
    assert (shown.member_id, shown.instance_id, shown.rack_id, shown.process_id) == ("a", "i", "r", "process-a")
    assert (shown.client_id, shown.client_host, shown.topology_epoch) == ("client", "/127.0.0.1", 0)
    for assignment in (shown.assignment, shown.target_assignment):
        (tasks,) = assignment.active_tasks
        assert (tasks.subtopology_id, tasks.partitions) == ("0", [0, 1, 2, 3])


# --- restarts --------------------------------------------------------------------------------------------------------


def test_the_tombstones_of_a_group_forget_all_of_it(group: StreamsGroupUnderTest) -> None:
    member(group, "a").leave()
    tombstones = group.group.tombstones()
    kept: list[Struct] = []
    for key, value in group.records:
        kept = [one for one in kept if one != key] + ([key] if value is not None else [])
    assert all(value is None for _, value in tombstones)
    assert sorted(repr(key) for key, _ in tombstones) == sorted(repr(key) for key in kept)


def test_a_restart_finds_the_group_as_it_was(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b", instance_id="i")
    a.heartbeat()
    before = snapshot(group.group)
    group.restart()
    assert snapshot(group.group) == before
    settle([a, b])
    assert a.active | b.active == ALL
    epoch = group.group.durable.group_epoch
    assert epoch == before["epochs"][0], "the search for lost tasks has found none"  # type: ignore[index]
    group.pass_time(SESSION_MS)
    assert group.group.is_empty, "sessions begin again with the restart"


def test_a_member_that_had_tasks_to_give_up_has_its_time_again_after_a_restart(group: StreamsGroupUnderTest) -> None:
    a, b = member(group, "a"), member(group, "b")
    a.is_slow = True
    a.heartbeat()
    group.restart()
    group.pass_time(REBALANCE_TIMEOUT_MS - 1)
    for one in (a, b):
        one.heartbeat()
    group.pass_time(1)
    assert set(group.group.durable.members) == {"b"}


LIVES: dict[str, list[tuple[str, str]]] = {
    "a join": [("join", "a"), ("join", "b")],
    "a leave": [("join", "a"), ("join", "b"), ("settle", ""), ("leave", "a")],
    "the last leave": [("join", "a"), ("leave", "a")],
}


@pytest.mark.parametrize("life", LIVES.values(), ids=LIVES)
def test_a_crash_may_keep_any_part_of_the_last_step(life: list[tuple[str, str]]) -> None:
    """The records of a step may need several batches. Those who got no answer come again; all tasks are assigned."""
    whole = lived(life)
    last = whole.batches[-1]
    for kept in range(len(last) + 1):
        group = lived(life)
        group.restart(group.records[: len(group.records) - len(last) + kept])
        clients = {one: StreamsMemberClient(group, one) for one in "abc"}
        for client in clients.values():
            client.join()
        settle(clients.values(), rounds=5)
        assert set().union(*(one.active for one in clients.values())) == ALL
        assert sum(len(one.active) for one in clients.values()) == len(ALL)
        assert group.state == "Stable", kept


@pytest.mark.parametrize("kept", range(5))
def test_tasks_of_a_member_whose_leave_was_kept_in_part_find_another(kept: int) -> None:
    """The others have heard of nothing, and go on as before."""
    group = lived(LIVES["a leave"])
    last = group.batches[-1]
    b = StreamsMemberClient(group, "b")
    b.epoch = group.group.durable.members["b"].member_epoch
    b.tasks = group.group.durable.members["b"].assigned.without_epochs()
    group.restart(group.records[: len(group.records) - len(last) + kept])
    b.heartbeat()
    group.pass_time(SESSION_MS - 1)
    b.heartbeat()
    group.pass_time(1)
    b.heartbeat().heartbeat()
    assert b.active == ALL


def lived(life: list[tuple[str, str]]) -> StreamsGroupUnderTest:
    group = StreamsGroupUnderTest(FakeTopics({"t": 4}))
    clients: dict[str, StreamsMemberClient] = {}
    for what, who in life:
        if what == "join":
            clients[who] = StreamsMemberClient(group, who).join()
        elif what == "leave":
            clients.pop(who).leave()
        else:
            settle(clients.values())
    return group


# --- everything at once ----------------------------------------------------------------------------------------------


class StreamsGroups(RuleBasedStateMachine):
    """Members that lose answers and are slow, topics that change, time, restarts: no task is active twice, and after
    some rounds of heartbeats all are assigned.
    """

    @initialize(standbys=st.integers(0, 1))
    def begin(self, standbys: int) -> None:
        self.topics = FakeTopics({"t": 3, "log": 3})
        streams = StreamsSettings(assignment_interval_ms=0, num_standby_replicas=standbys)
        self.group = StreamsGroupUnderTest(self.topics, streams=streams)
        self.members: dict[str, StreamsMemberClient] = {}
        self.epochs = (0, 0)

    @rule(member_id=st.sampled_from("abcde"), process_id=st.sampled_from("pqr"))
    def join(self, member_id: str, process_id: str) -> None:
        client = StreamsMemberClient(self.group, member_id, topology=STATEFUL, process_id=process_id)
        self.members[member_id] = client.join()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), is_lost=st.booleans(), is_slow=st.booleans(), is_short=st.booleans())
    def heartbeat(self, data: st.DataObject, is_lost: bool, is_slow: bool, is_short: bool) -> None:
        client = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        request = heartbeat(client.member_id, client.epoch) if is_short else client.request()
        try:
            answer = self.group.ask(request)
        except KafkaError as refusal:
            del self.members[client.member_id]
            gone = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.INVALID_REQUEST}
            if refusal.code not in gone:
                raise
        else:
            client.is_slow = is_slow
            if not is_lost:
                client.note(answer)
            client.is_slow = False

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        if client.member_id in self.group.group.durable.members:
            client.leave()

    @rule(partitions=st.integers(1, 4))
    def change_topics(self, partitions: int) -> None:
        for name in ("t", "log"):
            topic_id = self.topics.id_of(name)
            if topic_id is None:
                self.topics.create(name, partitions)
            elif partitions > self.topics.partition_count(topic_id):
                self.topics.grow(name, partitions)
            else:
                self.topics.delete(name)

    @rule(ms=st.sampled_from([1_000, REBALANCE_TIMEOUT_MS, SESSION_MS]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_time(ms)

    @rule()
    def restart(self) -> None:
        before = snapshot(self.group.group)
        self.group.restart()
        assert snapshot(self.group.group) == before

    @rule()
    def everybody_asks(self) -> None:
        """All members that the group has come again, and heartbeat in turn: then all tasks are assigned."""
        known = list(self.group.group.durable.members)
        process_of = {one: self.group.group.durable.members[one].process_id for one in known}
        self.members = {
            one: StreamsMemberClient(self.group, one, topology=STATEFUL, process_id=process_of[one]).join()
            for one in known
        }
        settle(self.members.values(), rounds=5)
        if not known or not self.topics.exists("t"):
            return
        topic_id = self.topics.id_of("t")
        assert topic_id is not None
        wanted = {("0", index) for index in range(self.topics.partition_count(topic_id))}
        active = [task for client in self.members.values() for task in client.active]
        assert sorted(active) == sorted(wanted)
        assert self.group.state == "Stable"
        assert all(
            client.tasks == self.group.group.durable.members[client.member_id].assigned.without_epochs()
            for client in self.members.values()
        )

    @invariant()
    def no_process_has_a_task_twice_and_no_task_is_active_twice(self) -> None:
        members = self.group.group.durable.members.values()
        active = [
            task for one in members for owned in (one.assigned, one.pending_revocation) for task in each(owned.active)
        ]
        assert len(active) == len(set(active))
        by_process: dict[tuple[str, str, int], int] = {}
        for one in members:
            for task in itertools.chain(each(one.assigned.active), each(one.assigned.standby)):
                place = (one.process_id, *task)
                by_process[place] = by_process.get(place, 0) + 1
        assert all(times == 1 for times in by_process.values())

    @invariant()
    def epochs_never_go_back(self) -> None:
        state = self.group.group.durable
        epochs = (state.group_epoch, state.assignment_epoch)
        assert epochs >= self.epochs
        assert state.assignment_epoch <= state.group_epoch
        assert all(member.member_epoch <= state.assignment_epoch for member in state.members.values())
        self.epochs = epochs

    @invariant()
    def the_group_keeps_nothing_of_members_that_are_gone(self) -> None:
        state = self.group.group.durable
        assert state.target.keys() <= state.members.keys()
        assert self.group.group.task_offsets.keys() <= state.members.keys()
        assert (self.group.group.next_deadline_ms is None) == (not state.members)


def each(tasks: Any) -> list[tuple[str, int]]:
    return [(one, partition) for one, partitions in tasks.items() for partition in partitions]


StreamsGroups.TestCase.settings = hypothesis_settings(max_examples=examples(60), stateful_step_count=40)
TestStreamsGroups = StreamsGroups.TestCase
