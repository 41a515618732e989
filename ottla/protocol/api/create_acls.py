"""CreateAcls (key 30), versions 0-3: adds access control entries (KIP-140).

Versions: 1 has pattern types (KIP-290), 2 is flexible, 3 has the resource type USER (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The entries to add."""

    class AclCreation(Struct):
        """One entry; the numbers are those of DescribeAcls."""

        resource_type: Int8
        resource_name: String
        resource_pattern_type: Int8 = since("1+", default=3)
        principal: String
        host: String
        operation: Int8
        permission_type: Int8

    creations: list[AclCreation]


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    """The result for each entry, in the order of the request."""

    class AclCreationResult(Struct):
        """One entry."""

        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult]


def refused(request: CreateAclsRequest, version: int, code: ErrorCode, message: str) -> CreateAclsResponse:
    """Refuse every ACL of the request."""
    one = CreateAclsResponse.AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[one] * len(request.creations))
