"""OffsetFetch (key 9), versions 0-9: the offsets that groups have committed; several groups from version 8 on.

A partition without a committed offset is -1 without an error, even if it does not exist, and even in a group that does
not exist: librdkafka treats GROUP_ID_NOT_FOUND here as fatal. Null topics ask for all of a group's offsets. A member of
the consumer protocol may name itself (version 9); its group may then be UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
`require_stable` (version 7) asks for UNSTABLE_OFFSET_COMMIT where an open transaction may change the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.runtime.pending import Pending

FIRST_VERSION_WITH_GROUPS = 8
NO_OFFSET = -1

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.GROUP, lacking="the group is refused"),
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        lacking="the partitions of the topic are refused; where all topics are asked for, it is left out",
    ),
)
CHUNKS = (
    Chunks(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
    Chunks(("topics", "partition_indexes"), ("topics", "partitions")),
)


def handle(request: OffsetFetchRequest, context: Context) -> Pending[OffsetFetchResponse]:
    """Answer with what is durable."""
    groups = context.services.groups.get()
    if context.services.authorizer is None:
        return groups.fetch_offsets(request, context)
    if context.api_version >= FIRST_VERSION_WITH_GROUPS:
        return _fetch_permitted_groups(request, context, groups)
    return _fetch_permitted(request, context, groups)


def _fetch_permitted(
    request: OffsetFetchRequest, context: Context, groups: GroupCoordinator
) -> Pending[OffsetFetchResponse]:
    if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = request.topics
    asked = None if topics is None else [topic for topic in topics if _may_see(topic.name, context)]
    looked_up = {topic.name for topic in asked or ()}

    def permitted(response: OffsetFetchResponse) -> OffsetFetchResponse:
        seen = [topic for topic in response.topics if _has(topic.name, context)]
        refused = [
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=NO_OFFSET,
                        metadata="",
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in topics or ()
            if topic.name not in looked_up or not _has(topic.name, context)
        ]
        return response.replace(topics=seen + refused)

    return changed(groups.fetch_offsets(request.replace(topics=asked), context), permitted)


def _fetch_permitted_groups(
    request: OffsetFetchRequest, context: Context, groups: GroupCoordinator
) -> Pending[OffsetFetchResponse]:
    asked: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
    refused: list[OffsetFetchRequest.OffsetFetchRequestGroup] = []
    for group in request.groups:
        is_permitted = context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id)
        (asked if is_permitted else refused).append(group)
    stripped = [
        group
        if group.topics is None
        else group.replace(topics=[topic for topic in group.topics if _may_see(topic.name, context)])
        for group in asked
    ]
    looked_up = [{topic.name for topic in group.topics or ()} for group in stripped]

    def permitted(response: OffsetFetchResponse) -> OffsetFetchResponse:
        answers = [
            _permitted(group, names, answer, context)
            for group, names, answer in zip(asked, looked_up, response.groups, strict=True)
        ]
        answers += [
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
            )
            for group in refused
        ]
        return response.replace(groups=answers)

    return changed(groups.fetch_offsets(request.replace(groups=stripped), context), permitted)


def _permitted(
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
    looked_up: set[str],
    answer: OffsetFetchResponse.OffsetFetchResponseGroup,
    context: Context,
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """The answer of one group: without topics that the client may not see, and with the requested ones of them refused.

    Topics of `asked` that were not `looked_up` are refused, too, even if the client has got the right meanwhile: a
    consumer would treat a partition that is not in the answer as one without a committed offset.
    """
    if answer.error_code:
        return answer
    seen = [topic for topic in answer.topics if _has(topic.name, context)]
    refused = [
        OffsetFetchResponse.OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponse.OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=NO_OFFSET,
                    metadata="",
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
        if topic.name not in looked_up or not _has(topic.name, context)
    ]
    return answer.replace(topics=seen + refused)


def _may_see(topic: str, context: Context) -> bool:
    return context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _has(topic: str, context: Context) -> bool:
    """As `_may_see`, without a line in the audit log: for topics of an answer, or topics that were checked before."""
    return context.has(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
