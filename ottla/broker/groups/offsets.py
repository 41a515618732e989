"""The committed offsets of one shard: commits, fetches, deletions, and which offsets have expired.

Offsets change only in `replay`, `replay_open` (of a transaction) and `end_transaction`, both while the broker runs and
at a load. They belong to a group id, not to a group object: members and protocols change, offsets stay until they are
deleted, expire, or their topic is deleted. Kafka's `OffsetMetadataManager` and `OffsetExpirationConditionImpl`.

Pure: no clock, no log, no catalog. The shard passes the time in, and whether members use a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.broker.groups.pending_offsets import PendingOffsets
from ottla.protocol.api.offset_commit import OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteResponse
from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.group import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord
    from ottla.broker.groups.group import PartitionCheck
    from ottla.broker.groups.pending_offsets import OffsetId
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.offset_delete import OffsetDeleteRequest
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest

NO_EXPIRY = -1
NO_RETENTION_ASKED = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
OFFSET_RECORD_BYTES = 128
"""The size of an offset's record without its texts: headers, versions, lengths, numbers."""
LAST_TIMESTAMP_MS = (1 << 63) - 1
"""The latest time that a record can hold."""


class CommittedOffset(NamedTuple):
    """One committed offset: the next record to read, and what was sent with it. Times in ms since 1970.

    `expire_timestamp_ms` is -1 unless an OffsetCommit 2-4 asked for its own retention. `topic_id` is that of the topic
    at the commit, zero where it is not known: Kafka before 4.1 did not write it, and records with an expiry do not have
    it.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_id: UUID = ZERO_UUID


Partitions = dict[int, CommittedOffset]
TopicIdOf = Callable[[str], "UUID | None"]
"""Returns the id of a topic, or None where no topic has that name."""


class Offsets:
    """All committed offsets of a shard, by group, topic and partition."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, Partitions]] = {}
        self.count = 0
        """The number of offsets."""
        self.pending: PendingOffsets[CommittedOffset] = PendingOffsets()
        """The offsets of open transactions, which are not valid yet."""

    def groups(self) -> Collection[str]:
        """The groups that have offsets, or whose first ones are pending."""
        return self._by_group.keys() if not self.pending else {**self._by_group, **dict.fromkeys(self.pending.groups)}

    def of(self, group_id: str) -> dict[str, Partitions]:
        """A group's offsets by topic and partition; to be read only."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One offset, or None."""
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Apply a record. Without a value the offset is forgotten, with its pending ones."""
        offset_id = key.group, key.topic, key.partition
        if value is None:
            self._remove(*offset_id)
            self.pending.forget(offset_id)
            return
        self._put(*offset_id, _committed(value))
        if self.pending:
            self.pending.supersede(offset_id)

    def replay_open(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Apply a record that the open transaction of a producer has written."""
        self.pending.write(producer_id, (key.group, key.topic, key.partition), _committed(value))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the marker that ends a producer's transaction."""
        for offset_id, committed in self.pending.end(producer_id, is_commit=is_commit):
            self._put(*offset_id, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        partitions = self._by_group.setdefault(group_id, {}).setdefault(topic, {})
        if partition not in partitions:
            self.count += 1
        partitions[partition] = committed

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[topic]
            if not topics:
                del self._by_group[group_id]

    # --- requests --------------------------------------------------------------------------------------------------

    def plan_commit(
        self,
        request: OffsetCommitRequest,
        *,
        now_ms: int,
        metadata_max_bytes: int,
        topic_id_of: TopicIdOf,
        check_partition: PartitionCheck | None = None,
    ) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
        """The records of a commit that may be made, and its answer. Left out are offsets whose metadata is too long,
        and offsets of topics that do not exist any more: a topic may be deleted while the commit waits for
        `__consumer_offsets`.

        As in Kafka the limit of `offset.metadata.max.bytes` counts characters of UTF-16, the offset itself is not
        checked, and missing metadata is empty. OffsetCommit 2-4 may ask for its own retention, version 1 gives each
        offset a commit time. A retention beyond the last time that a record can hold never ends; in Kafka the sum
        overflows, and the offset expires immediately. `check_partition` may refuse the whole commit: it raises
        KafkaError.
        """
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse(topics=[])
        retention_ms = request.retention_time_ms
        expire_timestamp_ms = (
            NO_EXPIRY if retention_ms == NO_RETENTION_ASKED else min(now_ms + retention_ms, LAST_TIMESTAMP_MS)
        )
        for topic in request.topics:
            results = []
            topic_id = topic_id_of(topic.name)
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                code = _code(topic_id, metadata, metadata_max_bytes)
                if topic_id is not None and code is ErrorCode.NONE:
                    if check_partition is not None:
                        check_partition(topic.name, topic_id, asked.partition_index)
                    own_ms = asked.commit_timestamp
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms if own_ms == NO_TIMESTAMP else own_ms,
                        expire_timestamp=expire_timestamp_ms,
                        topic_id=topic_id,
                    )
                    records.append((offset_key(request.group_id, topic.name, asked.partition_index), value))
                results.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            response.topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=results))
        return records, response

    @staticmethod
    def plan_transactional_commit(
        request: TxnOffsetCommitRequest,
        *,
        now_ms: int,
        metadata_max_bytes: int,
        topic_id_of: TopicIdOf,
        check_partition: PartitionCheck | None = None,
    ) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
        """As `plan_commit`, for a commit in a transaction: `replay_open` applies the records."""
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse(topics=[])
        for topic in request.topics:
            results = []
            topic_id = topic_id_of(topic.name)
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                code = _code(topic_id, metadata, metadata_max_bytes)
                if topic_id is not None and code is ErrorCode.NONE:
                    if check_partition is not None:
                        check_partition(topic.name, topic_id, asked.partition_index)
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms,
                        topic_id=topic_id,
                    )
                    records.append((offset_key(request.group_id, topic.name, asked.partition_index), value))
                results.append(
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            response.topics.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name, partitions=results)
            )
        return records, response

    def plan_delete(
        self, request: OffsetDeleteRequest, is_subscribed: Callable[[str], bool]
    ) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
        """The tombstones of a deletion, and its answer; topics in use are GROUP_SUBSCRIBED_TO_TOPIC.

        Deleting an offset that does not exist is no error.
        """
        records: list[CoordinatorRecord] = []
        response = OffsetDeleteResponse(topics=[])
        for topic in request.topics:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed(topic.name) else ErrorCode.NONE
            results = []
            for asked in topic.partitions:
                index = asked.partition_index
                results.append(
                    OffsetDeleteResponse.OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                )
                if code is ErrorCode.NONE and self._holds(request.group_id, topic.name, index):
                    records.append((offset_key(request.group_id, topic.name, index), None))
            response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        return records, response

    # --- deletions ---------------------------------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """The records that remove all offsets of a group, and drop those that are pending."""
        held = self.of_topics(group_id, self.topics(group_id))
        return [(offset_key(group_id, topic, index), None) for topic, indexes in held.items() for index in indexes]

    def of_topics(self, group_id: str, topics: Collection[str]) -> dict[str, list[int]]:
        """The partitions of some topics of which a group has offsets, pending ones included."""
        of_group = self.of(group_id)
        held = {topic: list(of_group[topic]) for topic in topics if topic in of_group}
        for _, topic, index in self.pending.of_group(group_id):
            if topic in topics and index not in of_group.get(topic, ()):
                held.setdefault(topic, []).append(index)
        return held

    def forget_topics(self, group_id: str, topics: Collection[str]) -> None:
        """Do in one call what replaying a tombstone for each partition of `of_topics` does."""
        of_group = self._by_group.get(group_id, {})
        for topic in topics:
            self.count -= len(of_group.pop(topic, ()))
        if not of_group:
            self._by_group.pop(group_id, None)
        for offset_id in list(self.pending.of_group(group_id)):
            if offset_id[1] in topics:
                self.pending.forget(offset_id)

    def topics(self, group_id: str) -> Collection[str]:
        """The topics of which a group has offsets, pending ones included."""
        topics = dict.fromkeys(self.of(group_id))
        topics.update((topic, None) for _, topic, _ in self.pending.of_group(group_id))
        return topics.keys()

    def tombstones_of_others(self, group_id: str, topic_id_of: TopicIdOf) -> list[CoordinatorRecord]:
        """The records that remove a group's offsets of topics that were deleted since, and created again.

        Such an offset is recognized by its topic id; one without an id is assumed to be of the present topic.
        """
        others: dict[OffsetId, None] = {}
        for topic, partitions in self.of(group_id).items():
            present = (ZERO_UUID, topic_id_of(topic))
            for index, committed in partitions.items():
                if committed.topic_id not in present:
                    others[group_id, topic, index] = None
        for offset_id in self.pending.of_group(group_id):
            if self.pending.newest(offset_id).topic_id not in (ZERO_UUID, topic_id_of(offset_id[1])):
                others[offset_id] = None
        return [(offset_key(*offset_id), None) for offset_id in others]

    def _holds(self, group_id: str, topic: str, index: int) -> bool:
        return self.get(group_id, topic, index) is not None or self.pending.is_open((group_id, topic, index))

    def expired(
        self,
        group_id: str,
        *,
        idle_since_ms: int | None,
        is_subscribed: Callable[[str], bool],
        now_ms: int,
        retention_ms: int,
    ) -> tuple[list[CoordinatorRecord], bool]:
        """The tombstones of a group's expired offsets, and whether nothing is left then, not even in a transaction.

        Offsets of topics that members use never expire, nor do offsets of partitions for which an open transaction has
        committed another one. An offset that was committed with its own retention expires when that has passed. All
        others expire `retention_ms` after the group became idle or, where `idle_since_ms` is None, after their commit.
        """
        records: list[CoordinatorRecord] = []
        kept = 0
        for topic, partitions in self.of(group_id).items():
            if is_subscribed(topic):
                kept += len(partitions)
                continue
            for index, committed in partitions.items():
                if committed.expire_timestamp_ms != NO_EXPIRY:
                    due_ms = committed.expire_timestamp_ms
                else:
                    since_ms = committed.commit_timestamp_ms if idle_since_ms is None else idle_since_ms
                    due_ms = since_ms + retention_ms
                if now_ms >= due_ms and not self.pending.is_open((group_id, topic, index)):
                    records.append((offset_key(group_id, topic, index), None))
                else:
                    kept += 1
        return records, kept == 0 and not self.pending.of_group(group_id)


def offset_key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    """The key of an offset's record."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def _committed(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, value.topic_id
    )


def most_bytes(records: Iterable[CoordinatorRecord]) -> int:
    """An upper bound for the size of offsets' records, which does not compute the UTF-8 lengths of their texts."""
    size_bytes = 0
    for key, value in records:
        assert isinstance(key, OffsetCommitKey)
        characters = len(key.group) + len(key.topic)
        if isinstance(value, OffsetCommitValue):
            characters += len(value.metadata)
        size_bytes += 3 * characters + OFFSET_RECORD_BYTES
    return size_bytes


def _code(topic_id: UUID | None, metadata: str, metadata_max_bytes: int) -> ErrorCode:
    """The code for an offset of a commit: its topic may be deleted, its metadata too long."""
    if topic_id is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.OFFSET_METADATA_TOO_LARGE if _utf16_length(metadata) > metadata_max_bytes else ErrorCode.NONE


def _utf16_length(text: str) -> int:
    """The length that Java's String has: characters beyond the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
