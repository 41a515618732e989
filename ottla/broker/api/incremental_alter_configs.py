"""IncrementalAlterConfigs (key 44), versions 0-1: change single keys of topics, this broker, groups and client metrics.

SET, DELETE, APPEND and SUBTRACT; either all changes of a resource are made, or none. The answer is sent when they are
synced and in effect. `metadata/config_plans.py` describes the checks, and where they differ from Kafka. The level of a
logger (resource type 8) changes immediately and until the broker stops, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import ConfigRequest, ConfigResult
from ottla.broker.metadata.config_plans import check_node_id
from ottla.broker.runtime.pending import Pending
from ottla.broker.security.config_rights import config_refusal
from ottla.broker.telemetry.logger_levels import BROKER_LOGGER, check_logger_changes, set_logger_levels
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from ottla.protocol.errors import KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (
    Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, when="a topic is named", lacking="the resource is refused"),
    Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, when="a group is named", lacking="the resource is refused"),
    Need(
        AclOperation.ALTER_CONFIGS,
        ResourceType.CLUSTER,
        when="a broker, its loggers or client metrics are named",
        lacking="the resource is refused",
    ),
)
CHUNKS = (Chunks(("resources",), ("responses",)),)


def handle(request: IncrementalAlterConfigsRequest, context: Context) -> Pending[IncrementalAlterConfigsResponse]:
    """Answer once the changes are in effect."""
    pending: Pending[IncrementalAlterConfigsResponse] = Pending()
    asked = [
        ConfigRequest(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    refused = [_refusal(one, context) for one in asked]
    stored = [
        one
        for one, refusal in zip(asked, refused, strict=True)
        if refusal is None and one.resource_type != BROKER_LOGGER
    ]

    def done(results: Sequence[ConfigResult]) -> None:
        rest = iter(results)
        responses = [
            _result(
                refusal
                or (
                    _alter_loggers(one, context, validate_only=request.validate_only)
                    if one.resource_type == BROKER_LOGGER
                    else next(rest)
                )
            )
            for one, refusal in zip(asked, refused, strict=True)
        ]
        pending.complete(IncrementalAlterConfigsResponse(responses=responses))

    context.services.catalog.settings.alter_configs(stored, done, validate_only=request.validate_only)
    return pending


def _alter_loggers(one: ConfigRequest, context: Context, *, validate_only: bool) -> ConfigResult:
    try:
        check_node_id(one.name, context.services.catalog.node_id)
        check_logger_changes(one.changes)
    except KafkaError as error:
        return one.refused(error)
    if not validate_only:
        set_logger_levels(one.changes)
    return ConfigResult(one.resource_type, one.name)


def _refusal(asked: ConfigRequest, context: Context) -> ConfigResult | None:
    error = config_refusal(context.may, AclOperation.ALTER_CONFIGS, asked.resource_type, asked.name)
    return None if error is None else asked.refused(error)


def _result(result: ConfigResult) -> IncrementalAlterConfigsResponse.AlterConfigsResourceResponse:
    return IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        resource_type=result.resource_type,
        resource_name=result.name,
    )
