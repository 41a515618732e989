"""DescribeGroups (key 15), versions 0-6: groups of the classic protocol with their members.

Versions: 3 can return the client's rights to the group (KIP-430) · 4 has static members · 5 is flexible · 6 answers
GROUP_ID_NOT_FOUND with a message for a group that does not exist; older ones return the state Dead (KIP-1043).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Bytes, Int16, Int32, NullableString, String


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    """The groups to describe."""

    groups: list[String]
    include_authorized_operations: Bool = since("3+", default=False)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    """The groups, in the order of the request."""

    class DescribedGroupMember(Struct):
        """A member; metadata and assignment are empty unless the group is stable."""

        member_id: String
        group_instance_id: NullableString = since("4+", default=None, ignorable=True)
        client_id: String
        client_host: String
        member_metadata: Bytes
        member_assignment: Bytes

    class DescribedGroup(Struct):
        """A group. `authorized_operations` is a bit set, -2^31 if it was not requested."""

        error_code: Int16 = 0
        error_message: NullableString = since("6+", default=None)
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: Int32 = since("3+", default=-0x8000_0000)

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


def refused(request: DescribeGroupsRequest, version: int, code: ErrorCode, message: str) -> DescribeGroupsResponse:
    """Refuse every group of the request."""
    return DescribeGroupsResponse(
        groups=[
            DescribeGroupsResponse.DescribedGroup(
                error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
            )
            for group_id in request.groups
        ]
    )
