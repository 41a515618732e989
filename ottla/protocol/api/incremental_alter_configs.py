"""IncrementalAlterConfigs (key 44), versions 0-1: change single keys of topics, brokers, groups and loggers (KIP-339).

All changes of a resource are made, or none. Versions: 1 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """The resources, each with its changes; `validate_only` only checks."""

    class AlterableConfig(Struct):
        """A change. `config_operation`: 0 set, 1 delete, 2 append to a list, 3 subtract from a list."""

        name: String
        config_operation: Int8
        value: NullableString

    class AlterConfigsResource(Struct):
        """One resource; the types are those of DescribeConfigs."""

        resource_type: Int8
        resource_name: String
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]

    resources: list[AlterConfigsResource]
    validate_only: Bool


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """The result for each resource."""

    class AlterConfigsResourceResponse(Struct):
        """One resource."""

        error_code: Int16 = 0
        error_message: NullableString = None
        resource_type: Int8
        resource_name: String

    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse]


def refused(
    request: IncrementalAlterConfigsRequest, version: int, code: ErrorCode, message: str
) -> IncrementalAlterConfigsResponse:
    """Refuse every resource of the request."""
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
    )
