"""AlterConfigs (key 33), versions 0-2: replace all settings of topics, this broker, groups and client metrics.

A setting of a resource that the request does not name returns to its default. Everything else is as in
IncrementalAlterConfigs: each resource succeeds or fails independently, and the answer is sent when the change is synced
and in effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import SET, ConfigRequest, ConfigResult
from ottla.broker.runtime.pending import Pending
from ottla.broker.security.config_rights import config_refusal
from ottla.broker.telemetry.logger_levels import BROKER_LOGGER
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (
    Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, when="a topic is named", lacking="the resource is refused"),
    Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, when="a group is named", lacking="the resource is refused"),
    Need(
        AclOperation.ALTER_CONFIGS,
        ResourceType.CLUSTER,
        when="a broker or client metrics are named",
        lacking="the resource is refused",
    ),
)
CHUNKS = (Chunks(("resources",), ("responses",)),)


def handle(request: AlterConfigsRequest, context: Context) -> Pending[AlterConfigsResponse]:
    """Answer once the change is in effect."""
    pending: Pending[AlterConfigsResponse] = Pending()
    asked = [
        ConfigRequest(
            resource.resource_type,
            resource.resource_name,
            [(config.name, SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]

    refused = [_refusal(one, context) for one in asked]

    def done(results: Sequence[ConfigResult]) -> None:
        rest = iter(results)
        pending.complete(AlterConfigsResponse(responses=[_result(refusal or next(rest)) for refusal in refused]))

    permitted = [one for one, refusal in zip(asked, refused, strict=True) if refusal is None]
    context.services.catalog.settings.alter_configs(permitted, done, validate_only=request.validate_only)
    return pending


def _refusal(asked: ConfigRequest, context: Context) -> ConfigResult | None:
    """Loggers are not refused here: that this API cannot alter them is a more useful answer than missing rights."""
    if asked.resource_type == BROKER_LOGGER:
        return None
    error = config_refusal(context.may, AclOperation.ALTER_CONFIGS, asked.resource_type, asked.name)
    return None if error is None else asked.refused(error)


def _result(result: ConfigResult) -> AlterConfigsResponse.AlterConfigsResourceResponse:
    return AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        resource_type=result.resource_type,
        resource_name=result.name,
    )
