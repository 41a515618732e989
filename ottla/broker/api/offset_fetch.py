"""OffsetFetch (key 9), versions 0-10: the offsets that groups have committed; several groups from version 8 on.

A partition without a committed offset is -1 without an error, even if it does not exist, and even in a group that does
not exist: librdkafka treats GROUP_ID_NOT_FOUND here as fatal. Null topics ask for all of a group's offsets. A member of
the consumer protocol may name itself (version 9); its group may then be UNKNOWN_MEMBER_ID or STALE_MEMBER_EPOCH.
`require_stable` (version 7) asks for UNSTABLE_OFFSET_COMMIT where an open transaction may change the offset. Version 10
has topic ids in place of names: an id without a topic is UNKNOWN_TOPIC_ID, and where all topics are asked for, those
that were deleted meanwhile are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.groups.fetched_by_id import NO_OFFSET, names_of, refused_topic, with_ids, with_names
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.groups.coordinator import GroupCoordinator
    from ottla.broker.runtime.pending import Pending

FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_IDS = 10

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
    if context.api_version < FIRST_VERSION_WITH_IDS:
        return _fetch(request, context)
    catalog = context.services.catalog
    names = names_of(request, catalog.topics_by_id)
    return changed(
        _fetch(with_names(request, names), context), lambda answer: with_ids(answer, request, names, catalog.topics)
    )


def _fetch(request: OffsetFetchRequest, context: Context) -> Pending[OffsetFetchResponse]:
    """Answer a request in which topics have names."""
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
        if topics is None:
            return response.replace(topics=[topic for topic in response.topics if _has(topic.name, context)])
        if not response.topics and response.error_code:
            return response
        found = iter(response.topics)
        answers = []
        for topic in topics:
            answer = next(found) if topic.name in looked_up else None
            if answer is None or not _has(topic.name, context):
                answer = OffsetFetchResponse.OffsetFetchResponseTopic(
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
            answers.append(answer)
        return response.replace(topics=answers)

    return changed(groups.fetch_offsets(request.replace(topics=asked), context), permitted)


def _fetch_permitted_groups(
    request: OffsetFetchRequest, context: Context, groups: GroupCoordinator
) -> Pending[OffsetFetchResponse]:
    may = [context.may(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id) for group in request.groups]
    stripped = [
        group
        if group.topics is None
        else group.replace(topics=[topic for topic in group.topics if _may_see(topic.name, context)])
        for group, is_permitted in zip(request.groups, may, strict=True)
        if is_permitted
    ]
    looked_up = [{topic.name for topic in group.topics or ()} for group in stripped]

    def permitted(response: OffsetFetchResponse) -> OffsetFetchResponse:
        found = zip(looked_up, response.groups, strict=True)
        return response.replace(
            groups=[
                _permitted(group, *next(found), context)
                if is_permitted
                else OffsetFetchResponse.OffsetFetchResponseGroup(
                    group_id=group.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
                )
                for group, is_permitted in zip(request.groups, may, strict=True)
            ]
        )

    return changed(groups.fetch_offsets(request.replace(groups=stripped), context), permitted)


def _permitted(
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
    looked_up: set[str],
    answer: OffsetFetchResponse.OffsetFetchResponseGroup,
    context: Context,
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """The answer of one group: without topics that the client may not see, and with the requested ones of them refused,
    in the order of the request: chunks of a long request are joined where it was split.

    Topics of `asked` that were not `looked_up` are refused, too, even if the client has got the right meanwhile: a
    consumer would treat a partition that is not in the answer as one without a committed offset.
    """
    if answer.error_code:
        return answer
    if asked.topics is None:
        return answer.replace(topics=[topic for topic in answer.topics if _has(topic.name, context)])
    found = iter(answer.topics)
    topics = []
    for topic in asked.topics:
        one = next(found) if topic.name in looked_up else None
        if one is None or not _has(topic.name, context):
            one = refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topics.append(one)
    return answer.replace(topics=topics)


def _may_see(topic: str, context: Context) -> bool:
    return context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _has(topic: str, context: Context) -> bool:
    """As `_may_see`, without a line in the audit log: for topics of an answer, or topics that were checked before."""
    return context.has(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
