"""DescribeAcls (key 29), versions 0-3: the access control entries that a filter matches (KIP-140).

Versions: 1 has pattern types (KIP-290), 2 is flexible, 3 has the resource type USER (KIP-373). The types of resources,
patterns and permissions and the operations are the numbers of Kafka's enums of those names; 1 matches any.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class DescribeAclsRequest(Request, key=29, versions="0-3", flexible="2+"):
    """The filter; null matches everything."""

    resource_type_filter: Int8
    resource_name_filter: NullableString
    pattern_type_filter: Int8 = since("1+", default=3)
    principal_filter: NullableString
    host_filter: NullableString
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Response, key=29, versions="0-3", flexible="2+"):
    """The entries that match, by resource."""

    class AclDescription(Struct):
        """The principal, the host and the operation that is allowed or denied."""

        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    class DescribeAclsResource(Struct):
        """A resource, or all resources with a prefix, with the entries."""

        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = since("1+", default=3)
        acls: list[DescribeAclsResponse.AclDescription]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    resources: list[DescribeAclsResource]


def refused(request: DescribeAclsRequest, version: int, code: ErrorCode, message: str) -> DescribeAclsResponse:
    """Refuse the request."""
    return DescribeAclsResponse(error_code=code, error_message=message, resources=[])
