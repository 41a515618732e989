"""CreateTopics (key 19), versions 0-7: create topics, each independently; the answer is sent when they accept requests,
but at half of `timeout_ms` at the latest, if their creation is on disk in the metadata log.

`validate_only` runs every check and creates nothing. From version 5 on the response has the number of partitions, the
replication factor and the whole configuration. A replication factor above 1 is INVALID_REPLICATION_FACTOR (or counts
as 1, see `ottla.replication.factor.lenient`); a manual assignment may name only this broker.

Difference from Kafka: there a topic may not be usable yet when the answer arrives. Here that is so only for topics of
thousands of partitions (`catalog/answer_in_time.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.catalog.answer_in_time import AnswerInTime
from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import NewTopic, TopicResult
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.config.topic import TopicConfig

FIRST_VERSION_WITH_CONFIGS = 5
REPLICATION_FACTOR = 1

NEEDS = (
    Need(
        AclOperation.CREATE,
        ResourceType.TOPIC,
        unless=(AclOperation.CREATE, ResourceType.CLUSTER),
        lacking="the topic is refused",
    ),
    Need(
        AclOperation.DESCRIBE_CONFIGS,
        ResourceType.TOPIC,
        when="the answer has the configuration of the topic",
        lacking="the topic is created, and its configuration is left out",
    ),
)
CHUNKS = (Chunks(("topics",), ("topics",)),)


def handle(request: CreateTopicsRequest, context: Context) -> Pending[CreateTopicsResponse]:
    """Answer once the topics accept requests, or in time."""
    pending: Pending[CreateTopicsResponse] = Pending()
    asked = [
        NewTopic(
            name=topic.name,
            partitions=topic.num_partitions,
            replication_factor=topic.replication_factor,
            assignments=[(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
            configs=[(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    times = Counter(topic.name for topic in asked)
    refused = {topic.name for topic in asked if times[topic.name] == 1 and not _may_create(topic.name, context)}

    def answer(results: Sequence[TopicResult]) -> None:
        unique = {result.name: result for result in results}
        described = _Described() if context.api_version >= FIRST_VERSION_WITH_CONFIGS else None
        answers = [_result(result, described, context) for result in unique.values()]
        answers += [
            CreateTopicsResponse.CreatableTopicResult(
                name=name,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                error_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.message,
            )
            for name in refused
        ]
        pending.complete(CreateTopicsResponse(topics=answers))

    permitted = [topic for topic in asked if topic.name not in refused]
    services = context.services
    timed = AnswerInTime(
        services.timers, services.clock, began_ms=context.now_ms, timeout_ms=request.timeout_ms, answer=answer
    )
    pending.on_cancel(timed.cancel)
    services.catalog.create_topics(
        permitted, timed.finished, validate_only=request.validate_only, charge=context.charge, recorded=timed.recorded
    )
    return pending


def _may_create(name: str, context: Context) -> bool:
    """Whether the client may create the topic. True for the metadata topic, which a clearer error refuses later."""
    return (
        name == CLUSTER_METADATA_TOPIC
        or context.has(AclOperation.CREATE, ResourceType.CLUSTER)
        or context.may(AclOperation.CREATE, ResourceType.TOPIC, name)
    )


class _Described:
    """The configurations in an answer: topics with the same one share its description, which takes 0.3 ms."""

    def __init__(self) -> None:
        self._entries: dict[int, list[CreateTopicsResponse.CreatableTopicConfigs]] = {}

    def entries(self, config: TopicConfig) -> list[CreateTopicsResponse.CreatableTopicConfigs]:
        key = id(config)
        if key not in self._entries:
            self._entries[key] = [
                CreateTopicsResponse.CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.is_sensitive,
                )
                for entry in config.describe()
            ]
        return self._entries[key]


def _result(
    result: TopicResult, described: _Described | None, context: Context
) -> CreateTopicsResponse.CreatableTopicResult:
    name = result.name or ""
    if result.failed:
        return CreateTopicsResponse.CreatableTopicResult(
            name=name, error_code=result.error_code, error_message=result.error_message
        )
    if described is None or result.config is None:
        return CreateTopicsResponse.CreatableTopicResult(name=name, topic_id=result.id)
    if not context.has(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return CreateTopicsResponse.CreatableTopicResult(
            name=name, topic_id=result.id, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    return CreateTopicsResponse.CreatableTopicResult(
        name=name,
        topic_id=result.id,
        num_partitions=result.partitions,
        replication_factor=REPLICATION_FACTOR,
        configs=described.entries(result.config),
    )
