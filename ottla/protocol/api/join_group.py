"""JoinGroup (key 11), versions 0-9: a consumer joins a group of the classic protocol, or joins again for a rebalance.

The response is sent when every member has joined or the rebalance timeout has passed. Only the leader gets the members;
it computes the assignment that it sends in SyncGroup. `protocols` are the assignors of the member, the preferred one
first, each with metadata for the other members (`ottla.protocol.consumer_protocol` for consumers).

Versions: 1 separates the rebalance timeout from the session's (KIP-62) · 4 answers MEMBER_ID_REQUIRED with a member id
for the next attempt (KIP-394) · 5 has static members (KIP-345) · 6 is flexible · 7 names the protocol type, and the
protocol may be null · 8 has the reason (KIP-800) · 9 lets a leader that returns keep the assignment (KIP-814). Apache
Kafka 4.0 removed versions 0-1 and 4.1 restored them.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Bytes, Int16, Int32, NullableString, String

FIRST_NULL_PROTOCOL_VERSION = 7
"""From this version of JoinGroup on, null means that there is no protocol; before, the empty string does."""


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The member that joins. A new member has an empty `member_id`, a dynamic one a null `group_instance_id`.

    Version 0 has no `rebalance_timeout_ms`: the session timeout is used for both.
    """

    class JoinGroupRequestProtocol(Struct):
        """An assignor that the member knows, and its metadata for it."""

        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: NullableString = since("5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: NullableString = since("8+", default=None, ignorable=True)


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """The member's place in the new generation; `members` is empty for all but the leader."""

    class JoinGroupResponseMember(Struct):
        """A member and its metadata for the protocol that was chosen."""

        member_id: String
        group_instance_id: NullableString = since("5+", default=None, ignorable=True)
        metadata: Bytes

    throttle_time_ms: Int32 = since("2+", default=0, ignorable=True)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: NullableString = since("7+", default=None, ignorable=True)
    protocol_name: NullableString = since("0+", nullable="7+")
    leader: String
    skip_assignment: Bool = since("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


def refused(request: JoinGroupRequest, version: int, code: ErrorCode, message: str) -> JoinGroupResponse:
    """Refuse the request."""
    return join_refused(version, request.member_id, code)


def join_refused(version: int, member_id: str, code: ErrorCode) -> JoinGroupResponse:
    """The response to a JoinGroup that was refused; `member_id` is the member's, or the one for its next attempt."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=None if version >= FIRST_NULL_PROTOCOL_VERSION else "",
        leader="",
        member_id=member_id,
        members=[],
    )
