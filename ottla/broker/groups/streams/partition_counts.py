"""The numbers of partitions of a topology's internal topics.

A repartition topic has the number that the application fixed, or else that of the largest topic that its writers read.
Topics that are joined (a copartition group) must agree: the repartition topics among them follow the others. A
changelog topic has as many as the largest topic that its subtopology reads. A topic that exists counts with the
partitions that it has.

Source: Kafka 4.4's `InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer` and `ChangelogTopics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ottla.broker.groups.streams.hash_order import in_hash_order
from ottla.broker.groups.streams.topology import Subtopology, TopicInfo, Topology, source_topics_of
from ottla.broker.groups.topics import TopicView
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupStatus
from ottla.protocol.errors import ErrorCode, KafkaError

_SHOWN_TOPICS = 3
_CountOf: TypeAlias = Callable[[str], int]


class TopicProblem(NamedTuple):
    """The reason why tasks cannot be assigned, as it is sent to the members."""

    status: StreamsGroupStatus
    detail: str


class _Disagreement(Exception):
    """Topics whose numbers of partitions do not fit together."""


def partition_count(topics: TopicView, name: str) -> int | None:
    """The number of a topic's partitions, None if there is no such topic."""
    topic_id = topics.id_of(name)
    return None if topic_id is None else topics.partition_count(topic_id)


def summary(names: list[str]) -> str:
    """The first three names, and how many more there are."""
    more = len(names) - _SHOWN_TOPICS
    return ", ".join(names[:_SHOWN_TOPICS]) + (f" and {more} additional topics" if more > 0 else "")


def decide(topology: Topology, topics: TopicView) -> dict[str, int] | TopicProblem:
    """The number of partitions of each internal topic. A problem if source topics are missing or do not fit together.

    Raises KafkaError STREAMS_INVALID_TOPOLOGY if the number of a topic cannot be decided.
    """
    names = {name for subtopology in topology.subtopologies.values() for name in subtopology.source_topics}
    missing = sorted(name for name in names if partition_count(topics, name) is None)
    if missing:
        return TopicProblem(StreamsGroupStatus.MISSING_SOURCE_TOPICS, f"Source topics {summary(missing)} are missing.")
    decided = _repartition_counts(topology, topics)

    def count_of(name: str) -> int:
        return partition_count(topics, name) or decided[name]

    try:
        _make_copartitioned(topology, decided, count_of)
    except _Disagreement as disagreement:
        return TopicProblem(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, str(disagreement))
    decided.update(_changelog_counts(topology, count_of))
    return decided


def _repartition_counts(topology: Topology, topics: TopicView) -> dict[str, int]:
    decided = {topic.name: topic.partitions for topic in _repartition_topics(topology) if topic.partitions != 0}
    waiting = True
    while waiting:
        waiting = progress = False
        for subtopology in topology.subtopologies.values():
            for sink in subtopology.repartition_sink_topics:
                if sink in decided:
                    continue
                count = _largest_source(subtopology, decided, topics)
                if count is None:
                    waiting = True
                else:
                    decided[sink] = count
                    progress = True
        if waiting and not progress:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. "
                "There may be loops in the topology that cannot be resolved."
            )
    if any(topic.name not in decided for topic in _repartition_topics(topology)):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, "
            "because a repartition source topic is never used as a sink topic."
        )
    return decided


def _largest_source(subtopology: Subtopology, decided: Mapping[str, int], topics: TopicView) -> int | None:
    """The partitions of the largest topic that a subtopology reads, of those that are known; None if none is."""
    internal = [decided.get(topic.name) for topic in subtopology.repartition_source_topics]
    external = [partition_count(topics, name) for name in subtopology.source_topics]
    return max((count for count in (*internal, *external) if count is not None), default=None)


def _make_copartitioned(topology: Topology, decided: dict[str, int], count_of: _CountOf) -> None:
    """Give the repartition topics of each copartition group the number of its other topics.

    Raises _Disagreement. In a group of repartition topics alone, Kafka looks at the fixed numbers of the whole
    topology, not at those of the group.
    """
    internal = _repartition_topics(topology)
    fixed = in_hash_order(topic.name for topic in internal if topic.partitions != 0)
    names = {topic.name for topic in internal}
    for subtopology in topology.subtopologies.values():
        for group in subtopology.copartition_groups:
            members = in_hash_order(
                [
                    *(subtopology.source_topics[index] for index in group.source_topics),
                    *(subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics),
                ]
            )
            repartition = {name: count_of(name) for name in in_hash_order(name for name in members if name in names)}
            external = {name: count_of(name) for name in members if name not in names}
            if not members:
                continue
            if external:
                agreed = _same(external, external)
            elif fixed:
                agreed = _same({name: count_of(name) for name in fixed}, repartition)
            else:
                agreed = max(repartition.values())
            for name, count in repartition.items():
                if name in fixed and count != agreed:
                    raise _Disagreement(
                        f"Number of partitions [{count}] of repartition topic [{name}] doesn't match "
                        f"number of partitions [{agreed}] of the source topic."
                    )
                decided[name] = agreed


def _same(counts: Mapping[str, int], named: Mapping[str, int]) -> int:
    """The number that all topics have. Raises _Disagreement, which names other topics if they are to blame."""
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{name}={named[name]}" for name in sorted(named))
        raise _Disagreement(f"Following topics do not have the same number of partitions: [{{{shown}}}]")
    return next(iter(counts.values()))


def _changelog_counts(topology: Topology, count_of: _CountOf) -> dict[str, int]:
    counts: dict[str, int] = {}
    for subtopology in topology.subtopologies.values():
        sources = source_topics_of(subtopology)
        if not sources:
            raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
        largest = max(count_of(name) for name in sources)
        counts.update((topic.name, largest) for topic in subtopology.state_changelog_topics)
    return counts


def _repartition_topics(topology: Topology) -> list[TopicInfo]:
    return [topic for subtopology in topology.subtopologies.values() for topic in subtopology.repartition_source_topics]


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
