"""OffsetFetch: the committed offsets of groups, in the format of the request's version.

A partition without a committed offset is -1 without an error, and so is every partition of a group that does not exist
or is a share group: clients treat any error there as fatal. An error of a whole group is returned once per group from
version 8 on, once for the request from version 2 on, and before that for each partition.
A reader that asks for stable offsets (KIP-447) gets UNSTABLE_OFFSET_COMMIT for a partition of which an open transaction
has committed an offset, and asks again. Other readers get the offset that is valid now. A request with null topics
lists only offsets that are valid now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordination.writes import JointAnswer
from ottla.broker.groups.group import GroupType
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_map import ShardMap
    from ottla.broker.groups.offsets import CommittedOffset, Offsets, Partitions
    from ottla.broker.groups.shard import GroupShard
    from ottla.broker.runtime.steps import Steps

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_CODE = 2
NO_OFFSET = -1
NO_LEADER_EPOCH = -1
NO_MEMBER = (None, -1)

_Asked = Sequence["OffsetFetchRequest.OffsetFetchRequestTopic | OffsetFetchRequest.OffsetFetchRequestTopics"]
_Partition = tuple[int, "CommittedOffset | None", ErrorCode]
_Found = list[tuple[str, list[_Partition]]]


def fetch_offsets(
    shards: ShardMap[GroupShard], request: OffsetFetchRequest, version: int
) -> Steps[Pending[OffsetFetchResponse]]:
    """Answer for one group, or for each of several. The offsets of a group are looked up in one step."""
    response = OffsetFetchResponse()
    pending: Pending[OffsetFetchResponse] = Pending()
    joint = JointAnswer(pending, response)
    pace = Pace()
    if version >= FIRST_VERSION_WITH_GROUPS:
        for asked in request.groups:
            group = yield from _answer_group(shards, asked, joint, pace, must_be_stable=request.require_stable)
            response.groups.append(group)
    else:
        yield from _answer_single(shards, request, version, response, joint, pace)
    joint.seal()
    return pending


def _answer_group(
    shards: ShardMap[GroupShard],
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
    joint: JointAnswer[OffsetFetchResponse],
    pace: Pace,
    *,
    must_be_stable: bool,
) -> Steps[OffsetFetchResponse.OffsetFetchResponseGroup]:
    answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=asked.group_id, topics=[])
    try:
        member = asked.member_id, asked.member_epoch
        found = _look_up(shards, asked.group_id, member, asked.topics, joint, must_be_stable=must_be_stable)
    except KafkaError as refusal:
        answer.error_code = refusal.code
        return answer

    def of_partition(partition: _Partition) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
        index, committed, code = partition
        return OffsetFetchResponse.OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=NO_OFFSET if committed is None else committed.offset,
            committed_leader_epoch=NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
            metadata="" if committed is None else committed.metadata,
            error_code=code,
        )

    for topic, partitions in found:
        made = yield from pace.made(of_partition, partitions)
        answer.topics.append(OffsetFetchResponse.OffsetFetchResponseTopics(name=topic, partitions=made))
    return answer


def _answer_single(
    shards: ShardMap[GroupShard],
    request: OffsetFetchRequest,
    version: int,
    response: OffsetFetchResponse,
    joint: JointAnswer[OffsetFetchResponse],
    pace: Pace,
) -> Steps[None]:
    code = ErrorCode.NONE
    found: _Found = []
    try:
        found = _look_up(
            shards, request.group_id, NO_MEMBER, request.topics, joint, must_be_stable=request.require_stable
        )
    except KafkaError as refusal:
        code = refusal.code
        if version < FIRST_VERSION_WITH_CODE:
            found = _select(request.topics, {})
        response.error_code = code

    def of_partition(partition: _Partition) -> OffsetFetchResponse.OffsetFetchResponsePartition:
        index, committed, own_code = partition
        return OffsetFetchResponse.OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=NO_OFFSET if committed is None else committed.offset,
            committed_leader_epoch=NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
            metadata="" if committed is None else committed.metadata,
            error_code=code or own_code,
        )

    for topic, partitions in found:
        made = yield from pace.made(of_partition, partitions)
        response.topics.append(OffsetFetchResponse.OffsetFetchResponseTopic(name=topic, partitions=made))


def _look_up(
    shards: ShardMap[GroupShard],
    group_id: str,
    member: tuple[str | None, int],
    topics: _Asked | None,
    joint: JointAnswer[OffsetFetchResponse],
    *,
    must_be_stable: bool,
) -> _Found:
    """The requested offsets, or all where `topics` is None. Raises KafkaError for the whole group."""
    shard = shards.ready(group_id)
    group = shard.groups.get(group_id)
    if group is None or group.type is GroupType.SHARE:
        found = _select(topics, {})
    else:
        group.check_fetch_offsets(*member)
        found = _select(topics, shard.offsets.of(group_id))
        if must_be_stable and shard.offsets.pending:
            found = _only_stable(found, group_id, shard.offsets)
    joint.rest_on(shard, group_id)
    return found


def _select(topics: _Asked | None, committed: dict[str, Partitions]) -> _Found:
    none = ErrorCode.NONE
    if topics is None:
        return [
            (topic, [(index, offset, none) for index, offset in partitions.items()])
            for topic, partitions in committed.items()
        ]
    return [
        (topic.name, [(index, committed.get(topic.name, {}).get(index), none) for index in topic.partition_indexes])
        for topic in topics
    ]


def _only_stable(found: _Found, group_id: str, offsets: Offsets) -> _Found:
    """The answer to a reader that asks for stable offsets, from `found`."""

    def stable(topic: str, partition: _Partition) -> _Partition:
        index = partition[0]
        if offsets.pending.is_open((group_id, topic, index)):
            return index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT
        return partition

    return [(topic, [stable(topic, partition) for partition in partitions]) for topic, partitions in found]
