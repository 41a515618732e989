"""The topology of a streams group: checked as a member sends it, and kept as its record has it.

A topology has subtopologies. A subtopology reads source topics and repartition topics, writes repartition topics, and
has changelog topics for its state; each partition that it reads is a task. Repartition and changelog topics are
internal: the broker creates them. How many partitions they get is decided in `configured_topology`.

The first three checks are in the order in which Kafka makes them. `check_structure` also refuses what makes Kafka
answer UNKNOWN_SERVER_ERROR.

Source: Kafka 4.4's `StreamsTopology`, `StreamsCoordinatorRecordHelpers.convertToStreamsGroupTopologyRecord`, and the
checks of topologies in `KafkaApis.handleStreamsGroupHeartbeat` and `GroupCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from ottla.broker.groups.streams.hash_order import in_hash_order
from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import StreamsGroupTopologyValue
from ottla.storage.formats.layout import INTERNAL_TOPICS, topic_name_problem

Subtopology: TypeAlias = StreamsGroupTopologyValue.Subtopology
"""A subtopology as it is stored."""
TopicInfo: TypeAlias = StreamsGroupTopologyValue.TopicInfo
"""An internal topic as it is stored."""


class Topology:
    """A topology with the look-ups that a group needs. Equal if the records are. Immutable."""

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        by_id = {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies}
        self.value = value
        """The record."""
        self.subtopologies: Mapping[str, Subtopology] = {one: by_id[one] for one in in_hash_order(by_id)}
        """By id, in the order in which Kafka walks over them."""
        self.subtopology_by_source: Mapping[str, str] = {
            name: subtopology.subtopology_id
            for subtopology in self.subtopologies.values()
            for name in source_topics_of(subtopology)
        }
        """The id of the subtopology that reads a topic, by the topic's name."""
        self.required_topics: tuple[str, ...] = tuple(
            in_hash_order(name for subtopology in self.subtopologies.values() for name in _required_by(subtopology))
        )
        """The topics that the tasks read and write: source, repartition and changelog topics, each once."""

    @property
    def epoch(self) -> int:
        """The number by which the application counts its topologies."""
        return self.value.epoch

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self.epoch == other.epoch and self.subtopologies == other.subtopologies

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __repr__(self) -> str:
        return f"Topology({self.value!r})"


def source_topics_of(subtopology: Subtopology) -> list[str]:
    """The topics that a subtopology reads, its repartition topics last."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def topology_of_request(topology: StreamsGroupHeartbeatRequest.Topology) -> Topology:
    """The topology that a member sent, which has passed the checks."""
    return Topology(
        StreamsGroupTopologyValue(
            epoch=topology.epoch, subtopologies=[_stored(subtopology) for subtopology in topology.subtopologies]
        )
    )


def named_topics(topology: StreamsGroupHeartbeatRequest.Topology) -> list[str]:
    """All topics that a topology names, each once: the member needs the right to DESCRIBE them."""
    names = (
        name
        for subtopology in topology.subtopologies
        for name in (
            *subtopology.source_topics,
            *subtopology.repartition_sink_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )
    return list(dict.fromkeys(names))


def check_topic_names(names: Iterable[str]) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY for topics of the broker and for names that no topic may have."""
    names = list(names)
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        text = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    invalid = [name for name in names if topic_name_problem(name) is not None]
    if invalid:
        text = f"Topic names {','.join(invalid)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def check_expressions(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    """Raise KafkaError INVALID_REQUEST for regular expressions, which Kafka 4.4 does not support either."""
    if any(subtopology.source_topic_regex for subtopology in topology.subtopologies):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")


def check_structure(topology: StreamsGroupHeartbeatRequest.Topology) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY or STREAMS_INVALID_TOPOLOGY_EPOCH for a topology that contradicts
    itself.
    """
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, "
                    f"but it is set to {topic.partitions}."
                )
    if topology.epoch < 0:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH,
            f"The topology epoch is {topology.epoch}, but must not be negative.",
        )
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise _invalid("Two subtopologies have the same id.")
    for subtopology in topology.subtopologies:
        _check_subtopology(subtopology)


def _check_subtopology(subtopology: StreamsGroupHeartbeatRequest.Subtopology) -> None:
    place = f"Subtopology {subtopology.subtopology_id}"
    internal = (subtopology.repartition_source_topics, subtopology.state_changelog_topics)
    for topics in internal:
        names = [topic.name for topic in topics]
        if len(set(names)) < len(names):
            raise _invalid(f"{place} names an internal topic twice.")
        for topic in topics:
            if topic.partitions < 0 or topic.replication_factor < -1:
                raise _invalid(f"{place}: the partitions or replicas of {topic.name} are negative.")
            keys = [config.key for config in topic.topic_configs]
            if len(set(keys)) < len(keys):
                raise _invalid(f"{place} configures {topic.name} with a key twice.")
    sources, repartitions = len(subtopology.source_topics), len(subtopology.repartition_source_topics)
    for group in subtopology.copartition_groups:
        if not (
            _are_indexes(group.source_topics, sources) and _are_indexes(group.repartition_source_topics, repartitions)
        ):
            raise _invalid(f"{place} has a copartition group with an index that is out of range.")


def _are_indexes(indexes: Iterable[int], length: int) -> bool:
    return all(0 <= index < length for index in indexes)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _required_by(subtopology: Subtopology) -> list[str]:
    return [*source_topics_of(subtopology), *(topic.name for topic in subtopology.state_changelog_topics)]


def _stored(subtopology: StreamsGroupHeartbeatRequest.Subtopology) -> Subtopology:
    return StreamsGroupTopologyValue.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=subtopology.source_topics,
        source_topic_regex=subtopology.source_topic_regex,
        state_changelog_topics=[_stored_topic(topic) for topic in subtopology.state_changelog_topics],
        repartition_sink_topics=subtopology.repartition_sink_topics,
        repartition_source_topics=[_stored_topic(topic) for topic in subtopology.repartition_source_topics],
        copartition_groups=[
            StreamsGroupTopologyValue.CopartitionGroup(
                source_topics=group.source_topics,
                source_topic_regex=group.source_topic_regex,
                repartition_source_topics=group.repartition_source_topics,
            )
            for group in subtopology.copartition_groups
        ],
    )


def _stored_topic(topic: StreamsGroupHeartbeatRequest.TopicInfo) -> TopicInfo:
    return StreamsGroupTopologyValue.TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[
            StreamsGroupTopologyValue.TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs
        ],
    )
