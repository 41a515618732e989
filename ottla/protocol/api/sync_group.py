"""SyncGroup (key 14), versions 0-5: the leader sends the assignment, every member gets its part of it.

The response waits for the leader. A member for which the leader sends no assignment gets an empty one.

Versions: 3 has static members (KIP-345) · 4 is flexible · 5 names protocol type and protocol, to be checked (KIP-559).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bytes, Int16, Int32, NullableString, String


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """A member of a generation; only the leader's `assignments` count."""

    class SyncGroupRequestAssignment(Struct):
        """The assignment of a member, encoded by the group's protocol."""

        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: NullableString = since("3+", default=None)
    protocol_type: NullableString = since("5+", default=None, ignorable=True)
    protocol_name: NullableString = since("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """The assignment of this member."""

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = 0
    protocol_type: NullableString = since("5+", default=None, ignorable=True)
    protocol_name: NullableString = since("5+", default=None, ignorable=True)
    assignment: Bytes


def refused(request: SyncGroupRequest, version: int, code: ErrorCode, message: str) -> SyncGroupResponse:
    """Refuse the request."""
    return sync_refused(code)


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    """The response to a SyncGroup that was refused."""
    return SyncGroupResponse(error_code=code, assignment=b"")
