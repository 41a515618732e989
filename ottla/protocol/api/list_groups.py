"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

Versions: 3 is flexible · 4 filters by state (KIP-518) · 5 by type (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, String


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The states and types to list; an empty filter means all. Case does not matter."""

    states_filter: list[String] = since("4+", factory=list)
    types_filter: list[String] = since("5+", factory=list)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """The groups."""

    class ListedGroup(Struct):
        """A group."""

        group_id: String
        protocol_type: String
        group_state: String = since("4+", default="", ignorable=True)
        group_type: String = since("5+", default="", ignorable=True)

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    groups: list[ListedGroup]


def refused(request: ListGroupsRequest, version: int, code: ErrorCode, message: str) -> ListGroupsResponse:
    """Refuse the request."""
    return ListGroupsResponse(error_code=code, groups=[])
