"""DescribeConfigs (key 32), versions 0-4: the configuration of topics and brokers, with its origin.

`resource_type`: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. `config_source`: 1 topic, 2 dynamic
broker, 3 dynamic default broker, 4 static broker, 5 default, 6 dynamic broker logger. `config_type`: 1 boolean,
2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.

Versions: 0 has only whether a value is the default · 1 has synonyms and the source (KIP-226) · 3 adds type and
documentation (KIP-569) · 4 is flexible. Version 0 ended with Apache Kafka 4.0; the AdminClients of 0.11 and 1.0 have no
other.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    """The resources to describe, and the optional fields to include."""

    class DescribeConfigsResource(Struct):
        """One resource; null `configuration_keys` means all of its keys."""

        resource_type: Int8
        resource_name: String
        configuration_keys: list[String] | None

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = since("1+", default=False)
    include_documentation: Bool = since("3+", default=False)


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    """The configurations."""

    class DescribeConfigsSynonym(Struct):
        """Another place that sets the same value, the effective one first."""

        name: String
        value: NullableString
        source: Int8

    class DescribeConfigsResourceResult(Struct):
        """One key; `value` is null if it is sensitive or not set. Version 0 has `is_default` instead of the source."""

        name: String
        value: NullableString
        read_only: Bool
        is_default: Bool = ranged("0-0", default=False, ignorable=True)
        config_source: Int8 = since("1+", default=-1, ignorable=True)
        is_sensitive: Bool
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = since("1+", factory=list, ignorable=True)
        config_type: Int8 = since("3+", default=0, ignorable=True)
        documentation: NullableString = since("3+", default=None, ignorable=True)

    class DescribeConfigsResult(Struct):
        """One resource, or the reason why it cannot be described."""

        error_code: Int16 = 0
        error_message: NullableString = None
        resource_type: Int8
        resource_name: String
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


def refused(request: DescribeConfigsRequest, version: int, code: ErrorCode, message: str) -> DescribeConfigsResponse:
    """Refuse every resource of the request."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResponse.DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[],
            )
            for resource in request.resources
        ]
    )
