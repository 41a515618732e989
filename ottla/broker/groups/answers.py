"""Answers about several groups at once: lists, descriptions, deletions (fetched offsets: `fetched_offsets.py`).

Each group answers from its shard, or with the code of a shard that cannot be used; an answer leaves when what it rests
on is durable in all of them. Codes are those of Kafka's `GroupCoordinatorService` and `GroupMetadataManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.catalog.descriptions import GROUP_OPERATIONS, NOT_ASKED
from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_map import ShardMap
    from ottla.broker.groups.shard import GroupShard
    from ottla.broker.peer import RequestContext
    from ottla.broker.runtime.pending import Pending

FIRST_VERSION_WITH_GROUP_ID_NOT_FOUND = 6
DEAD = "Dead"


def list_groups(shards: ShardMap[GroupShard], request: ListGroupsRequest, pending: Pending[ListGroupsResponse]) -> None:
    """The groups of all shards; COORDINATOR_LOAD_IN_PROGRESS while one loads.

    Filters do not mind case, and those of states no blanks around them, as in Kafka.
    """
    try:
        ready = shards.all_ready()
    except KafkaError as refusal:
        pending.fail(refusal)
        return
    states = {state.lower().strip() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    response = ListGroupsResponse(groups=[])
    answer = JointAnswer(pending, response)
    for shard in ready:
        for group in shard.groups.values():
            state = group.state
            if (states and state.lower() not in states) or (types and group.type.value not in types):
                continue
            response.groups.append(
                ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=state,
                    group_type=group.type.value,
                )
            )
        answer.rest_on(shard, None)
    answer.seal()


def describe_groups(
    shards: ShardMap[GroupShard],
    request: DescribeGroupsRequest,
    context: RequestContext,
    pending: Pending[DescribeGroupsResponse],
) -> None:
    """Groups of the classic protocol; any other is as if it did not exist."""
    response = DescribeGroupsResponse(groups=[])
    answer = JointAnswer(pending, response)
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
    answer.seal()


def _describe(shard: GroupShard, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
    group = shard.groups.get(group_id)
    if isinstance(group, ClassicGroup):
        return group.describe()
    reason = "not found" if group is None else "is not a classic group"
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")


def _undescribed(group_id: str, refusal: KafkaError, version: int) -> DescribeGroupsResponse.DescribedGroup:
    """Before version 6 a group that does not exist is Dead, and no error."""
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
    shards: ShardMap[GroupShard], request: ConsumerGroupDescribeRequest, pending: Pending[ConsumerGroupDescribeResponse]
) -> None:
    """Groups of the consumer protocol; any other is GROUP_ID_NOT_FOUND."""
    response = ConsumerGroupDescribeResponse(groups=[])
    answer = JointAnswer(pending, response)
    for group_id in request.group_ids:
        try:
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            shard = shards.ready(group_id)
            group = shard.groups.get(group_id)
            if not isinstance(group, ConsumerGroup):
                reason = "not found" if group is None else "is not a consumer group"
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
            described = group.describe()
            described.authorized_operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
            answer.rest_on(shard, group_id)
        except KafkaError as refusal:
            described = ConsumerGroupDescribeResponse.DescribedGroup(
                error_code=refusal.code,
                error_message=refusal.message,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
        response.groups.append(described)
    answer.seal()


def delete_groups(
    shards: ShardMap[GroupShard], request: DeleteGroupsRequest, pending: Pending[DeleteGroupsResponse]
) -> None:
    """Remove groups, each for itself; the answer says that they stay removed."""
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
            result.error_code = refusal.code
    answer.seal()
