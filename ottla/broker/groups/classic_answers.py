"""The answers of the classic protocol, and the checks of its requests that need no group.

Pure functions. A refused request is answered in the format of its version. `refuse_*` are the checks that Kafka makes
before the coordinator (`GroupCoordinatorService`, `KafkaApis`); they are the same for both protocols of a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse, join_refused
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse, sync_refused
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupSettings

NO_MEMBER_ID = ""
FIRST_BATCHED_LEAVE_VERSION = 3
FIRST_SYNC_WITH_PROTOCOL_VERSION = 5


class Leaver(NamedTuple):
    """One member that is to leave: by member id, or by instance id with an empty member id."""

    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveResult(NamedTuple):
    """The result for one leaver."""

    leaver: Leaver
    code: ErrorCode


def leavers(request: LeaveGroupRequest, api_version: int) -> list[Leaver]:
    """The members that leave, in every version of the request."""
    if api_version < FIRST_BATCHED_LEAVE_VERSION:
        return [Leaver(request.member_id, None, None)]
    return [Leaver(member.member_id, member.group_instance_id, member.reason) for member in request.members]


def left(api_version: int, results: Iterable[LeaveResult]) -> LeaveGroupResponse:
    """The results of all leavers; before version 3 there is one, and its code is the whole answer."""
    results = list(results)
    if api_version < FIRST_BATCHED_LEAVE_VERSION:
        return LeaveGroupResponse(error_code=results[0].code)
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=result.leaver.member_id,
                group_instance_id=result.leaver.group_instance_id,
                error_code=result.code,
            )
            for result in results
        ]
    )


def refuse_join(request: JoinGroupRequest, api_version: int, settings: GroupSettings) -> JoinGroupResponse | None:
    """INVALID_GROUP_ID or INVALID_SESSION_TIMEOUT; None for a request that may go to a group."""
    if not request.group_id:
        return join_refused(api_version, request.member_id, ErrorCode.INVALID_GROUP_ID)
    if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
        return join_refused(api_version, request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
    return None


def refuse_sync(request: SyncGroupRequest, api_version: int) -> SyncGroupResponse | None:
    """INCONSISTENT_GROUP_PROTOCOL where version 5 names no protocol, INVALID_GROUP_ID; None for a valid request."""
    if api_version >= FIRST_SYNC_WITH_PROTOCOL_VERSION and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None if request.group_id else sync_refused(ErrorCode.INVALID_GROUP_ID)


def refuse_heartbeat(request: HeartbeatRequest) -> HeartbeatResponse | None:
    """INVALID_GROUP_ID; None for a request that may go to a group."""
    return None if request.group_id else HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)


def refuse_leave(request: LeaveGroupRequest) -> LeaveGroupResponse | None:
    """INVALID_GROUP_ID; None for a request that may go to a group."""
    return None if request.group_id else LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
