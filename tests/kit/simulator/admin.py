"""A simulated administrator: makes, grows, alters and deletes topics, and deletes records."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kit.simulator.model import Model
from kit.simulator.topic_model import TopicModel

from ottla.protocol.api.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.api.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

NAMES = [f"topic-{number}" for number in range(6)]
TOPIC_RESOURCE = 2
SET = 0
DELETE = 1
ALTERED_KEY = "max.message.bytes"
"""A key that no other client looks at."""
PLAIN: list[dict[str, str]] = [{}, {}, {"ottla.acks.all": "page-cache"}]
COMPACTED: list[dict[str, str]] = [
    {"cleanup.policy": "compact", "delete.retention.ms": "1000", "segment.bytes": "1024"},
    {"cleanup.policy": "compact", "delete.retention.ms": "1000", "segment.bytes": "1024"},
    {"cleanup.policy": "compact,delete", "retention.bytes": "4000"},
]
RETAINED: list[dict[str, str]] = [
    {"retention.bytes": "3000"},
    {"retention.ms": "120000"},
    {"cleanup.policy": "compact,delete", "retention.bytes": "4000"},
]
KINDS = PLAIN + COMPACTED[:2] + RETAINED


def send_change(line: Line, topic: TopicModel, asked: dict[str, str]) -> None:
    """Let a topic have these settings: one change of each key that is another one."""
    before = topic.settings
    topic.ask_for(asked)

    def answered(response: Response) -> None:
        assert isinstance(response, IncrementalAlterConfigsResponse)
        if response.responses[0].error_code == ErrorCode.NONE:
            topic.note_settings(asked)

    alter = IncrementalAlterConfigsRequest
    configs = [
        alter.AlterableConfig(name=key, config_operation=SET if key in asked else DELETE, value=asked.get(key))
        for key in sorted(before.keys() | asked.keys())
        if before.get(key) != asked.get(key)
    ]
    resource = alter.AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=configs)
    line.send(alter(resources=[resource], validate_only=False), 1, answered)


class Administrator:
    """One change of one topic at a time; nothing is asked of a topic that is being deleted."""

    def __init__(self, model: Model, chance: random.Random, kinds: Sequence[Mapping[str, str]]) -> None:
        self._model = model
        self._chance = chance
        self._kinds = kinds

    def _topic(self) -> TopicModel | None:
        names = sorted(self._model.topics.keys() - self._model.deleting)
        return self._model.topics[self._chance.choice(names)] if names else None

    def create_topic(self, line: Line) -> None:
        """Create a topic of some kind."""
        model = self._model
        free = [name for name in NAMES if name not in model.topics and name not in model.creating]
        if not free:
            return
        self.create_named(line, self._chance.choice(free))

    def create_named(self, line: Line, name: str) -> None:
        """Create a topic of some kind, with this name, which is not there."""
        model, count = self._model, self._chance.choice((1, 1, 2))
        settings = dict(self._chance.choice(self._kinds))
        model.creating[name] = (count, settings)

        def answered(response: Response) -> None:
            assert isinstance(response, CreateTopicsResponse)
            answer = response.topics[0]
            if answer.error_code == ErrorCode.NONE:
                model.creating.pop(name, None)
                if name in model.topics:  # of a former one, whose deletion is done and not answered
                    model.note_topic_gone(name)
                partitions = [model.new_partition(name, index) for index in range(count)]
                model.topics[name] = TopicModel(
                    name, answer.topic_id, settings, partitions, count, acks_all=model.acks_all
                )

        configs = [CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        wanted = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=configs
        )
        line.send(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7, answered)

    def delete_topic(self, line: Line) -> None:
        """Delete a topic."""
        topic = self._topic()
        if topic is not None:
            self._delete(line, topic)

    def replace_topic(self, line: Line, other_line: Line) -> None:
        """Delete a topic and create one of its name, which is sent on another connection and waits for nothing."""
        topic = self._topic()
        if topic is not None and topic.name not in self._model.creating:
            self._delete(line, topic)
            self.create_named(other_line, topic.name)

    def _delete(self, line: Line, topic: TopicModel) -> None:
        name = topic.name
        self._model.deleting.add(name)

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteTopicsResponse)
            is_done = response.responses[0].error_code == ErrorCode.NONE
            if is_done and self._model.topics.get(name) is topic:
                self._model.note_topic_gone(name)

        line.send(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5, answered)

    def grow_topic(self, line: Line) -> None:
        """Give a topic one partition more."""
        topic = self._topic()
        if topic is None or topic.counts_asked > len(topic.partitions) or len(topic.partitions) > 3:
            return
        topic.counts_asked = wanted_count = len(topic.partitions) + 1

        def answered(response: Response) -> None:
            assert isinstance(response, CreatePartitionsResponse)
            if response.results[0].error_code == ErrorCode.NONE:
                # After an error it may be there: the next audit finds out.
                topic.partitions.append(self._model.new_partition(topic.name, len(topic.partitions)))

        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic.name, count=wanted_count, assignments=None)
        line.send(CreatePartitionsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 3, answered)

    def alter_topic(self, line: Line) -> None:
        """Set a key that no other client looks at to a new value."""
        topic = self._topic()
        if topic is None or topic.settings_asked:
            return
        value = str(self._chance.randint(1_000_000, 2_000_000))
        asked = {**topic.settings, ALTERED_KEY: value}
        send_change(line, topic, asked)

    def delete_records(self, line: Line) -> None:
        """Delete everything that a partition shows now."""
        topic = self._topic()
        if topic is None or topic.is_compacted:
            return
        index = self._chance.randrange(len(topic.partitions))
        known = topic.partitions[index]
        if known.start_asked > known.start:
            return  # one is under way
        known.start_asked = (1 << 63) - 1  # it may delete up to a high watermark that no client has received yet

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteRecordsResponse)
            answer = response.topics[0].partitions[0]
            if answer.error_code == ErrorCode.NONE:
                known.start = max(known.start, answer.low_watermark)
                known.start_asked = known.start

        wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=-1)
        of_topic = DeleteRecordsRequest.DeleteRecordsTopic(name=topic.name, partitions=[wanted])
        line.send(DeleteRecordsRequest(topics=[of_topic], timeout_ms=30_000), 2, answered)
