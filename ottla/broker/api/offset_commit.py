"""OffsetCommit (key 8), versions 0-10: store a group's position; the answer is sent when it survives a crash.

A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, one whose metadata is longer than
`offset.metadata.max.bytes` OFFSET_METADATA_TOO_LARGE; the other ones are stored. Whether the member may commit is
checked for the whole request, and only if one of its partitions exists, as in Kafka: UNKNOWN_MEMBER_ID,
ILLEGAL_GENERATION, STALE_MEMBER_EPOCH and the like. The empty group id is a group.

Versions: 0 names no member, so it is refused if the group has members, like any such commit; 1 gives each offset a
commit time; 2-4 a retention for the whole request, which replaces `offsets.retention.minutes`. Kafka 4 begins with
version 2. Commits of version 0 went to ZooKeeper in Kafka, and are UNSUPPORTED_VERSION in KRaft; here they are stored
like any other commit. Version 10 has topic ids in place of names: an id without a topic is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import ById, Chunks, Need
from ottla.broker.groups.existing_partitions import CommitCodes, split, with_missing, with_names
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending

Result = OffsetCommitResponse.OffsetCommitResponsePartition

FIRST_VERSION_WITH_IDS = 10

NEEDS = (
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
    Need(
        AclOperation.READ,
        ResourceType.TOPIC,
        named=("topics", "name"),
        answered="topics",
        by_id=ById("topic_id", FIRST_VERSION_WITH_IDS),
    ),
)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)


def handle(request: OffsetCommitRequest, context: Context) -> OffsetCommitResponse | Pending[OffsetCommitResponse]:
    """Commit the partitions that exist, refuse the rest."""
    catalog = context.services.catalog
    is_by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    if is_by_id:
        request = request.replace(topics=with_names(request.topics, catalog.topics_by_id))
    known, unknown = split(request.topics, catalog.topics)
    if not known:
        return _answer(request, CommitCodes(unknown, is_by_id))
    if not unknown and not is_by_id:
        return context.services.groups.get().commit_offsets(request, context)
    committed = context.services.groups.get().commit_offsets(request.replace(topics=known), context)
    return with_missing(committed, CommitCodes(unknown, is_by_id), lambda codes: _answer(request, codes))


def _answer(request: OffsetCommitRequest, codes: CommitCodes) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    Result(partition_index=each.partition_index, error_code=codes.of(topic.name, each.partition_index))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
