"""Answers about a topology: its description for administrators, and the partitions by endpoint for members."""

from __future__ import annotations

from kit.consumer_groups import FakeTopics
from kit.streams_topologies import WORD_COUNT, internal_topic, subtopology, topology

from ottla.broker.groups.streams.configured_topology import configure
from ottla.broker.groups.streams.endpoints import topic_partitions
from ottla.broker.groups.streams.topology_description import describe_topology

PARTS, LOG = "app-words-repartition", "app-counts-changelog"


def test_a_topology_that_is_ready_is_described_with_its_partitions() -> None:
    words = topology(*WORD_COUNT, epoch=4)
    described = describe_topology(words, configure(words, FakeTopics({"lines": 6, PARTS: 6, LOG: 6})))
    assert described.epoch == 4
    assert described.subtopologies is not None
    first, second = described.subtopologies
    assert (first.subtopology_id, first.source_topics, first.repartition_sink_topics) == ("0", ["lines"], [PARTS])
    changelog = second.state_changelog_topics[0]
    assert (changelog.name, changelog.partitions, changelog.replication_factor) == (LOG, 6, 0)
    assert [(config.key, config.value) for config in changelog.topic_configs] == [("cleanup.policy", "compact")]
    assert [topic.partitions for topic in second.repartition_source_topics] == [6]


def test_a_topology_that_is_not_ready_is_described_as_it_was_sent() -> None:
    some = topology(
        subtopology("1", reads=["b", "a"], repartition=[internal_topic("q", 2), internal_topic("p")]),
        subtopology("0", reads=["c"], writes=["q", "p"]),
    )
    for configured in (None, configure(some, FakeTopics()), configure(some, FakeTopics({"a": 1, "b": 1, "c": 1}))):
        described = describe_topology(some, configured)
        assert described.subtopologies is not None
        assert [one.subtopology_id for one in described.subtopologies] == ["0", "1"]
        assert described.subtopologies[0].repartition_sink_topics == ["p", "q"]
        assert described.subtopologies[1].source_topics == ["a", "b"]
        parts = described.subtopologies[1].repartition_source_topics
        assert [(topic.name, topic.partitions) for topic in parts] == [("p", 0), ("q", 2)]


def test_tasks_are_shown_as_the_partitions_that_they_read() -> None:
    some = topology(
        subtopology("0", reads=["large", "small"], writes=["parts"]),
        subtopology("1", repartition=[internal_topic("parts")], changelog=[internal_topic("log")]),
    )
    topics = FakeTopics({"large": 4, "small": 2, "parts": 4, "log": 4})
    subtopologies = configure(some, topics).subtopologies
    assert subtopologies is not None
    tasks = {"1": frozenset({0}), "0": frozenset({3, 1}), "gone": frozenset({0})}
    found = topic_partitions(tasks, subtopologies, topics)
    assert [(one.topic, one.partitions) for one in found] == [("large", [1, 3]), ("small", [1]), ("parts", [0])]


def test_a_topic_that_was_deleted_is_left_out() -> None:
    some = topology(subtopology("0", reads=["a", "b"]))
    subtopologies = configure(some, FakeTopics({"a": 2, "b": 2})).subtopologies
    assert subtopologies is not None
    found = topic_partitions({"0": frozenset({0})}, subtopologies, FakeTopics({"b": 2}))
    assert [(one.topic, one.partitions) for one in found] == [("b", [0])]
