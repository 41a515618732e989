"""LeaveGroup (key 13), versions 0-5: members leave a group, or an administrator removes them.

Versions: 0-2 name one member · 3 several, each with its own result, static ones also by instance id alone (KIP-345) ·
4 is flexible · 5 has the reason (KIP-800).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Int16, Int32, NullableString, String


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """The group, and the members that leave it."""

    class MemberIdentity(Struct):
        """A member: by its id, or by `group_instance_id` with an empty member id."""

        member_id: String
        group_instance_id: NullableString = None
        reason: NullableString = since("5+", default=None, ignorable=True)

    group_id: String
    member_id: String = ranged("0-2", default="")
    members: list[MemberIdentity] = since("3+", factory=list)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """The result for each member; before version 3 the code at the top is that of the only member."""

    class MemberResponse(Struct):
        """One member, named as in the request."""

        member_id: String
        group_instance_id: NullableString
        error_code: Int16 = 0

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    members: list[MemberResponse] = since("3+", factory=list)


def refused(request: LeaveGroupRequest, version: int, code: ErrorCode, message: str) -> LeaveGroupResponse:
    """Refuse the request, naming no member."""
    return LeaveGroupResponse(error_code=code)
