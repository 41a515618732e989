"""The committed offsets of one shard: what may be committed, fetched, deleted, and what is old enough to go.

Offsets change only in `replay`, in life and at a load alike. They belong to a group id, not to a group object: members
and protocols come and go, offsets stay until they are deleted, expire, or their topic is deleted. Kafka's
`OffsetMetadataManager` and `OffsetExpirationConditionImpl`.

Pure: no clock, no log, no catalog; the shard passes the time in, and whether a group's topic is in use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.api.offset_commit import OffsetCommitResponse
from ottla.protocol.api.offset_delete import OffsetDeleteResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.group import OffsetCommitKey, OffsetCommitValue

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.offset_delete import OffsetDeleteRequest

NO_EXPIRY = -1
NO_RETENTION_ASKED = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
OFFSET_RECORD_BYTES = 128
"""A record of an offset without its texts: headers, versions, lengths, numbers."""
LAST_TIMESTAMP_MS = (1 << 63) - 1
"""The last moment that a record can name."""


class CommittedOffset(NamedTuple):
    """One committed offset: the next record to read, and what was said with it. Times in ms since 1970.

    `expire_timestamp_ms` is -1 unless an OffsetCommit 2-4 asked for a retention of its own.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int


Partitions = dict[int, CommittedOffset]


class Offsets:
    """All committed offsets of a shard, by group, topic and partition."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, Partitions]] = {}
        self.count = 0
        """How many offsets there are."""

    def groups(self) -> Collection[str]:
        """The groups that have offsets."""
        return self._by_group.keys()

    def of(self, group_id: str) -> dict[str, Partitions]:
        """A group's offsets by topic and partition; to be read only."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """One offset, or None."""
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Apply a record; without a value the offset is forgotten."""
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            return
        partitions = self._by_group.setdefault(key.group, {}).setdefault(key.topic, {})
        if key.partition not in partitions:
            self.count += 1
        partitions[key.partition] = CommittedOffset(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
        )

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
        self, request: OffsetCommitRequest, *, now_ms: int, metadata_max_bytes: int, exists: Callable[[str], bool]
    ) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
        """The records of a commit that may be made, and its answer; an offset whose text is too long is left out, and
        so are those of topics that do not exist any more: one may go while the commit waits for `__consumer_offsets`.

        As in Kafka the limit of `offset.metadata.max.bytes` counts characters of UTF-16, the offset itself is not
        judged, and a missing text is an empty one. OffsetCommit 2-4 may ask for a retention of its own, version 1 gives
        each offset a commit time. A retention beyond the end of time is for ever; in Kafka the sum overflows, and the
        offset expires at once.
        """
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse(topics=[])
        retention_ms = request.retention_time_ms
        expire_timestamp_ms = (
            NO_EXPIRY if retention_ms == NO_RETENTION_ASKED else min(now_ms + retention_ms, LAST_TIMESTAMP_MS)
        )
        for topic in request.topics:
            results = []
            is_gone = not exists(topic.name)
            for asked in topic.partitions:
                metadata = asked.committed_metadata or ""
                code = ErrorCode.NONE
                if is_gone:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif _utf16_length(metadata) > metadata_max_bytes:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    own_ms = asked.commit_timestamp
                    value = OffsetCommitValue(
                        offset=asked.committed_offset,
                        leader_epoch=asked.committed_leader_epoch,
                        metadata=metadata,
                        commit_timestamp=now_ms if own_ms == NO_TIMESTAMP else own_ms,
                        expire_timestamp=expire_timestamp_ms,
                    )
                    records.append((offset_key(request.group_id, topic.name, asked.partition_index), value))
                results.append(
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            response.topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=results))
        return records, response

    def plan_delete(
        self, request: OffsetDeleteRequest, is_subscribed: Callable[[str], bool]
    ) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
        """The tombstones of a deletion, and its answer; topics in use are GROUP_SUBSCRIBED_TO_TOPIC.

        To delete what is not there is no error.
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
                if code is ErrorCode.NONE and self.get(request.group_id, topic.name, index) is not None:
                    records.append((offset_key(request.group_id, topic.name, index), None))
            response.topics.append(OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name, partitions=results))
        return records, response

    # --- going away --------------------------------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """The records that remove all offsets of a group."""
        return [
            (offset_key(group_id, topic, index), None)
            for topic, partitions in self.of(group_id).items()
            for index in partitions
        ]

    def tombstones_of_topics(self, group_id: str, topics: Collection[str]) -> list[CoordinatorRecord]:
        """The records that remove a group's offsets of deleted topics."""
        of_group = self._by_group.get(group_id)
        if of_group is None:
            return []
        return [
            (offset_key(group_id, topic, index), None)
            for topic in topics
            if topic in of_group
            for index in of_group[topic]
        ]

    def expired(
        self,
        group_id: str,
        *,
        idle_since_ms: int | None,
        is_subscribed: Callable[[str], bool],
        now_ms: int,
        retention_ms: int,
    ) -> tuple[list[CoordinatorRecord], bool]:
        """The tombstones of a group's expired offsets, and whether nothing is left then.

        Offsets of topics that members use never expire. The others do `retention_ms` after the group began to be idle,
        or, where `idle_since_ms` is None, after each was committed; one that was committed with a retention of its own
        when that has passed.
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
                if now_ms >= due_ms:
                    records.append((offset_key(group_id, topic, index), None))
                else:
                    kept += 1
        return records, kept == 0


def offset_key(group_id: str, topic: str, partition: int) -> OffsetCommitKey:
    """The key of an offset's record."""
    return OffsetCommitKey(group=group_id, topic=topic, partition=partition)


def most_bytes(records: Iterable[CoordinatorRecord]) -> int:
    """What the records of offsets take at most, without looking at how long their texts are in UTF-8."""
    size_bytes = 0
    for key, value in records:
        assert isinstance(key, OffsetCommitKey)
        characters = len(key.group) + len(key.topic)
        if isinstance(value, OffsetCommitValue):
            characters += len(value.metadata)
        size_bytes += 3 * characters + OFFSET_RECORD_BYTES
    return size_bytes


def _utf16_length(text: str) -> int:
    """The length that Java's String has: characters beyond the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
