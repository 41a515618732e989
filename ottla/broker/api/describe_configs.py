"""DescribeConfigs (key 32), versions 0-4: the configuration of topics and of this broker, with the source of each
value.

Null keys, and as in Kafka an empty list, ask for all of a resource's keys; unknown keys are left out. Every key has its
type, source and default flag; synonyms and documentation are returned only if requested. A broker is named by its id;
the empty name asks for the settings of all brokers. Broker loggers (type 8) have levels; groups (32) and client metrics
(16) have what was set for them, and the defaults. A resource of another type makes the whole request INVALID_REQUEST,
as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.broker.runtime.steps import Pace
from ottla.broker.security.config_rights import config_refusal
from ottla.broker.telemetry.logger_levels import BROKER_LOGGER, describe_loggers
from ottla.config.options import ConfigSource
from ottla.config.resources import ClientMetricsConfig, GroupConfig
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.config.options import ConfigEntry

KEYS_PER_STEP: Final = 100
"""10 us each, with synonyms and documentation."""

TYPES = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER, GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
"""Types of resources that have a configuration."""

NEEDS = (
    Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, when="a topic is named", lacking="the resource is refused"),
    Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP, when="a group is named", lacking="the resource is refused"),
    Need(
        AclOperation.DESCRIBE_CONFIGS,
        ResourceType.CLUSTER,
        when="a broker, its loggers or client metrics are named",
        lacking="the resource is refused",
    ),
)
CHUNKS = (Chunks(("resources",), ("results",)),)


def handle(
    request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse | Pending[DescribeConfigsResponse]:
    """Answer, each resource independently; immediately if there are few. Raises KafkaError INVALID_REQUEST.

    A resource that is named more than once is returned once, for its last keys: a name is much shorter than its answer.
    """
    unknown = next((one.resource_type for one in request.resources if one.resource_type not in TYPES), None)
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"resource type {unknown} has no configuration here")
    unique = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    return context.in_steps(_describe_all(list(unique.values()), request, context))


def _describe_all(
    resources: list[DescribeConfigsRequest.DescribeConfigsResource], request: DescribeConfigsRequest, context: Context
) -> Steps[DescribeConfigsResponse]:
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = []
    pace = Pace(KEYS_PER_STEP)
    for resource in resources:
        result = _describe(resource, request, context)
        results.append(result)
        if pace.is_up(1 + len(result.configs)):
            yield
    return DescribeConfigsResponse(results=results)


def _describe(
    resource: DescribeConfigsRequest.DescribeConfigsResource, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse.DescribeConfigsResult:
    try:
        entries = _entries(resource, context)
    except KafkaError as error:
        return DescribeConfigsResponse.DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
    return DescribeConfigsResponse.DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_result(entry, request) for entry in entries],
    )


def _entries(resource: DescribeConfigsRequest.DescribeConfigsResource, context: Context) -> Sequence[ConfigEntry]:
    name, keys = resource.resource_name, resource.configuration_keys or None
    refusal = config_refusal(context.may, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, name)
    if refusal is not None:
        raise refusal
    if resource.resource_type == TOPIC_RESOURCE:
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        topic = context.services.catalog.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.config.describe(keys)
    if resource.resource_type == BROKER_RESOURCE:
        if not name:
            return context.services.config.describe_default(keys)
        _check_node(name, context)
        return context.services.config.describe(keys)
    if resource.resource_type == BROKER_LOGGER:
        _check_node(name, context)
        return describe_loggers(keys)
    texts = context.services.catalog.image.configs.get((resource.resource_type, name), {})
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return GroupConfig.describe(texts, context.services.config, keys)
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return ClientMetricsConfig.describe(texts, keys)


def _check_node(name: str, context: Context) -> None:
    node_id = context.services.catalog.node_id
    if name == str(node_id):
        return
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name[:40]}")
    message = f"Unexpected broker id, expected {node_id} or empty string, but received {name[:40]}"
    raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _result(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResponse.DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.source == ConfigSource.DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in synonyms
        ],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
