"""The source partitions of tasks, as members get them for interactive queries.

A client that answers queries has an endpoint. Every member gets, for each endpoint, the partitions of source topics
that are processed there, and those of which standby tasks have copies of the state. A subtopology with topics of 2 and
4 partitions has 4 tasks; its task 3 reads a partition of the larger topic only.

Source: Kafka 4.4's `EndpointToPartitionsManager`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
from ottla.broker.groups.streams.partition_counts import partition_count
from ottla.broker.groups.streams.tasks import Tasks
from ottla.broker.groups.topics import TopicView
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse


def topic_partitions(
    tasks: Tasks, subtopologies: Mapping[str, ConfiguredSubtopology], topics: TopicView
) -> list[StreamsGroupHeartbeatResponse.TopicPartition]:
    """The partitions that tasks read, by topic, in the order of the subtopologies and of the topics' names.

    Tasks of subtopologies that are no longer there and topics that were deleted are left out.
    """
    found = []
    for subtopology_id in sorted(tasks):
        subtopology = subtopologies.get(subtopology_id)
        for name in sorted(set(subtopology.all_source_topics)) if subtopology is not None else ():
            count = partition_count(topics, name) or 0
            partitions = sorted(partition for partition in tasks[subtopology_id] if partition < count)
            if partitions:
                found.append(StreamsGroupHeartbeatResponse.TopicPartition(topic=name, partitions=partitions))
    return found
