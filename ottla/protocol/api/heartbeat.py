"""Heartbeat (key 12), versions 0-4: a member of the classic protocol shows that it is alive, and learns of rebalances.

Versions: 3 has static members (KIP-345) · 4 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, since
from ottla.protocol.types import Int16, Int32, NullableString, String


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """The member that is alive, and its generation."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since("3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = 0


def refused(request: HeartbeatRequest, version: int, code: ErrorCode, message: str) -> HeartbeatResponse:
    """Refuse the request."""
    return HeartbeatResponse(error_code=code)
