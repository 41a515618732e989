"""Metadata (key 3), versions 0-13: the one broker, and topics with their partitions, which are created if necessary.

A null list asks for all topics, at version 0 an empty one. From version 1 on an empty list asks for none. A topic may
be requested by id from version 12 on. A topic that does not exist is created if the client allows it (always before
version 4) and so does `auto.create.topics.enable`. The answer then waits until the topic accepts requests, so it never
contains LEADER_NOT_AVAILABLE for a new topic, as Kafka's does.

All other differences from Kafka: the controller is this broker (Kafka 4 names a random broker), and topics are returned
in the order of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.catalog.descriptions import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    describe_broker,
    describe_partition,
)
from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, INTERNAL_TOPICS, topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.runtime.steps import Steps

FIRST_VERSION_WITH_IDS = 12
ZERO_ID = UUID(int=0)

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        lacking="the topic is refused; where all topics are asked for, it is left out",
    ),
    Need(
        AclOperation.CREATE,
        ResourceType.TOPIC,
        when="a topic is to be created",
        unless=(AclOperation.CREATE, ResourceType.CLUSTER),
        lacking="the topic is refused",
    ),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.CLUSTER,
        when="the authorized operations of the cluster are requested",
        lacking="there are none",
    ),
)
CHUNKS = (Chunks(("topics",), ("topics",)),)


def handle(request: MetadataRequest, context: Context) -> MetadataResponse | Pending[MetadataResponse]:
    """Answer immediately, or once the missing topics exist. Raises KafkaError INVALID_REQUEST."""
    catalog = context.services.catalog
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return context.in_steps(_describe_all(request, context))
    targets = _targets(request, context)
    refused = _refused(targets, context)
    missing = [
        name
        for name in targets
        if isinstance(name, str) and name not in refused and _would_create(name, request, context)
    ]
    refused.update(name for name in missing if not _may_create(name, context))
    missing = [name for name in missing if name not in refused]
    failed: dict[str | UUID, ErrorCode] = {}

    def look_up(target: str | UUID) -> MetadataResponse.MetadataResponseTopic:
        return _unauthorized(target) if target in refused else _look_up(request, context, target, failed)

    if not missing:
        return _respond(request, context, [look_up(target) for target in targets])
    pending: Pending[MetadataResponse] = Pending()

    def created(results: Sequence[TopicResult]) -> None:
        failed.update((result.name, result.error_code) for result in results if result.failed and result.name)
        pending.complete(_respond(request, context, [look_up(target) for target in targets]))

    catalog.auto_create(missing, created, charge=context.charge)
    return pending


def _describe_all(request: MetadataRequest, context: Context) -> Steps[MetadataResponse]:
    topics: list[MetadataResponse.MetadataResponseTopic] = []
    pace = Pace()
    known = context.services.catalog.topics
    for topic in list(known.values()):
        # Another step may have deleted it.
        if known.get(topic.name) is topic and context.has(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            topics.append(_describe(request, context, topic))
        if pace.is_up(1 + len(topic.partitions)):
            yield
    return _respond(request, context, topics)


def _targets(request: MetadataRequest, context: Context) -> list[str | UUID]:
    """The requested names and ids, each once. Raises KafkaError for what the version does not allow.

    An id takes precedence over a name: Java's consumer sends an empty name beside the id.
    """
    targets: dict[str | UUID, None] = {}
    for topic in request.topics or ():
        if context.api_version < FIRST_VERSION_WITH_IDS and (topic.name is None or topic.topic_id != ZERO_ID):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"a topic can be requested by id from version {FIRST_VERSION_WITH_IDS} on"
            )
        targets[topic.topic_id if topic.name is None or topic.topic_id != ZERO_ID else topic.name] = None
    return list(targets)


def _refused(targets: list[str | UUID], context: Context) -> set[str | UUID]:
    """The topics that the client may not see, whether they exist or not. An id without a topic is not refused."""
    if context.services.authorizer is None:
        return set()
    refused: set[str | UUID] = set()
    for target in targets:
        topic = context.services.catalog.find_topic(target) if isinstance(target, UUID) else None
        name = target if isinstance(target, str) else None if topic is None else topic.name
        if name is not None and not _may_see(name, context):
            refused.add(target)
    return refused


def _unauthorized(target: str | UUID) -> MetadataResponse.MetadataResponseTopic:
    """A topic that the client may not see. The answer does not reveal whether it exists."""
    return MetadataResponse.MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=target if isinstance(target, str) else None,
        topic_id=target if isinstance(target, UUID) else ZERO_ID,
        is_internal=False,
        partitions=[],
    )


def _may_see(name: str, context: Context) -> bool:
    return context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(name: str, context: Context) -> bool:
    return context.has(AclOperation.CREATE, ResourceType.CLUSTER) or context.may(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _would_create(name: str, request: MetadataRequest, context: Context) -> bool:
    return (
        name not in context.services.catalog.topics
        and request.allow_auto_topic_creation
        and context.services.config.auto_create_topics_enable
        and name != CLUSTER_METADATA_TOPIC
        and topic_name_problem(name) is None
    )


def _look_up(
    request: MetadataRequest, context: Context, target: str | UUID, failed: Mapping[str | UUID, ErrorCode]
) -> MetadataResponse.MetadataResponseTopic:
    topic = context.services.catalog.find_topic(target)
    if topic is not None:
        return _describe(request, context, topic)
    if isinstance(target, UUID):
        return MetadataResponse.MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=target, partitions=[]
        )
    invalid = topic_name_problem(target) is not None
    return MetadataResponse.MetadataResponseTopic(
        error_code=(
            ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else failed.get(target, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ),
        name=target,
        topic_id=ZERO_ID,
        is_internal=target in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=_topic_operations(request, context, target),
    )


def _topic_operations(request: MetadataRequest, context: Context, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return context.operations(TOPIC_OPERATIONS, ResourceType.TOPIC, name)


def _cluster_operations(context: Context) -> int:
    if not context.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.operations(CLUSTER_OPERATIONS, ResourceType.CLUSTER)


def _describe(request: MetadataRequest, context: Context, topic: Topic) -> MetadataResponse.MetadataResponseTopic:
    node_id = context.services.catalog.node_id
    described = (describe_partition(topic, index, node_id) for index in range(len(topic.partitions)))
    return MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                offline_replicas=partition.offline_replicas,
            )
            for partition in described
        ],
        topic_authorized_operations=_topic_operations(request, context, topic.name),
    )


def _respond(
    request: MetadataRequest, context: Context, topics: list[MetadataResponse.MetadataResponseTopic]
) -> MetadataResponse:
    services = context.services
    broker = describe_broker(services.config, services.catalog.node_id, context.connection)
    return MetadataResponse(
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack
            )
        ],
        cluster_id=context.services.catalog.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
        cluster_authorized_operations=(
            _cluster_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
