"""AlterConfigs (key 33), versions 0-2: replace all that topics, this broker, groups and client metrics set themselves.

What a resource set and the request does not name goes back to its default. Everything else is as in
IncrementalAlterConfigs: each resource succeeds or fails for itself, the answer comes when the change is synced and in
effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.metadata.wishes import SET, ConfigOutcome, ConfigWish
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context


def handle(request: AlterConfigsRequest, context: Context) -> Pending[AlterConfigsResponse]:
    """Answer once what was changed is in effect."""
    pending: Pending[AlterConfigsResponse] = Pending()
    wishes = [
        ConfigWish(
            resource.resource_type,
            resource.resource_name,
            [(config.name, SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]

    def done(outcomes: Sequence[ConfigOutcome]) -> None:
        pending.complete(AlterConfigsResponse(responses=[_result(outcome) for outcome in outcomes]))

    context.services.catalog.settings.alter_configs(wishes, done, validate_only=request.validate_only)
    return pending


def _result(outcome: ConfigOutcome) -> AlterConfigsResponse.AlterConfigsResourceResponse:
    return AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=outcome.error_code,
        error_message=outcome.error_message,
        resource_type=outcome.resource_type,
        resource_name=outcome.name,
    )
