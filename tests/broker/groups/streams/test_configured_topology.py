"""What the topics that exist make of a topology: tasks, internal topics to create, and problems."""

from __future__ import annotations

import pytest
from kit.consumer_groups import FakeTopics
from kit.streams_topologies import WORD_COUNT, counts, internal_topic, subtopology, topology

from ottla.broker.groups.streams.configured_topology import MAX_TASKS, check_tasks, configure
from ottla.broker.groups.streams.topology import Topology
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError

PARTS, LOG = "app-words-repartition", "app-counts-changelog"


def problem(some: Topology, **topics: int) -> tuple[StreamsGroupStatus, str]:
    configured = configure(some, FakeTopics(topics))
    assert configured.problem is not None
    assert not configured.is_ready
    return configured.problem


def invalid(some: Topology, **topics: int) -> str:
    with pytest.raises(KafkaError) as caught:
        configure(some, FakeTopics(topics))
    assert caught.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY
    return caught.value.message


def test_internal_topics_follow_the_topics_that_are_read() -> None:
    configured = configure(topology(*WORD_COUNT), FakeTopics({"lines": 6}))
    assert counts(configured.topics_to_create) == {PARTS: 6, LOG: 6}
    assert {topic.name: topic.configs for topic in configured.topics_to_create} == {
        PARTS: {"cleanup.policy": "delete"},
        LOG: {"cleanup.policy": "compact"},
    }
    assert configured.subtopologies is not None
    assert {key: one.task_count for key, one in configured.subtopologies.items()} == {"0": 6, "1": 6}
    assert [one.is_stateful for one in configured.subtopologies.values()] == [False, True]
    assert configured.problem == (
        StreamsGroupStatus.MISSING_INTERNAL_TOPICS,
        f"Internal topics are missing: {LOG}, {PARTS}",
    )


def test_a_topology_is_ready_when_all_its_topics_exist() -> None:
    configured = configure(topology(*WORD_COUNT, epoch=7), FakeTopics({"lines": 6, PARTS: 6, LOG: 6}))
    assert configured.is_ready
    assert (configured.epoch, configured.topics_to_create, configured.problem) == (7, (), None)


def test_only_the_missing_topics_are_created() -> None:
    configured = configure(topology(*WORD_COUNT), FakeTopics({"lines": 6, PARTS: 6}))
    assert counts(configured.topics_to_create) == {LOG: 6}


def test_missing_source_topics_are_named_in_order_and_three_at_most() -> None:
    some = topology(subtopology(reads=["e", "d", "c", "b", "a"]))
    assert problem(some, c=1) == (
        StreamsGroupStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, d and 1 additional topics are missing.",
    )
    assert problem(some, c=1, d=1)[1] == "Source topics a, b, e are missing."


@pytest.mark.parametrize("count", [5, 7])
def test_an_internal_topic_with_another_number_of_partitions_is_a_problem(count: int) -> None:
    assert problem(topology(*WORD_COUNT), lines=6, **{PARTS: 6, LOG: count}) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        f"Existing topic {LOG} has different number of partitions: expected 6, found {count}",
    )


def test_an_application_may_fix_the_partitions_of_a_repartition_topic() -> None:
    some = topology(
        subtopology("0", reads=["lines"], writes=["parts"]),
        subtopology("1", repartition=[internal_topic("parts", 2, replicas=1)], changelog=[internal_topic("log")]),
    )
    configured = configure(some, FakeTopics({"lines": 6}))
    assert counts(configured.topics_to_create) == {"parts": 2, "log": 2}
    assert {topic.name: topic.replication_factor for topic in configured.topics_to_create} == {"parts": 1, "log": 0}


def test_a_chain_of_repartition_topics_is_followed_in_any_order() -> None:
    some = topology(
        subtopology("2", repartition=[internal_topic("second")]),
        subtopology("1", repartition=[internal_topic("first")], writes=["second"]),
        subtopology("0", reads=["small", "large"], writes=["first"]),
    )
    configured = configure(some, FakeTopics({"small": 2, "large": 5}))
    assert counts(configured.topics_to_create) == {"first": 5, "second": 5}


def test_a_repartition_topic_that_is_joined_gets_the_partitions_of_the_other_topic() -> None:
    some = topology(
        subtopology("0", reads=["orders"], writes=["parts"]),
        subtopology("1", reads=["users"], repartition=[internal_topic("parts")], joins=[([0], [0])]),
    )
    assert counts(configure(some, FakeTopics({"orders": 6, "users": 4})).topics_to_create) == {"parts": 4}


def test_a_fixed_repartition_topic_must_suit_the_topic_that_it_is_joined_with() -> None:
    some = topology(
        subtopology("0", reads=["orders"], writes=["parts"]),
        subtopology("1", reads=["users"], repartition=[internal_topic("parts", 3)], joins=[([0], [0])]),
    )
    assert problem(some, orders=6, users=4) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [parts] doesn't match "
        "number of partitions [4] of the source topic.",
    )
    assert counts(configure(some, FakeTopics({"orders": 6, "users": 3})).topics_to_create) == {"parts": 3}


def test_joined_source_topics_must_have_the_same_number_of_partitions() -> None:
    some = topology(subtopology(reads=["b", "a"], joins=[([0, 1], [])]))
    assert problem(some, a=2, b=3) == (
        StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=3}]",
    )
    assert configure(some, FakeTopics({"a": 3, "b": 3})).is_ready


def test_joined_repartition_topics_get_the_largest_number() -> None:
    some = topology(
        subtopology("0", reads=["a"], writes=["p"]),
        subtopology("1", reads=["b"], writes=["q"]),
        subtopology("2", repartition=[internal_topic("p"), internal_topic("q")], joins=[([], [0, 1])]),
    )
    assert counts(configure(some, FakeTopics({"a": 2, "b": 5})).topics_to_create) == {"p": 5, "q": 5}


def test_joined_repartition_topics_with_different_fixed_numbers_are_a_problem() -> None:
    some = topology(
        subtopology("0", reads=["a"], writes=["p", "q"]),
        subtopology("1", repartition=[internal_topic("q", 3), internal_topic("p", 2)], joins=[([], [0, 1])]),
    )
    assert problem(some, a=1)[1] == "Following topics do not have the same number of partitions: [{p=2, q=3}]"


def test_a_loop_of_repartition_topics_is_an_error_of_the_application() -> None:
    some = topology(
        subtopology("0", repartition=[internal_topic("p")], writes=["q"]),
        subtopology("1", repartition=[internal_topic("q")], writes=["p"]),
    )
    assert "There may be loops in the topology" in invalid(some)


def test_a_repartition_topic_that_is_never_written_is_an_error() -> None:
    assert "never used as a sink topic" in invalid(topology(subtopology(repartition=[internal_topic("p")])))


def test_a_subtopology_that_reads_nothing_is_an_error() -> None:
    assert invalid(topology(subtopology("7"))) == "No source topics found for subtopology 7"


def test_the_number_of_tasks_is_bounded() -> None:
    half = MAX_TASKS // 2
    some = topology(subtopology("0", reads=["a"]), subtopology("1", reads=["b"]))
    assert configure(some, FakeTopics({"a": half, "b": MAX_TASKS - half})).is_ready
    assert "more than 10000" in invalid(some, a=half + 1, b=MAX_TASKS - half)


def test_a_topology_without_subtopologies_has_no_tasks_and_is_ready() -> None:
    configured = configure(topology(), FakeTopics())
    assert configured.is_ready
    assert configured.subtopologies == {}


def test_owned_tasks_must_be_in_the_topology() -> None:
    subtopologies = configure(topology(subtopology("0", reads=["a"])), FakeTopics({"a": 2})).subtopologies
    assert subtopologies is not None

    def owned(subtopology_id: str, *partitions: int) -> list[StreamsGroupHeartbeatRequest.TaskIds]:
        return [StreamsGroupHeartbeatRequest.TaskIds(subtopology_id=subtopology_id, partitions=list(partitions))]

    check_tasks(subtopologies, owned("0", 0, 1))
    for tasks, message in (
        (owned("1", 0), "Subtopology 1 does not exist in the topology."),
        (owned("0", 2), "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
        (owned("0", -1), "Task -1 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
    ):
        with pytest.raises(KafkaError) as caught:
            check_tasks(subtopologies, tasks)
        assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, message)
