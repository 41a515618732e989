"""Removal of members from a group by an administrator: requests to leave, in the members' names.

Members of the classic protocol leave together, by LeaveGroup; those of the consumer protocol one by one, by heartbeats.
Transient errors are retried, for members that have not left. If the answer of an attempt was lost, a member that the
next answer does not know has left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from ottla.client.admin_group_results import MemberDescription
from ottla.client.cluster import Cluster
from ottla.client.coordinator import find_coordinator
from ottla.client.errors import ClientTimeout, ConnectionLost, KafkaError, is_worth_retrying
from ottla.client.groups.heartbeat_state import HeartbeatState
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.protocol.errors import ErrorCode

_FIRST_VERSION_WITH_MEMBERS = 3

Answers = Mapping[str, KafkaError | None]
"""The error of each member, None for one that has left."""


async def remove_members(
    cluster: Cluster, group_id: str, members: Sequence[MemberDescription], reason: str, timeout_ms: int
) -> dict[str, KafkaError]:
    """Let members leave, and return the refusals by member id. Raises KafkaError if all are refused together."""

    async def by_leaving(node_id: int, some: Sequence[MemberDescription]) -> Answers:
        return await _leave(cluster, node_id, group_id, some, reason)

    async def by_heartbeat(node_id: int, some: Sequence[MemberDescription]) -> Answers:
        return {member.member_id: await _beat(cluster, node_id, group_id, member) for member in some}

    classic = [member for member in members if member.speaks_classic]
    refused = await _until_left(cluster, group_id, classic, by_leaving, timeout_ms) if classic else {}
    for member in members:
        if not member.speaks_classic:
            refused |= await _until_left(cluster, group_id, [member], by_heartbeat, timeout_ms)
    return refused


async def _until_left(
    cluster: Cluster,
    group_id: str,
    members: Sequence[MemberDescription],
    ask: Callable[[int, Sequence[MemberDescription]], Awaitable[Answers]],
    timeout_ms: int,
) -> dict[str, KafkaError]:
    waiting = {member.member_id: member for member in members}
    refused: dict[str, KafkaError] = {}
    is_answer_lost = False

    async def attempt() -> None:
        nonlocal is_answer_lost
        node_id = await find_coordinator(cluster, group_id)
        try:
            answers = await ask(node_id, list(waiting.values()))
        except (ConnectionLost, ClientTimeout):
            is_answer_lost = True
            raise
        passing: KafkaError | None = None
        for member_id, error in answers.items():
            if error is not None and is_worth_retrying(error):
                passing = error
                continue
            del waiting[member_id]
            if error is not None and not (is_answer_lost and error.code is ErrorCode.UNKNOWN_MEMBER_ID):
                refused[member_id] = error
        if passing is not None:
            raise passing

    await cluster.retry(attempt, timeout_ms)
    return refused


async def _leave(
    cluster: Cluster, node_id: int, group_id: str, members: Sequence[MemberDescription], reason: str
) -> Answers:
    connection = await cluster.connection(node_id)
    version = connection.version_for(LeaveGroupRequest)
    if version < _FIRST_VERSION_WITH_MEMBERS:
        found = {}
        for member in members:
            request = LeaveGroupRequest(group_id=group_id, member_id=member.member_id)
            answer = await connection.send(request, LeaveGroupResponse, version)
            found[member.member_id] = _error(answer.error_code)
        return found
    identities = [
        LeaveGroupRequest.MemberIdentity(
            member_id=member.member_id, group_instance_id=member.group_instance_id, reason=reason
        )
        for member in members
    ]
    answer = await connection.send(
        LeaveGroupRequest(group_id=group_id, members=identities), LeaveGroupResponse, version
    )
    if answer.error_code:
        raise KafkaError(ErrorCode.of(answer.error_code))
    codes = {one.member_id: one.error_code for one in answer.members}
    return {member.member_id: _error(codes.get(member.member_id, 0)) for member in members}


async def _beat(cluster: Cluster, node_id: int, group_id: str, member: MemberDescription) -> KafkaError | None:
    leaving = HeartbeatState(group_id, member.group_instance_id).leaving(member.member_id, for_good=True)
    answer = await cluster.ask(node_id, leaving, ConsumerGroupHeartbeatResponse)
    return _error(answer.error_code, answer.error_message)


def _error(code: int, message: str | None = None) -> KafkaError | None:
    return KafkaError(ErrorCode.of(code), message) if code else None
