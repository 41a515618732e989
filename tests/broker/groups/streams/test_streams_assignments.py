"""What a streams group assigns: the topology beside the topics, standby tasks, and settings."""

from __future__ import annotations

from typing import Any

import pytest
from kit.consumer_groups import FakeTopics
from kit.streams_machines import (
    STATEFUL,
    StreamsGroupUnderTest,
    StreamsMemberClient,
    joining,
    settle,
    subtopology,
    topology,
)

from ottla.broker.groups.streams.settings import StreamsSettings
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupStatus
from ottla.protocol.errors import ErrorCode

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
