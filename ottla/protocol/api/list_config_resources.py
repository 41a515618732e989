"""ListConfigResources (key 74), versions 0-1: the resources that have a configuration (KIP-1142).

Version 0 had client metrics only, and was called ListClientMetricsResources.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int8, Int16, Int32, String


class ListConfigResourcesRequest(
    Request, key=74, versions="0-1", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The types to list, by the numbers of DescribeConfigs; empty for all."""

    resource_types: list[Int8] = since("1+", factory=list)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    """The resources."""

    class ConfigResource(Struct):
        """One resource."""

        resource_name: String
        resource_type: Int8 = since("1+", default=16, ignorable=True)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ConfigResource]


def refused(
    request: ListConfigResourcesRequest, version: int, code: ErrorCode, message: str
) -> ListConfigResourcesResponse:
    """Refuse the request."""
    return ListConfigResourcesResponse(error_code=code, config_resources=[])
