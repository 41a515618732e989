"""AlterConfigs (key 33), versions 0-2: replace all settings of topics, brokers and groups.

Keys that the request does not name are reset to their defaults, so tools use IncrementalAlterConfigs today.

Versions: 2 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """The resources, each with all of its settings; `validate_only` only checks."""

    class AlterableConfig(Struct):
        """A key and its value; null means the default."""

        name: String
        value: NullableString

    class AlterConfigsResource(Struct):
        """One resource; the types are those of DescribeConfigs."""

        resource_type: Int8
        resource_name: String
        configs: list[AlterConfigsRequest.AlterableConfig]

    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """The result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        """One resource."""

        error_code: Int16 = 0
        error_message: NullableString = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


def refused(request: AlterConfigsRequest, version: int, code: ErrorCode, message: str) -> AlterConfigsResponse:
    """Refuse every resource of the request."""
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
