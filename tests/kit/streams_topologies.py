"""Topologies of streams groups, as members send them and as they are stored, in few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.broker.groups.streams.topology import Topology, topology_of_request
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request


def internal_topic(name: str, partitions: int = 0, replicas: int = 0, **configs: str) -> Request.TopicInfo:
    """A repartition or changelog topic; `cleanup_policy="compact"` is the configuration `cleanup.policy`."""
    listed = [Request.KeyValue(key=key.replace("_", "."), value=value) for key, value in configs.items()]
    return Request.TopicInfo(name=name, partitions=partitions, replication_factor=replicas, topic_configs=listed)


def subtopology(
    subtopology_id: str = "0",
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    repartition: Iterable[Request.TopicInfo] = (),
    changelog: Iterable[Request.TopicInfo] = (),
    joins: Iterable[tuple[list[int], list[int]]] = (),
    **fields: Any,
) -> Request.Subtopology:
    """A subtopology. `joins`: for each copartition group, indexes into `reads` and into `repartition`."""
    values: dict[str, Any] = {
        "subtopology_id": subtopology_id,
        "source_topics": list(reads),
        "source_topic_regex": [],
        "state_changelog_topics": list(changelog),
        "repartition_sink_topics": list(writes),
        "repartition_source_topics": list(repartition),
        "copartition_groups": [
            Request.CopartitionGroup(source_topics=sources, source_topic_regex=[], repartition_source_topics=internal)
            for sources, internal in joins
        ],
    }
    return Request.Subtopology(**(values | fields))


def request_topology(*subtopologies: Request.Subtopology, epoch: int = 1) -> Request.Topology:
    """A topology as a member sends it."""
    return Request.Topology(epoch=epoch, subtopologies=list(subtopologies))


def topology(*subtopologies: Request.Subtopology, epoch: int = 1) -> Topology:
    """A topology as a group has it."""
    return topology_of_request(request_topology(*subtopologies, epoch=epoch))


def counts(topics: Iterable[Any]) -> Mapping[str, int]:
    """The numbers of partitions of internal topics by name."""
    return {topic.name: topic.partition_count for topic in topics}


WORD_COUNT = (
    subtopology("0", reads=["lines"], writes=["app-words-repartition"]),
    subtopology(
        "1",
        repartition=[internal_topic("app-words-repartition", cleanup_policy="delete")],
        changelog=[internal_topic("app-counts-changelog", cleanup_policy="compact")],
    ),
)
"""The two subtopologies of the usual example: words by key, then their numbers."""
