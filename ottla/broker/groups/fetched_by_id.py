"""OffsetFetch with topic ids (version 10): ids to names for the coordinator, whose offsets have names, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from ottla.broker.catalog.topic import Topic

NO_OFFSET: Final = -1

AskedTopic = OffsetFetchRequest.OffsetFetchRequestTopics
AnsweredTopic = OffsetFetchResponse.OffsetFetchResponseTopics
Names = dict["UUID", str]


def names_of(request: OffsetFetchRequest, topics_by_id: Mapping[UUID, Topic]) -> Names:
    """The names of the topics of a request, by id, of those that exist."""
    asked = {topic.topic_id for group in request.groups for topic in group.topics or ()}
    return {topic_id: topics_by_id[topic_id].name for topic_id in asked if topic_id in topics_by_id}


def with_names(request: OffsetFetchRequest, names: Names) -> OffsetFetchRequest:
    """The request with the names of its topics, without those that have none."""
    return request.replace(
        groups=[
            group
            if group.topics is None
            else group.replace(
                topics=[topic.replace(name=names[topic.topic_id]) for topic in group.topics if topic.topic_id in names]
            )
            for group in request.groups
        ]
    )


def with_ids(
    answer: OffsetFetchResponse, request: OffsetFetchRequest, names: Names, topics: Mapping[str, Topic]
) -> OffsetFetchResponse:
    """The answer to `request`, made of that to `with_names`: each topic with its id, in the order of the request, and
    UNKNOWN_TOPIC_ID for an id without a topic.
    """
    return answer.replace(
        groups=[
            _group_with_ids(group, asked, names, topics)
            for group, asked in zip(answer.groups, request.groups, strict=True)
        ]
    )


def refused_topic(topic: AskedTopic, code: ErrorCode) -> AnsweredTopic:
    """The answer to a topic that is refused."""
    return AnsweredTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponse.OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _group_with_ids(
    group: OffsetFetchResponse.OffsetFetchResponseGroup,
    asked: OffsetFetchRequest.OffsetFetchRequestGroup,
    names: Names,
    topics: Mapping[str, Topic],
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    if group.error_code:
        return group
    if asked.topics is None:
        existing = [(topics.get(topic.name), topic) for topic in group.topics]
        return group.replace(
            topics=[topic.replace(topic_id=found.id) for found, topic in existing if found is not None]
        )
    found = iter(group.topics)
    return group.replace(
        topics=[
            next(found).replace(topic_id=topic.topic_id)
            if topic.topic_id in names
            else refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID)
            for topic in asked.topics
        ]
    )
