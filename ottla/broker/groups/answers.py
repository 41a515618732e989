"""Answers about several groups at once: lists, descriptions, deletions (fetched offsets: `fetched_offsets.py`).

Each group answers from its shard, or with the error code of a shard that cannot be used. An answer is sent when all
that it reports is durable in all of these shards. Codes are those of Kafka's `GroupCoordinatorService` and
`GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from ottla.broker.catalog.descriptions import GROUP_OPERATIONS, NOT_ASKED
from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.api.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    undescribed,
)
from ottla.protocol.api.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TopologyDescriptionStatus,
)
from ottla.protocol.api.streams_group_describe import undescribed as undescribed_streams_group
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_map import ShardMap
    from ottla.broker.groups.shard import GroupShard
    from ottla.broker.peer import RequestContext
    from ottla.broker.runtime.steps import Steps

_Request: TypeAlias = ConsumerGroupDescribeRequest | ShareGroupDescribeRequest | StreamsGroupDescribeRequest
R = TypeVar("R", bound=ConsumerGroupDescribeResponse | ShareGroupDescribeResponse | StreamsGroupDescribeResponse)
G = TypeVar(
    "G",
    ConsumerGroupDescribeResponse.DescribedGroup,
    ShareGroupDescribeResponse.DescribedGroup,
    StreamsGroupDescribeResponse.DescribedGroup,
)
FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6
DEAD = "Dead"
MEMBERS_PER_STEP: Final = 200
"""Members and groups, up to 10 us each. A group is described in one step, so that its members are consistent."""


def list_groups(
    shards: ShardMap[GroupShard], request: ListGroupsRequest, may_see: Callable[[str], bool]
) -> Steps[Pending[ListGroupsResponse]]:
    """The groups of all shards that the client may see. Raises COORDINATOR_LOAD_IN_PROGRESS while one loads.

    Filters ignore case, and state filters ignore surrounding blanks, as in Kafka. Kafka 4.4 knows the state NotReady of
    streams groups only as `not_ready` in a filter; here it has both names.
    """
    ready = shards.all_ready()
    states = {state.lower().strip().replace("_", "") for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(groups=[])
    pending: Pending[ListGroupsResponse] = Pending()
    answer = JointAnswer(pending, response)
    pace = Pace()
    for shard in ready:
        for group in list(shard.groups.values()):
            state = group.state
            is_asked_for = (not states or state.lower() in states) and (not types or group.type.value in types)
            if is_asked_for and may_see(group.group_id):
                response.groups.append(
                    ListGroupsResponse.ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=state,
                        group_type=group.type.value,
                    )
                )
            if pace.is_up():
                yield
        answer.rest_on(shard, None)
    answer.seal()
    return pending


def describe_groups(
    shards: ShardMap[GroupShard], request: DescribeGroupsRequest, context: RequestContext
) -> Steps[Pending[DescribeGroupsResponse]]:
    """Describe groups of the classic protocol; any other group is reported as if it did not exist."""
    response = DescribeGroupsResponse(groups=[])
    pending: Pending[DescribeGroupsResponse] = Pending()
    answer = JointAnswer(pending, response)
    pace = Pace(MEMBERS_PER_STEP)
    for group_id in request.groups:
        try:
            shard = shards.ready(group_id)
            described = _describe(shard, group_id)
            answer.rest_on(shard, group_id)
        except KafkaError as refusal:
            described = _undescribed(group_id, refusal, context.api_version)
        if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
            described.authorized_operations = GROUP_OPERATIONS
        response.groups.append(described)
        if pace.is_up(1 + len(described.members)):
            yield
    answer.seal()
    return pending


def _describe(shard: GroupShard, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    group = shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.describe()
    reason = "not found" if group is None else "is not a classic group"
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")


def _undescribed(group_id: str, refusal: KafkaError, version: int) -> DescribeGroupsResponse.DescribedGroup:
    """The answer for a refused group. Before version 6 a group that does not exist is Dead, without an error."""
    is_missing = refusal.code is ErrorCode.GROUP_ID_NOT_FOUND
    is_reported = version >= FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND
    return DescribeGroupsResponse.DescribedGroup(
        error_code=refusal.code if is_reported or not is_missing else ErrorCode.NONE,
        error_message=refusal.message if is_reported and is_missing else None,
        group_id=group_id,
        group_state=DEAD if is_missing else "",
        protocol_type="",
        protocol_data="",
        members=[],
    )


def describe_consumer_groups(
    shards: ShardMap[GroupShard], request: ConsumerGroupDescribeRequest
) -> Steps[Pending[ConsumerGroupDescribeResponse]]:
    """Describe groups of the consumer protocol; any other group is GROUP_ID_NOT_FOUND."""

    def describe(shard: GroupShard, group_id: str) -> ConsumerGroupDescribeResponse.DescribedGroup:
        group = shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            reason = "not found" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
        return group.describe()

    response = ConsumerGroupDescribeResponse(groups=[])
    return _describe_all(shards, request, response, response.groups, describe, _undescribed_consumer_group)


def _undescribed_consumer_group(
    group_id: str, code: ErrorCode, message: str | None
) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def describe_share_groups(
    shards: ShardMap[GroupShard], request: ShareGroupDescribeRequest
) -> Steps[Pending[ShareGroupDescribeResponse]]:
    """Share groups; any other is GROUP_ID_NOT_FOUND."""

    def describe(shard: GroupShard, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        return shard.share_group(group_id).describe()

    response = ShareGroupDescribeResponse(groups=[])
    return _describe_all(shards, request, response, response.groups, describe, undescribed)


def describe_streams_groups(
    shards: ShardMap[GroupShard], request: StreamsGroupDescribeRequest
) -> Steps[Pending[StreamsGroupDescribeResponse]]:
    """Streams groups; any other is GROUP_ID_NOT_FOUND. None has a stored description of its topology's nodes."""

    def describe(shard: GroupShard, group_id: str) -> StreamsGroupDescribeResponse.DescribedGroup:
        described = shard.streams_group(group_id).describe()
        if request.include_topology_description:
            described.topology_description_status = TopologyDescriptionStatus.NOT_STORED
        return described

    response = StreamsGroupDescribeResponse(groups=[])
    return _describe_all(shards, request, response, response.groups, describe, undescribed_streams_group)


def _describe_all(
    shards: ShardMap[GroupShard],
    request: _Request,
    response: R,
    groups: list[G],
    describe: Callable[[GroupShard, str], G],
    undescribed: Callable[[str, ErrorCode, str | None], G],
) -> Steps[Pending[R]]:
    """Add each group of the request to `groups`, the list in `response`: described, or with the code of its refusal."""
    pending: Pending[R] = Pending()
    answer = JointAnswer(pending, response)
    pace = Pace(MEMBERS_PER_STEP)
    for group_id in request.group_ids:
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = shards.ready(group_id)
            described = describe(shard, group_id)
            described.authorized_operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
            answer.rest_on(shard, group_id)
        except KafkaError as refusal:
            described = undescribed(group_id, refusal.code, refusal.message)
        groups.append(described)
        if pace.is_up(1 + len(described.members)):
            yield
    answer.seal()
    return pending


def delete_groups(
    shards: ShardMap[GroupShard], request: DeleteGroupsRequest, pending: Pending[DeleteGroupsResponse]
) -> None:
    """Remove groups, each independently; the answer is sent when the removals are durable."""
    response = DeleteGroupsResponse(results=[])
    answer = JointAnswer(pending, response)
    for group_id in dict.fromkeys(request.groups_names):
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        response.results.append(result)
        try:
            shard = shards.ready(group_id)
            shard.delete_group(group_id)
            answer.rest_on(shard, group_id)
        except KafkaError as refusal:
            result.error_code, result.error_message = refusal.code, refusal.message
    answer.seal()
