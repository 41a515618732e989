"""Streams groups by raw frames, each test to be judged by Apache Kafka too:

    scripts/interop/apache-kafka --version 4.4.0 -- .venv/bin/pytest tests/integration/test_streams_group_wire.py

Where Ottla differs on purpose there is no test here, but a row in docs/deviations.md.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kit.broker import BrokerProcess
from kit.share_wire import create_topic
from kit.streams_wire import (
    StreamsWireMember,
    add_partitions,
    alter_streams_group,
    configs_of,
    create_named_topic,
    described,
    new_streams_group,
    partition_count,
    statuses,
    subtopology,
    tasks_of,
    topic_info,
    topology,
)
from kit.wire import PATIENCE_S, Wire

from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupStatus
from ottla.protocol.api.streams_group_topology_description_update import StreamsGroupTopologyDescriptionUpdateRequest
from ottla.protocol.errors import ErrorCode

NONE, INVALID_REQUEST, GROUP_ID_NOT_FOUND = ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND
FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID
STALE_TOPOLOGY, MISSING_SOURCE_TOPICS, INCORRECTLY_PARTITIONED, MISSING_INTERNAL_TOPICS, SHUTDOWN, DELAYED, TAGS = (
    int(status) for status in StreamsGroupStatus
)
NO_TASKS: tuple[dict[str, list[int]], ...] = ({}, {}, {})


class Scene:
    """A topic, a group, and its members."""

    def __init__(self, broker: BrokerProcess, wire: Wire) -> None:
        self.wire = wire
        self.port = broker.port
        self.members: list[StreamsWireMember] = []

    def begin(self, *partitions: int, changelog: int = 0, **settings: str) -> None:
        """Topics of so many partitions, and a new group with one stateful subtopology that reads the first.

        `changelog`: create the changelog with so many partitions. All topics come before the settings of the group:
        Kafka's coordinator knows them when it knows the settings.
        """
        self.group = f"g-{uuid.uuid4().hex}"
        self.topic, *self.others = (create_topic(self.wire, count)[0] for count in partitions or (2,))
        self.changelog = f"{self.group}-store-changelog"
        if changelog:
            create_named_topic(self.wire, self.changelog, changelog)
        new_streams_group(self.wire, self.group, **settings)
        self.wanted = topology(subtopology("0", self.topic, changelogs=[topic_info(self.changelog)]))

    def member(self, **options: str) -> StreamsWireMember:
        """One more member, which has sent nothing."""
        self.members.append(StreamsWireMember(self.port, self.group, **options))
        return self.members[-1]

    def joined(self, wanted: Any = None, **options: Any) -> StreamsWireMember:
        """One more member, which has joined; its tasks come when the internal topics have been created."""
        one = self.member(**options)
        answer = one.join(wanted or self.wanted)
        assert answer.error_code == NONE, answer
        return one

    def alone(self, partitions: int = 2, **settings: str) -> StreamsWireMember:
        """Begin; return the only member, which has all tasks."""
        self.begin(partitions, changelog=0, **settings)
        one = self.joined()
        one.settle()
        assert one.active == {"0": list(range(partitions))}
        return one

    def reconcile(self, *members: StreamsWireMember) -> None:
        """Let these members own what they are assigned, until the group is stable and no answer has news."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            before = [(one.member_epoch, one.active, one.standby, one.warmup) for one in members]
            has_statuses = False
            for one in members:
                has_statuses = bool(statuses(one.own())) or has_statuses
            after = [(one.member_epoch, one.active, one.standby, one.warmup) for one in members]
            if before == after and not has_statuses and described(self.wire, self.group).group_state == "Stable":
                return
            assert time.monotonic() < give_up, described(self.wire, self.group)
            time.sleep(0.05)


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture
def scene(broker: BrokerProcess, wire: Wire) -> Iterator[Scene]:
    made = Scene(broker, wire)
    yield made
    for member in made.members:
        member.close()


# --- members ----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_that_is_wrong_in_itself_is_refused(scene: Scene) -> None:
    scene.begin()
    one = scene.member()
    wanted = scene.wanted

    def refusal(*arguments: Any, **more: Any) -> tuple[ErrorCode, str | None]:
        answer = one.heartbeat(*arguments, **more)
        return ErrorCode.of(answer.error_code), answer.error_message

    def says(message: str) -> tuple[ErrorCode, str | None]:
        return INVALID_REQUEST, message

    assert refusal(0, topology=wanted) == says("RebalanceTimeoutMs must be provided in first request.")
    none: dict[str, Any] = {"active": {}, "standby": {}, "warmup": {}}
    assert refusal(0, rebalance_ms=9, **none) == says("Topology must be non-null when (re-)joining.")
    for name in ("active", "standby", "warmup"):
        owned = none | {name: {"0": [0]}}
        message = f"{name.capitalize()}Tasks must be empty when (re-)joining."
        assert refusal(0, topology=wanted, rebalance_ms=9, **owned) == says(message)
        assert refusal(1, **{name: {}}) == says("If one task-type is non-null, all must be non-null.")
    assert refusal(1, topology=wanted) == says("Topology can only be provided when (re-)joining.")
    assert refusal(0, topology=wanted, rebalance_ms=9, rack="") == says("RackId can't be empty.")
    assert refusal(-3) == says("MemberEpoch is -3, but must be greater than or equal to -2.")
    assert refusal(-2) == says("InstanceId can't be null.")
    one.instance = ""
    assert refusal(0, topology=wanted, rebalance_ms=9) == says("InstanceId can't be empty.")
    one.instance = None
    one.member_id = ""
    assert refusal(0, topology=wanted, rebalance_ms=9) == says("MemberId can't be empty.")
    one.group_id, one.member_id = "", "m"
    assert refusal(0, topology=wanted, rebalance_ms=9)[0] in (INVALID_REQUEST, ErrorCode.INVALID_GROUP_ID)
    assert described(scene.wire, scene.group).error_code == GROUP_ID_NOT_FOUND


def test_a_group_and_its_members_are_known_by_those_who_joined(scene: Scene) -> None:
    scene.begin()
    one = scene.member()
    for epoch in (1, -1):
        assert one.heartbeat(epoch).error_code == GROUP_ID_NOT_FOUND
    assert described(scene.wire, scene.group).error_code == GROUP_ID_NOT_FOUND
    one.join(scene.wanted)
    other = scene.member()
    for epoch in (1, -1):
        assert other.heartbeat(epoch).error_code == UNKNOWN_MEMBER_ID
    left = one.heartbeat(-1)
    assert (left.error_code, left.member_id, left.member_epoch, left.heartbeat_interval_ms, left.status) == (
        NONE,
        one.member_id,
        -1,
        0,
        [],
    )
    assert one.heartbeat(-1).error_code == UNKNOWN_MEMBER_ID


def test_the_answers_have_what_the_member_must_know(scene: Scene) -> None:
    scene.begin(task_offset_interval_ms="20000", acceptable_recovery_lag="77")
    answer = scene.member().join(scene.wanted)
    assert (answer.heartbeat_interval_ms, answer.task_offset_interval_ms, answer.acceptable_recovery_lag) == (
        5_000,
        20_000,
        77,
    )
    assert not answer.topology_description_required
    assert scene.member().join(scene.wanted, version=0).acceptable_recovery_lag_legacy == 0


def test_tasks_are_in_an_answer_when_they_have_changed(scene: Scene) -> None:
    one = scene.alone()
    assert one.own().active_tasks is None
    assert tasks_of(one.join(scene.wanted)) == ({"0": [0, 1]}, {}, {})
    assert one.heartbeat().active_tasks is None


def test_a_member_has_its_epoch_or_the_one_before(scene: Scene) -> None:
    one = scene.alone()
    epoch = one.member_epoch
    for wrong in (epoch + 1, 1_000):
        assert one.heartbeat(wrong).error_code == FENCED_MEMBER_EPOCH
    assert one.heartbeat(epoch - 1, active={"0": [1]}, standby={}, warmup={}).error_code == NONE
    for owned in ({"active": {"0": [1, 2]}}, {"standby": {"0": [1]}}, {"warmup": {"0": [1]}}):
        answer = one.heartbeat(epoch - 1, **({"active": {}, "standby": {}, "warmup": {}} | owned))  # type: ignore[arg-type]  # fields by name
        assert answer.error_code == FENCED_MEMBER_EPOCH
    assert one.heartbeat(epoch - 1).error_code == FENCED_MEMBER_EPOCH
    assert one.heartbeat(epoch - 2, active={}, standby={}, warmup={}).error_code == FENCED_MEMBER_EPOCH
    assert one.heartbeat(epoch).error_code == NONE


def test_a_member_may_not_own_tasks_that_do_not_exist(scene: Scene) -> None:
    one = scene.alone()
    for owned, message in (
        ({"7": [0]}, "Subtopology 7 does not exist in the topology."),
        ({"0": [2]}, "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
        ({"0": [-1]}, "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
    ):
        answer = one.heartbeat(active=owned, standby={}, warmup={})
        assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, message)


def test_a_task_goes_to_another_member_when_it_has_been_released(scene: Scene) -> None:
    one = scene.alone()
    first = one.member_epoch
    other = scene.joined()
    assert (other.member_epoch, other.active) == (first + 1, {})
    assert described(scene.wire, scene.group).group_state == "Reconciling"
    answer = one.own()
    assert (answer.member_epoch, tasks_of(answer)) == (first, ({"0": [0]}, {}, {}))
    assert other.own().active_tasks is None, "it has not been released"
    answer = one.heartbeat()
    assert (answer.member_epoch, answer.active_tasks) == (first, None), "it does not say what it owns"
    assert other.own().active_tasks is None
    assert one.own().member_epoch == first + 1
    assert tasks_of(other.own()) == ({"0": [1]}, {}, {})
    assert described(scene.wire, scene.group).group_state == "Stable"


def test_a_member_that_leaves_gives_its_tasks_to_the_others(scene: Scene) -> None:
    one = scene.alone()
    other = scene.joined()
    scene.reconcile(one, other)
    assert (one.active, other.active) == ({"0": [0]}, {"0": [1]})
    epoch = other.member_epoch
    assert one.heartbeat(-1).error_code == NONE
    assert tasks_of(other.own()) == ({"0": [0, 1]}, {}, {})
    assert other.member_epoch == epoch + 1
    assert other.heartbeat(-1).error_code == NONE
    group = described(scene.wire, scene.group)
    assert (group.group_state, group.group_epoch, group.assignment_epoch, group.members) == (
        "Empty",
        epoch + 2,
        epoch + 2,
        [],
    )


def test_a_member_that_does_not_release_its_tasks_in_time_is_removed(scene: Scene) -> None:
    scene.begin()
    one = scene.member()
    one.join(scene.wanted, rebalance_ms=300)
    one.settle()
    other = scene.joined()
    assert one.own().active_tasks is not None
    give_up = time.monotonic() + PATIENCE_S
    while tasks_of(other.own()) != ({"0": [0, 1]}, {}, {}):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert one.own().error_code == UNKNOWN_MEMBER_ID


def test_what_a_member_says_of_itself_is_described(scene: Scene) -> None:
    scene.begin()
    one = scene.member(process="p1", instance="i1")
    one.join(scene.wanted, rack="r1", endpoint=("host", 65_535), tags={"zone": "z1"})
    one.settle()
    (found,) = described(scene.wire, scene.group).members
    assert (found.member_id, found.member_epoch, found.topology_epoch) == (one.member_id, one.member_epoch, 0)
    assert (found.instance_id, found.rack_id, found.process_id, found.client_id) == ("i1", "r1", "p1", "wire")
    assert (found.user_endpoint.host, found.user_endpoint.port) == ("host", 65_535)
    assert [(tag.key, tag.value) for tag in found.client_tags] == [("zone", "z1")]
    assert tasks_of(found.assignment) == tasks_of(found.target_assignment) == ({"0": [0, 1]}, {}, {})
    assert not found.is_classic
    epoch = one.member_epoch
    one.own(endpoint=("other", 1))
    one.settle()
    assert one.member_epoch == epoch, "the endpoint of a static member concerns no assignment"
    one.own(rack="r2", tags={})
    one.settle()
    assert one.member_epoch == epoch + 1
    (found,) = described(scene.wire, scene.group).members
    assert (found.rack_id, found.user_endpoint.host, found.client_tags) == ("r2", "other", [])


# --- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_that_comes_again_has_its_tasks(scene: Scene) -> None:
    scene.begin()
    one = scene.joined(instance="i")
    one.settle()
    epoch, tasks = one.member_epoch, one.active
    again = scene.member(instance="i", process=one.process)
    assert again.join(scene.wanted).error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    left = one.heartbeat(-2)
    assert (left.error_code, left.member_epoch) == (NONE, -2)
    group = described(scene.wire, scene.group)
    assert [(member.instance_id, member.member_epoch) for member in group.members] == [("i", -2)]
    answer = again.join(scene.wanted)
    assert (answer.error_code, answer.member_epoch, tasks_of(answer)) == (NONE, epoch, (tasks, {}, {}))
    assert one.heartbeat(epoch).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert [member.member_id for member in described(scene.wire, scene.group).members] == [again.member_id]


def test_a_static_member_is_known_by_its_instance(scene: Scene) -> None:
    scene.begin()
    one = scene.joined(instance="i")
    one.settle()
    other = scene.member(instance="j")
    assert other.heartbeat(1).error_code == other.heartbeat(-1).error_code == UNKNOWN_MEMBER_ID
    thief = scene.member(instance="i")
    assert thief.heartbeat(1).error_code == thief.heartbeat(-2).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert one.heartbeat(-1).error_code == NONE
    assert described(scene.wire, scene.group).members == []


# --- topologies -------------------------------------------------------------------------------------------------------


def test_internal_topics_are_created_as_the_topology_needs_them(scene: Scene) -> None:
    scene.begin(3)
    names = [f"{scene.group}-{name}" for name in ("free", "fixed", "store-changelog", "windows-changelog")]
    free, fixed, store, windows = names
    wanted = topology(
        subtopology("0", scene.topic, repartition_sinks=[free, fixed]),
        subtopology(
            "1",
            repartition_sources=[topic_info(free, cleanup_policy="delete")],
            changelogs=[topic_info(store, cleanup_policy="compact", segment_bytes="2000000")],
        ),
        subtopology("2", repartition_sources=[topic_info(fixed, 5)], changelogs=[topic_info(windows)]),
    )
    one = scene.member()
    said = statuses(one.join(wanted))
    assert list(said) == [MISSING_INTERNAL_TOPICS]
    assert said[MISSING_INTERNAL_TOPICS].startswith("Internal topics are missing: ")
    assert said[MISSING_INTERNAL_TOPICS].endswith(" and 1 additional topics")
    one.settle()
    assert one.active == {"0": [0, 1, 2], "1": [0, 1, 2], "2": [0, 1, 2, 3, 4]}
    assert [partition_count(scene.wire, name) for name in names] == [3, 5, 3, 5]
    assert configs_of(scene.wire, store) == {"cleanup.policy": "compact", "segment.bytes": "2000000"}
    assert configs_of(scene.wire, free) == {"cleanup.policy": "delete"}
    assert configs_of(scene.wire, windows) == {}
    found = described(scene.wire, scene.group).topology.subtopologies
    assert [one.subtopology_id for one in found] == ["0", "1", "2"]
    assert [(topic.name, topic.partitions) for topic in found[1].state_changelog_topics] == [(store, 3)]
    assert [(topic.name, topic.partitions) for topic in found[2].repartition_source_topics] == [(fixed, 5)]


def test_internal_topics_that_cannot_be_created_are_reported(scene: Scene) -> None:
    scene.begin()
    wanted = topology(
        subtopology("0", scene.topic, changelogs=[topic_info(scene.changelog, cleanup_policy="nonsense")])
    )
    one = scene.member()
    one.join(wanted)
    give_up = time.monotonic() + PATIENCE_S
    while "Creation failed" not in (said := statuses(one.own())[MISSING_INTERNAL_TOPICS]):
        assert time.monotonic() < give_up, said
        time.sleep(0.05)
    assert scene.changelog in said
    assert (one.active, described(scene.wire, scene.group).group_state) == ({}, "NotReady")


def test_a_group_waits_for_its_source_topics(scene: Scene) -> None:
    scene.begin()
    gone = f"{scene.topic}-later"
    wanted = topology(subtopology("0", scene.topic), subtopology("1", gone))
    one = scene.member()
    answer = one.join(wanted)
    assert statuses(answer) == {MISSING_SOURCE_TOPICS: f"Source topics {gone} are missing."}
    assert tasks_of(answer) == NO_TASKS
    group = described(scene.wire, scene.group)
    assert group.group_state == "NotReady"
    create_named_topic(scene.wire, gone, 1)
    one.settle()
    assert one.active == {"0": [0, 1], "1": [0]}


def test_topics_that_should_be_copartitioned_are_reported(scene: Scene) -> None:
    scene.begin(2, 3)
    (three,) = scene.others
    one = scene.member()
    said = statuses(one.join(topology(subtopology("0", scene.topic, three, copartitioned=[((0, 1), ())]))))
    pairs = ", ".join(sorted([f"{scene.topic}=2", f"{three}=3"]))
    assert said == {
        INCORRECTLY_PARTITIONED: f"Following topics do not have the same number of partitions: [{{{pairs}}}]"
    }
    assert described(scene.wire, scene.group).group_state == "NotReady"


def test_a_repartition_topic_has_the_partitions_of_its_copartitioned_topics(scene: Scene) -> None:
    scene.begin(2, 3)
    (three,) = scene.others
    internal = f"{scene.group}-repartition"
    one = scene.member()
    one.join(
        topology(
            subtopology("0", scene.topic, repartition_sinks=[internal]),
            subtopology("1", three, repartition_sources=[topic_info(internal)], copartitioned=[((0,), (0,))]),
        )
    )
    one.settle()
    assert (partition_count(scene.wire, internal), one.active) == (3, {"0": [0, 1], "1": [0, 1, 2]})


def test_an_internal_topic_with_another_number_of_partitions_is_reported(scene: Scene) -> None:
    scene.begin(2, changelog=3)
    said = statuses(scene.member().join(scene.wanted))
    assert said == {
        INCORRECTLY_PARTITIONED: f"Existing topic {scene.changelog} has different number of partitions: "
        "expected 2, found 3"
    }


def test_a_topology_that_cannot_be_is_refused(scene: Scene) -> None:
    scene.begin()
    internal = f"{scene.group}-repartition"
    loop = [topic_info(internal)]
    for wanted in (
        topology(subtopology("0", scene.topic, changelogs=[topic_info("c", 3)])),
        topology(subtopology("0", scene.topic), subtopology("1", repartition_sources=loop)),
        topology(
            subtopology("0", scene.topic),
            subtopology("1", repartition_sources=loop, repartition_sinks=[internal]),
        ),
        topology(subtopology("0", changelogs=[topic_info("c")])),
    ):
        answer = scene.member().join(wanted)
        assert ErrorCode.of(answer.error_code) == ErrorCode.STREAMS_INVALID_TOPOLOGY
    answer = scene.member().join(topology(subtopology("0", regex=["t.*"])))
    assert (answer.error_code, answer.error_message) == (
        INVALID_REQUEST,
        "Regular expressions for source topics are not supported yet.",
    )
    assert described(scene.wire, scene.group).error_code == GROUP_ID_NOT_FOUND


def test_a_group_keeps_its_topology(scene: Scene) -> None:
    scene.begin()
    plain = subtopology("0", scene.topic)
    one = scene.joined(topology(plain, epoch=3))
    one.settle()
    other = scene.member()
    for wanted in (topology(plain, epoch=4), topology(plain, subtopology("1", scene.topic), epoch=3)):
        answer = other.join(wanted)
        assert (answer.error_code, answer.error_message) == (INVALID_REQUEST, "Topology updates are not supported yet.")
    answer = other.join(topology(subtopology("0", "not-there"), epoch=2))
    behind = {STALE_TOPOLOGY: "The member's topology epoch 2 is behind the group's topology epoch 3."}
    assert statuses(answer) == statuses(other.heartbeat()) == behind
    group = described(scene.wire, scene.group)
    assert sorted(member.topology_epoch for member in group.members) == [2, 3]
    assert group.topology.epoch == 3
    assert statuses(one.heartbeat()) == {}


def test_a_topic_with_more_partitions_has_more_tasks(scene: Scene) -> None:
    scene.begin(1)
    one = scene.joined(topology(subtopology("0", scene.topic)))
    one.settle()
    add_partitions(scene.wire, scene.topic, 3)
    give_up = time.monotonic() + PATIENCE_S
    while one.active != {"0": [0, 1, 2]}:
        assert time.monotonic() < give_up
        assert one.own().error_code == NONE
        time.sleep(0.05)


# --- delays and statuses ----------------------------------------------------------------------------------------------


def test_a_new_group_waits_for_more_members(scene: Scene) -> None:
    scene.begin(initial_rebalance_delay_ms="1500")
    wanted = topology(subtopology("0", scene.topic))
    one = scene.joined(wanted)
    said = statuses(one.own())
    assert said == {DELAYED: "Assignment delayed due to the configured initial rebalance delay."}
    assert described(scene.wire, scene.group).group_state == "Assigning"
    other = scene.member()
    assert statuses(other.join(wanted)) == said
    scene.reconcile(one, other)
    assert sorted(one.active["0"] + other.active["0"]) == [0, 1]


def test_assignments_are_not_made_too_often(scene: Scene) -> None:
    scene.begin(assignment_interval_ms="2000")
    wanted = topology(subtopology("0", scene.topic))
    one = scene.joined(wanted)
    other = scene.member()
    said = statuses(other.join(wanted))
    assert said == {DELAYED: "Assignment delayed due to the configured assignment interval."}
    assert (other.active, described(scene.wire, scene.group).group_state) == ({}, "Assigning")
    scene.reconcile(one, other)
    assert sorted(one.active["0"] + other.active["0"]) == [0, 1]


def test_a_member_may_ask_all_members_to_shut_down(scene: Scene) -> None:
    one = scene.alone()
    other = scene.joined()
    scene.reconcile(one, other)
    wanted = {
        SHUTDOWN: f"Streams group member {other.member_id} encountered a fatal error and requested a shutdown for the "
        "entire application."
    }
    assert statuses(other.heartbeat(shutdown=True)) == statuses(one.heartbeat()) == wanted
    assert other.heartbeat(-1, shutdown=True).error_code == one.heartbeat(-1).error_code == NONE
    assert statuses(one.join(scene.wanted)) == {}, "an empty group forgets it"


def test_members_without_the_tags_of_the_group_are_reported(scene: Scene) -> None:
    scene.begin(rack_aware_assignment_tags="zone,rack")
    one = scene.member()
    one.join(scene.wanted, tags={"rack": "r"})
    said = {
        TAGS: "Missing required client tags for rack-aware standby assignment: [zone]. "
        "Configure them via 'client.tag.<tagKey>' in your Streams config."
    }
    give_up = time.monotonic() + PATIENCE_S
    while (found := statuses(one.own())) != said:
        assert time.monotonic() < give_up, found
    assert statuses(one.heartbeat(version=0)) == {}
    assert statuses(one.heartbeat(tags={"rack": "r", "zone": "z"})) == {}


# --- replicas ---------------------------------------------------------------------------------------------------------


def test_standby_tasks_are_in_another_process_than_their_active_task(scene: Scene) -> None:
    scene.begin(4, num_standby_replicas="1")
    a, b, c = (scene.joined(process=name) for name in ("p1", "p1", "p2"))
    scene.reconcile(a, b, c)
    actives = sorted(number for one in (a, b, c) for number in one.active.get("0", []))
    standbys = sorted(number for one in (a, b, c) for number in one.standby.get("0", []))
    assert actives == standbys == [0, 1, 2, 3]
    first = {*a.active["0"], *b.active["0"]}
    assert first.isdisjoint([*a.standby.get("0", []), *b.standby.get("0", [])])
    assert set(c.active["0"]).isdisjoint(c.standby["0"])


def test_a_change_of_the_settings_makes_a_new_assignment(scene: Scene) -> None:
    one = scene.alone()
    other = scene.joined()
    scene.reconcile(one, other)
    assert (one.standby, other.standby) == ({}, {})
    epoch = described(scene.wire, scene.group).group_epoch
    alter_streams_group(scene.wire, scene.group, num_standby_replicas="1")
    give_up = time.monotonic() + PATIENCE_S
    while not one.standby:
        assert time.monotonic() < give_up
        assert one.own().error_code == NONE
        time.sleep(0.05)
    scene.reconcile(one, other)
    assert (one.standby, other.standby) == (other.active, one.active)
    assert described(scene.wire, scene.group).group_epoch == epoch + 1


def test_a_subtopology_without_state_has_no_standby_tasks(scene: Scene) -> None:
    scene.begin(num_standby_replicas="1")
    wanted = topology(subtopology("0", scene.topic))
    one, other = scene.joined(wanted), scene.joined(wanted)
    scene.reconcile(one, other)
    assert (one.standby, other.standby) == ({}, {})
    assert sorted(one.active["0"] + other.active["0"]) == [0, 1]


def test_no_task_is_warmed_up_before_it_moves(scene: Scene) -> None:
    """Kafka 4.4 has the settings and the fields of warm-up tasks, but assigns none."""
    one = scene.alone(num_warmup_replicas="2", acceptable_recovery_lag="10")
    one.own(offsets=[("0", 0, 50_000), ("0", 1, 50_000)], end_offsets=[("0", 0, 50_000), ("0", 1, 50_000)])
    other = scene.joined()
    scene.reconcile(one, other)
    assert (one.active, other.active) == ({"0": [0]}, {"0": [1]})
    twice = one.heartbeat(offsets=[("0", 0, 1), ("0", 0, 2)])
    assert (twice.error_code, twice.error_message) == (
        INVALID_REQUEST,
        "Task offsets contain a duplicate entry for subtopology 0 and partition 0.",
    )


# --- interactive queries ----------------------------------------------------------------------------------------------


def endpoints(answer: Any) -> dict[tuple[str, int], tuple[dict[str, list[int]], dict[str, list[int]]]] | None:
    """Active and standby partitions, by topic, of each endpoint; None if unchanged."""
    if answer.partitions_by_user_endpoint is None:
        return None
    return {
        (one.user_endpoint.host, one.user_endpoint.port): (
            {topic.topic: sorted(topic.partitions) for topic in one.active_partitions},
            {topic.topic: sorted(topic.partitions) for topic in one.standby_partitions},
        )
        for one in answer.partitions_by_user_endpoint
    }


def test_partitions_are_found_by_the_endpoints_of_members(scene: Scene) -> None:
    scene.begin(num_standby_replicas="1")
    one, other = scene.member(), scene.member()
    answer = one.join(scene.wanted, endpoint=("one", 1))
    assert endpoints(answer) == {("one", 1): ({}, {})}
    other.join(scene.wanted, endpoint=("two", 2))
    scene.reconcile(one, other)
    one.endpoint_epoch = -1
    found = endpoints(one.heartbeat())
    topic = scene.topic
    assert found == {
        ("one", 1): ({topic: one.active["0"]}, {topic: one.standby["0"]}),
        ("two", 2): ({topic: other.active["0"]}, {topic: other.standby["0"]}),
    }
    assert endpoints(one.heartbeat()) is None, "it knows them"
    changed = other.heartbeat(endpoint=("two", 3))
    assert changed.endpoint_information_epoch == one.endpoint_epoch + 1
    assert ("two", 3) in (endpoints(one.heartbeat()) or {})


def test_members_without_endpoints_change_no_endpoints(scene: Scene) -> None:
    one = scene.alone()
    answer = one.heartbeat()
    assert (answer.endpoint_information_epoch, answer.partitions_by_user_endpoint) == (0, None)


# --- administration ---------------------------------------------------------------------------------------------------


def test_a_group_that_does_not_exist_is_described_by_an_error(scene: Scene) -> None:
    scene.begin()
    for version in (0, 1):
        group = described(scene.wire, scene.group, version)
        assert (group.error_code, group.group_id, group.group_state, group.topology, group.members) == (
            GROUP_ID_NOT_FOUND,
            scene.group,
            "",
            None,
            [],
        )
        assert group.error_message == f"Group {scene.group} not found."


def test_a_description_has_what_its_version_has(scene: Scene) -> None:
    scene.alone()
    request = StreamsGroupDescribeRequest(
        group_ids=[scene.group], include_authorized_operations=True, include_topology_description=True
    )
    (group,) = scene.wire.call(request, 1).groups
    assert (group.assignor_name, group.topology_description, group.topology_description_status) == ("sticky", None, 1)
    assert group.authorized_operations != -(2**31)
    assert described(scene.wire, scene.group).topology_description_status == 0
    assert described(scene.wire, scene.group, 0).authorized_operations == -(2**31)


def test_descriptions_of_topologies_need_a_plugin(scene: Scene) -> None:
    one = scene.alone()
    kind = StreamsGroupTopologyDescriptionUpdateRequest
    description = kind.TopologyDescription(subtopologies=[], global_stores=[])
    request = kind(group_id=scene.group, member_id=one.member_id, topology_epoch=0, topology_description=description)
    answer = scene.wire.call(request, 0)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.UNSUPPORTED_VERSION,
        "The broker has no streams group topology description plugin configured.",
    )
