"""DeleteAcls (key 31), versions 0-3: removes the access control entries that filters match (KIP-140).

Versions: 1 has pattern types (KIP-290), 2 is flexible, 3 has the resource type USER (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class DeleteAclsRequest(Request, key=31, versions="0-3", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The filters; an entry is removed if any of them matches it."""

    class DeleteAclsFilter(Struct):
        """One filter; null matches everything, the numbers are those of DescribeAcls."""

        resource_type_filter: Int8
        resource_name_filter: NullableString
        pattern_type_filter: Int8 = since("1+", default=3)
        principal_filter: NullableString
        host_filter: NullableString
        operation: Int8
        permission_type: Int8

    filters: list[DeleteAclsFilter]


class DeleteAclsResponse(Response, key=31, versions="0-3", flexible="2+"):
    """The entries that each filter removed, in the order of the request."""

    class DeleteAclsMatchingAcl(Struct):
        """An entry that a filter matched."""

        error_code: Int16 = 0
        error_message: NullableString = None
        resource_type: Int8
        resource_name: String
        pattern_type: Int8 = since("1+", default=3)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    class DeleteAclsFilterResult(Struct):
        """One filter."""

        error_code: Int16 = 0
        error_message: NullableString = None
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]

    throttle_time_ms: Int32 = 0
    filter_results: list[DeleteAclsFilterResult]


def refused(request: DeleteAclsRequest, version: int, code: ErrorCode, message: str) -> DeleteAclsResponse:
    """Refuse every filter of the request."""
    one = DeleteAclsResponse.DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
    return DeleteAclsResponse(filter_results=[one] * len(request.filters))
