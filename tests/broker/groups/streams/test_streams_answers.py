"""What else a streams group answers: statuses, endpoints, offsets of tasks, commits, and descriptions."""

from __future__ import annotations

from typing import Any

import pytest
from kit.consumer_groups import FakeTopics
from kit.streams_machines import (
    StreamsGroupUnderTest,
    StreamsMemberClient,
    heartbeat,
    joining,
    settle,
)

from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError


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
