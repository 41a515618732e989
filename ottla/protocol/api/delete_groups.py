"""DeleteGroups (key 42), versions 0-2: delete groups and their offsets.

A group with members is NON_EMPTY_GROUP. Versions: 2 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, String


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    """The groups to delete."""

    groups_names: list[String]


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    """The result for each group."""

    class DeletableGroupResult(Struct):
        """One group."""

        group_id: String
        error_code: Int16 = 0

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


def refused(request: DeleteGroupsRequest, version: int, code: ErrorCode, message: str) -> DeleteGroupsResponse:
    """Refuse every group of the request."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id in request.groups_names
        ]
    )
