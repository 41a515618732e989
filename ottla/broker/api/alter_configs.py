"""AlterConfigs (key 33), versions 0-2: replace all that topics, this broker, groups and client metrics set themselves.

What a resource set and the request does not name goes back to its default. Everything else is as in
IncrementalAlterConfigs: each resource succeeds or fails for itself, the answer comes when the change is synced and in
effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.metadata.change_requests import SET, ConfigRequest, ConfigResult
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (
    Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, when="a topic is named"),
    Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, when="a group is named"),
    Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER, when="a broker, its loggers or client metrics are named"),
)
CHUNKS = (Chunks(("resources",), ("responses",)),)


def handle(request: AlterConfigsRequest, context: Context) -> Pending[AlterConfigsResponse]:
    """Answer once what was changed is in effect."""
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

    def done(results: Sequence[ConfigResult]) -> None:
        pending.complete(AlterConfigsResponse(responses=[_result(result) for result in results]))

    context.services.catalog.settings.alter_configs(asked, done, validate_only=request.validate_only)
    return pending


def _result(result: ConfigResult) -> AlterConfigsResponse.AlterConfigsResourceResponse:
    return AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        resource_type=result.resource_type,
        resource_name=result.name,
    )
