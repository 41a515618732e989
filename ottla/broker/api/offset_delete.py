"""OffsetDelete (key 47), version 0: forget offsets of a group; the answer is sent when that survives a crash.

A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION; a partition of a topic to which a member subscribes is
GROUP_SUBSCRIBED_TO_TOPIC; a partition without a committed offset is no error. For the whole request:
GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (its members are not consumers), INVALID_GROUP_ID for the empty id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.context import Context

Result = OffsetDeleteResponse.OffsetDeleteResponsePartition

NEEDS = (
    Need(AclOperation.DELETE, ResourceType.GROUP, named=("group_id",)),
    Need(AclOperation.READ, ResourceType.TOPIC, lacking="the partitions of the topic are refused"),
)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)


def handle(request: OffsetDeleteRequest, context: Context) -> Pending[OffsetDeleteResponse]:
    """Delete offsets of partitions that exist, refuse the rest; the coordinator checks the group first."""
    topics = context.services.catalog.topics
    pending: Pending[OffsetDeleteResponse] = Pending()
    known = []
    refused = set()
    for asked in request.topics:
        if not context.may(AclOperation.READ, ResourceType.TOPIC, asked.name):
            refused.add(asked.name)
            continue
        count = len(topics[asked.name].partitions) if asked.name in topics else 0
        existing = [each for each in asked.partitions if 0 <= each.partition_index < count]
        if existing:
            known.append(asked.replace(partitions=existing))

    def deleted(done: Pending[OffsetDeleteResponse]) -> None:
        if done.response is None:
            assert done.error is not None
            pending.fail(done.error)
        else:
            pending.complete(_merged(request, done.response, refused))

    context.services.groups.get().delete_offsets(request.replace(topics=known), context).then(deleted)
    return pending


def _merged(
    request: OffsetDeleteRequest, response: OffsetDeleteResponse, refused: Collection[str]
) -> OffsetDeleteResponse:
    """The results of all requested partitions; those that the coordinator has not got do not exist."""
    codes = {
        (topic.name, result.partition_index): result.error_code
        for topic in response.topics
        for result in topic.partitions
    }

    def code(topic: str, index: int) -> int:
        if topic in refused:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return codes.get((topic, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    Result(partition_index=each.partition_index, error_code=code(topic.name, each.partition_index))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
