"""DeleteGroups (key 42), versions 0-3: delete groups and their offsets.

A group with members is NON_EMPTY_GROUP. Versions: 2 is flexible · 3 has a message for each group.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, NullableString, String


class DeleteGroupsRequest(Request, key=42, versions="0-3", flexible="2+"):
    """The groups to delete."""

    groups_names: list[String]


class DeleteGroupsResponse(Response, key=42, versions="0-3", flexible="2+"):
    """The result for each group."""

    class DeletableGroupResult(Struct):
        """One group."""

        group_id: String
        error_code: Int16 = 0
        error_message: NullableString = since("3+", default=None, ignorable=True)

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]


def refused(request: DeleteGroupsRequest, version: int, code: ErrorCode, message: str) -> DeleteGroupsResponse:
    """Refuse every group of the request."""
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.groups_names
        ]
    )
