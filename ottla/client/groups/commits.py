"""Committed offsets of consumers: OffsetCommit and OffsetFetch to a group's coordinator.

Error codes are handled as in Kafka's `ConsumerCoordinator` and `CommitRequestManager`: some are transient (the
coordinator moves or loads), some mean that the group has removed this member (`CommitFailed`), the rest are raised
unchanged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from ottla.client.cluster import Cluster
from ottla.client.coordinator import OFFSETS_LANE, Coordinator
from ottla.client.errors import CommitFailed, KafkaError
from ottla.client.structs import OffsetAndMetadata, TopicPartition
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.types import ZERO_UUID

_FIRST_COMMIT_VERSION_WITH_INSTANCES = 7
LAST_COMMIT_VERSION_WITH_NAMES = 9
"""Later versions of OffsetCommit have topic ids in place of names."""
_FIRST_FETCH_VERSION_WITH_STABLE = 7
_FIRST_FETCH_VERSION_WITH_GROUPS = 8
LAST_FETCH_VERSION_WITH_NAMES = 9
"""Later versions of OffsetFetch have topic ids in place of names."""
_FIRST_VERSION_WITH_EPOCHS = 9
NO_IDS: Mapping[str, UUID] = MappingProxyType({})
NO_NAMES: Mapping[UUID, str] = MappingProxyType({})

GONE = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Codes that mean: the committing member is not, or not now, the member that the group knows."""


class MemberIdentity(NamedTuple):
    """The member that commits. The default is no member: the program assigned the partitions itself."""

    member_id: str = ""
    generation: int = -1
    group_instance_id: str | None = None
    has_epoch: bool = False
    """Whether `generation` is a member epoch of the consumer protocol."""


NOBODY = MemberIdentity()


async def commit_once(
    cluster: Cluster,
    coordinator: Coordinator,
    identity: MemberIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> None:
    """Commit offsets, once; raises KafkaError, and CommitFailed when the group refuses commits of this member.

    Topics are named by their ids if the broker takes that and all are known: a topic that was deleted and created again
    then does not get the offsets of the former one.
    """
    connection = await coordinator.connection(OFFSETS_LANE)
    ids = {topic: cluster.topic_id(topic) for topic, _ in offsets}
    has_ids = all(topic_id != ZERO_UUID for topic_id in ids.values())
    version = connection.version_for(OffsetCommitRequest, ANY_VERSION if has_ids else LAST_COMMIT_VERSION_WITH_NAMES)
    if identity.has_epoch and version < _FIRST_VERSION_WITH_EPOCHS:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not take commits of the consumer protocol")
    by_topic: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, index), (offset, metadata, leader_epoch) in offsets.items():
        by_topic[topic].append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=coordinator.key,
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id if version >= _FIRST_COMMIT_VERSION_WITH_INSTANCES else None,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, topic_id=ids[topic], partitions=partitions)
            for topic, partitions in by_topic.items()
        ],
    )
    answer = await coordinator.send(connection, request, OffsetCommitResponse, version)
    names = {topic_id: topic for topic, topic_id in ids.items()} if version > LAST_COMMIT_VERSION_WITH_NAMES else {}
    refused = [
        (f"{names.get(topic.topic_id, topic.name)}-{entry.partition_index}", ErrorCode.of(entry.error_code))
        for topic in answer.topics
        for entry in topic.partitions
        if entry.error_code
    ]
    if any(code is ErrorCode.UNKNOWN_TOPIC_ID for _, code in refused):
        cluster.mark_stale()
    if refused:
        raise _commit_failure(coordinator, refused)


def _commit_failure(coordinator: Coordinator, refused: list[tuple[str, ErrorCode]]) -> KafkaError:
    """Return the error of a commit: one that is not retriable, if there is one among them."""
    place, code = next((one for one in refused if not one[1].retriable), refused[0])
    coordinator.hear(code)
    if code == ErrorCode.REQUEST_TIMED_OUT:
        coordinator.lose(code.message)
    if code in GONE:
        return CommitFailed(code, code.message)
    return KafkaError(code, f"commit of {place}: {code.message}")


async def fetch_committed(
    cluster: Cluster,
    coordinator: Coordinator,
    identity: Callable[[], MemberIdentity],
    partitions: Iterable[TopicPartition],
    timeout_ms: int,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """Return the group's committed offsets, None for none; waits while a transaction has pending offsets.

    `identity` is called before each attempt, since a member's epoch may change meanwhile. Raises KafkaError.
    """
    wanted = list(dict.fromkeys(partitions))
    if not wanted:
        return {}

    async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
        try:
            found = await _fetch_once(cluster, coordinator, identity(), wanted)
        except KafkaError as failed:
            if failed.code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                # The member gets another epoch, or was removed: the next attempt uses its new identity.
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, failed.message) from None
            raise
        return {partition: found.get(partition) for partition in wanted}

    return await cluster.retry(attempt, timeout_ms)


async def _fetch_once(
    cluster: Cluster, coordinator: Coordinator, identity: MemberIdentity, wanted: list[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """As `commit_once`, topics are named by their ids if possible: one that was created again has no offsets then."""
    connection = await coordinator.connection(OFFSETS_LANE)
    ids = {topic: cluster.topic_id(topic) for topic, _ in wanted}
    has_ids = all(topic_id != ZERO_UUID for topic_id in ids.values())
    version = connection.version_for(OffsetFetchRequest, ANY_VERSION if has_ids else LAST_FETCH_VERSION_WITH_NAMES)
    request = offset_fetch_request(version, {coordinator.key: wanted}, identity, topic_ids=ids)
    answer = await coordinator.send(connection, request, OffsetFetchResponse, version)
    names = {topic_id: topic for topic, topic_id in ids.items()}
    code, found, refused = read_offset_fetch(answer, version, coordinator.key, names)
    if ErrorCode.UNKNOWN_TOPIC_ID in refused.values():
        cluster.mark_stale()
    if code:
        coordinator.hear(code)
        raise KafkaError(code, f"committed offsets of group {coordinator.key}: {code.message}")
    for partition, refusal in refused.items():
        raise KafkaError(refusal, f"committed offset of {partition.topic}-{partition.partition}: {refusal.message}")
    return found


def offset_fetch_request(
    version: int,
    wanted: Mapping[str, Iterable[TopicPartition] | None],
    identity: MemberIdentity = NOBODY,
    *,
    require_stable: bool = True,
    topic_ids: Mapping[str, UUID] = NO_IDS,
) -> OffsetFetchRequest:
    """Return the request for groups' offsets, of some partitions or of all (None); one group before version 8.

    `topic_ids` has the ids of all topics for versions with them.
    """
    by_group: dict[str, dict[str, list[int]] | None] = {}
    for group_id, partitions in wanted.items():
        topics: dict[str, list[int]] | None = None
        if partitions is not None:
            topics = defaultdict(list)
            for topic, index in partitions:
                topics[topic].append(index)
        by_group[group_id] = topics
    is_stable = require_stable and version >= _FIRST_FETCH_VERSION_WITH_STABLE
    if version < _FIRST_FETCH_VERSION_WITH_GROUPS:
        ((group_id, asked),) = by_group.items()
        old = (
            None
            if asked is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in asked.items()
            ]
        )
        return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=is_stable)
    groups = [
        OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group_id,
            member_id=identity.member_id if identity.has_epoch else None,
            member_epoch=identity.generation if identity.has_epoch else -1,
            topics=None
            if asked is None
            else [
                OffsetFetchRequest.OffsetFetchRequestTopics(
                    name=topic, topic_id=topic_ids.get(topic, ZERO_UUID), partition_indexes=indexes
                )
                for topic, indexes in asked.items()
            ],
        )
        for group_id, asked in by_group.items()
    ]
    return OffsetFetchRequest(groups=groups, require_stable=is_stable)


def read_offset_fetch(
    answer: OffsetFetchResponse, version: int, group_id: str, names: Mapping[UUID, str] = NO_NAMES
) -> tuple[ErrorCode, dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, ErrorCode]]:
    """Return, for one group, its code, the committed offsets, and the codes of partitions that were refused.

    `names` has the names of the topics for versions with ids.
    """
    code = answer.error_code
    topics: Iterable[OffsetFetchResponse.OffsetFetchResponseTopic | OffsetFetchResponse.OffsetFetchResponseTopics]
    topics = answer.topics
    if version >= _FIRST_FETCH_VERSION_WITH_GROUPS:
        group = next((one for one in answer.groups if one.group_id == group_id), None)
        if group is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, {}, {}
        code, topics = group.error_code, group.topics
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    refused: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        name = topic.name
        if version > LAST_FETCH_VERSION_WITH_NAMES:
            assert isinstance(topic, OffsetFetchResponse.OffsetFetchResponseTopics)
            name = names.get(topic.topic_id, "")
        for entry in topic.partitions:
            partition = TopicPartition(name, entry.partition_index)
            if entry.error_code:
                refused[partition] = ErrorCode.of(entry.error_code)
            elif entry.committed_offset >= 0:
                found[partition] = OffsetAndMetadata(
                    entry.committed_offset, entry.metadata or "", entry.committed_leader_epoch
                )
    return ErrorCode.of(code), found, refused
