"""A topology compared with the topics that exist: the tasks of each subtopology, and what prevents them.

    topology: "0" reads orders (6 partitions), writes app-by-user-repartition; "1" reads that, has a store
    tasks:    "0": 6, "1": 6                       app-by-user-repartition and app-store-changelog get 6 partitions

A topology is ready when all its topics exist with the right numbers of partitions. Otherwise it has a problem, which
is sent to the members as a status, and perhaps internal topics to create. A topology whose numbers of partitions cannot
be decided at all is an error of the application.

Source: Kafka 4.4's `InternalTopicManager`, `ConfiguredTopology`, `ConfiguredSubtopology` and `ConfiguredInternalTopic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.groups.streams.hash_order import in_hash_order
from ottla.broker.groups.streams.partition_counts import TopicProblem, decide, partition_count, summary
from ottla.broker.groups.streams.tasks import TaskIds
from ottla.broker.groups.streams.topology import Subtopology, TopicInfo, Topology, source_topics_of
from ottla.broker.groups.topics import TopicView
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError

MAX_TASKS = 10_000
"""Tasks in one topology. The broker assigns them in one piece: 1 to 3 microseconds for each task and copy."""


class InternalTopic(NamedTuple):
    """A repartition or changelog topic as the topology needs it. `replication_factor`: 0 for the broker's default."""

    name: str
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with its number of tasks; the topics are sorted by name."""

    task_count: int
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: tuple[InternalTopic, ...]
    state_changelog_topics: tuple[InternalTopic, ...]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state, and so may have standby tasks."""
        return bool(self.state_changelog_topics)

    @property
    def all_source_topics(self) -> tuple[str, ...]:
        """The topics that it reads, its repartition topics last."""
        return (*self.source_topics, *(topic.name for topic in self.repartition_source_topics))


class ConfiguredTopology(NamedTuple):
    """A topology after the comparison with the topics."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, sorted; None if the numbers of tasks are not known."""
    topics_to_create: tuple[InternalTopic, ...] = ()
    """The internal topics that are missing."""
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure(topology: Topology, topics: TopicView) -> ConfiguredTopology:
    """Compare a topology with the topics.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY if its numbers of partitions cannot be decided, or if it has more than
    `MAX_TASKS` tasks.
    """
    decided = decide(topology, topics)
    if isinstance(decided, TopicProblem):
        return ConfiguredTopology(topology.epoch, None, problem=decided)
    subtopologies = {
        subtopology_id: _configured(topology.subtopologies[subtopology_id], topics, decided)
        for subtopology_id in sorted(topology.subtopologies)
    }
    task_count = sum(subtopology.task_count for subtopology in subtopologies.values())
    if task_count > MAX_TASKS:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"The topology has {task_count} tasks, more than {MAX_TASKS}."
        )
    missing = _missing(topology, subtopologies, topics)
    if isinstance(missing, TopicProblem):
        return ConfiguredTopology(topology.epoch, None, problem=missing)
    if not missing:
        return ConfiguredTopology(topology.epoch, subtopologies)
    detail = f"Internal topics are missing: {summary([topic.name for topic in missing])}"
    problem = TopicProblem(StreamsGroupStatus.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, missing, problem)


def check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], listed: Iterable[TaskIds]) -> None:
    """Raise KafkaError INVALID_REQUEST for a task that a member reports, and that the topology does not have."""
    for tasks in listed:
        subtopology = subtopologies.get(tasks.subtopology_id)
        if subtopology is None:
            text = f"Subtopology {tasks.subtopology_id} does not exist in the topology."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        for partition in tasks.partitions:
            if not 0 <= partition < subtopology.task_count:
                text = (
                    f"Task {partition} for subtopology {tasks.subtopology_id} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.task_count}"
                )
                raise KafkaError(ErrorCode.INVALID_REQUEST, text)


def _configured(subtopology: Subtopology, topics: TopicView, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    counts = [partition_count(topics, name) or decided[name] for name in source_topics_of(subtopology)]
    return ConfiguredSubtopology(
        max(counts),
        tuple(sorted(set(subtopology.source_topics))),
        tuple(sorted(set(subtopology.repartition_sink_topics))),
        _internal(subtopology.repartition_source_topics, decided),
        _internal(subtopology.state_changelog_topics, decided),
    )


def _internal(topics: list[TopicInfo], decided: Mapping[str, int]) -> tuple[InternalTopic, ...]:
    found = (
        InternalTopic(
            topic.name,
            topic.partitions or decided[topic.name],
            topic.replication_factor,
            _configs(topic),
        )
        for topic in topics
    )
    return tuple(sorted(found, key=lambda topic: topic.name))


def _configs(topic: TopicInfo) -> dict[str, str]:
    """The configuration of an internal topic, in the order in which Kafka lists it."""
    values = {config.key: config.value for config in topic.topic_configs}
    return {key: values[key] for key in in_hash_order(values)}


def _missing(
    topology: Topology, subtopologies: Mapping[str, ConfiguredSubtopology], topics: TopicView
) -> tuple[InternalTopic, ...] | TopicProblem:
    """The internal topics that do not exist. A problem if one exists with another number of partitions."""
    internal = {
        topic.name: topic
        for subtopology in subtopologies.values()
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics)
    }
    for name in topology.required_topics:
        found = partition_count(topics, name)
        if name in internal and found and found != internal[name].partition_count:
            detail = (
                f"Existing topic {name} has different number of partitions: "
                f"expected {internal[name].partition_count}, found {found}"
            )
            return TopicProblem(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return tuple(internal[name] for name in in_hash_order(internal) if partition_count(topics, name) is None)
