"""A topology as StreamsGroupDescribe shows it: with the decided numbers of partitions if it is ready, or else as sent.

Source: Kafka 4.4's `ConfiguredTopology.asStreamsGroupDescribeTopology` and `StreamsTopology`'s method of that name.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology, ConfiguredTopology, InternalTopic
from ottla.broker.groups.streams.topology import Subtopology, TopicInfo, Topology
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse as Response


def describe_topology(topology: Topology, configured: ConfiguredTopology | None) -> Response.Topology:
    """The subtopologies, sorted by id, with their topics sorted by name. `configured`: None if it is not known yet."""
    if configured is not None and configured.is_ready and configured.subtopologies is not None:
        subtopologies = [_decided(key, subtopology) for key, subtopology in configured.subtopologies.items()]
    else:
        subtopologies = [_as_sent(topology.subtopologies[key]) for key in sorted(topology.subtopologies)]
    return Response.Topology(epoch=topology.epoch, subtopologies=subtopologies)


def _decided(subtopology_id: str, subtopology: ConfiguredSubtopology) -> Response.Subtopology:
    return Response.Subtopology(
        subtopology_id=subtopology_id,
        source_topics=list(subtopology.source_topics),
        repartition_sink_topics=list(subtopology.repartition_sink_topics),
        state_changelog_topics=[_decided_topic(topic) for topic in subtopology.state_changelog_topics],
        repartition_source_topics=[_decided_topic(topic) for topic in subtopology.repartition_source_topics],
    )


def _decided_topic(topic: InternalTopic) -> Response.TopicInfo:
    return Response.TopicInfo(
        name=topic.name,
        partitions=topic.partition_count,
        replication_factor=topic.replication_factor,
        topic_configs=_configs(topic.configs.items()),
    )


def _as_sent(subtopology: Subtopology) -> Response.Subtopology:
    return Response.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
        state_changelog_topics=_topics_as_sent(subtopology.state_changelog_topics),
        repartition_source_topics=_topics_as_sent(subtopology.repartition_source_topics),
    )


def _topics_as_sent(topics: list[TopicInfo]) -> list[Response.TopicInfo]:
    return [
        Response.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=_configs((config.key, config.value) for config in topic.topic_configs),
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _configs(configs: Iterable[tuple[str, str]]) -> list[Response.KeyValue]:
    return [Response.KeyValue(key=key, value=value) for key, value in configs]
