"""ListConfigResources (key 74), versions 0-1: the resources that have a configuration.

Topics, this broker and its loggers always have one; groups and client metrics subscriptions if something was set for
them. Version 0 returns only client metrics. An unknown type is UNSUPPORTED_VERSION, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.metadata.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from ottla.broker.telemetry.logger_levels import BROKER_LOGGER
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

TYPES = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE, BROKER_LOGGER, BROKER_RESOURCE, TOPIC_RESOURCE)
"""In the order in which Kafka returns them."""

NEEDS = (Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    """Answer immediately."""
    unknown = [kind for kind in request.resource_types if kind not in TYPES]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resource type {unknown[0]} is not known")
    all_types = TYPES if context.api_version > 0 else (CLIENT_METRICS_RESOURCE,)
    wanted = request.resource_types or all_types
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in TYPES
            if kind in wanted
            for name in _names(kind, context)
        ]
    )


def _names(kind: int, context: Context) -> list[str]:
    catalog = context.services.catalog
    if kind == TOPIC_RESOURCE:
        return list(catalog.topics)
    if kind in (BROKER_RESOURCE, BROKER_LOGGER):
        return [str(catalog.node_id)]
    return sorted(name for resource_type, name in catalog.image.configs if resource_type == kind)
