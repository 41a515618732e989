"""The committed offsets of one shard's groups: how requests, the expiry and deleted topics change them.

`offsets.py` keeps the offsets themselves, without I/O. This file adds the checks of the group, the records that are
written, and the removal of a group that has lost its last offset. `shard.py` has the members' side.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.shard import CoordinatorShard
from ottla.broker.groups.classic import NEVER_IDLE_MS
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_table import GroupTable
from ottla.broker.groups.offsets import Offsets, most_bytes
from ottla.broker.runtime.steps import Pace
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupMetadataKey,
    encode_offset_keys,
)
from ottla.shown import counted

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.effects import CoordinatorRecord, Now, Reply, Waiter
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.coordination.shard_log import TransactionMarker
    from ottla.broker.groups.group import Group, PartitionCheck
    from ottla.broker.groups.settings import GroupServices
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.offset_delete import OffsetDeleteRequest
    from ottla.protocol.api.txn_offset_commit import TxnOffsetCommitRequest
    from ottla.protocol.message import Struct

logger = logging.getLogger(__name__)

FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCHS = 9
FIRST_TRANSACTIONAL_COMMIT_WITH_EPOCH_CODES = 6
MOST_NAMED = 5
"""Up to this many topics are named in a log line; more are only counted."""
FORGOTTEN_PER_STEP = 200
"""The number of groups of which one step forgets the offsets of deleted topics, 10 us each."""
KEYS_PER_GROUP = 16
"""The number of further offsets of a group that count as one more group."""
SMALLEST_RECORD_BYTES = 64
"""The size of a group's record without its names: the key's version, numbers, empty lists."""


class OffsetShard(CoordinatorShard):
    """See the module; `GroupShard` is the complete class."""

    def __init__(self, context: ShardContext, services: GroupServices) -> None:
        super().__init__(context)
        self._table = GroupTable(services)
        self.groups = self._table.by_id
        self.offsets = Offsets()
        self._services = services
        self._forgetting: dict[object, Collection[str]] = {}
        """Deleted topics, by the current writes of their offsets' tombstones."""

    # --- replay ------------------------------------------------------------------------------------------------------

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            self._share_topic_id(key, value)
            self._table.replay_owner(key.group)
        self.offsets.replay(key, value)

    def _share_topic_id(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        """Let all offsets of a topic share one object for its id: there may be a million of them."""
        topic_id = self._services.topics.id_of(key.topic)
        if topic_id is not None and topic_id == value.topic_id:
            value.topic_id = topic_id

    def _replay_offsets(self, records: Sequence[CoordinatorRecord]) -> None:
        for key, value in records:
            assert isinstance(key, OffsetCommitKey)
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)

    def replay_open(self, producer_id: int, key: Struct, value: Struct) -> None:
        """Apply an offset that an open transaction has committed."""
        assert isinstance(key, OffsetCommitKey)
        assert isinstance(value, OffsetCommitValue)
        self._share_topic_id(key, value)
        self.offsets.replay_open(producer_id, key, value)
        self._table.replay_owner(key.group)

    # --- requests ----------------------------------------------------------------------------------------------------

    def commit_offsets(self, request: OffsetCommitRequest, version: int, waiter: Waiter) -> None:
        """OffsetCommit for topics that exist. Raises KafkaError."""
        group_id = request.group_id
        now = self.now()
        group = self.groups.get(group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                has_epochs = version >= FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCHS
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if has_epochs else ErrorCode.ILLEGAL_GENERATION)
            group = self._table.new_classic(group_id)
        check_partition = group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, api_version=version
        )
        group.note_commit(request.member_id, now)
        services = self._services
        records, response = self.offsets.plan_commit(
            request,
            now_ms=now.wall_ms,
            metadata_max_bytes=services.settings.offset_metadata_max_bytes,
            topic_id_of=services.topics.id_of,
            check_partition=check_partition,
        )
        self.log.check_records(records, most_bytes(records), in_one_batch=True)
        if records:
            self._table.put(group)
            self._replay_offsets(records)
            services.counters.offset_commits += len(records)
        self._finish(group, Effects(records, [(waiter, response)]), now)

    def commit_transactional_offsets(self, request: TxnOffsetCommitRequest, version: int, waiter: Waiter) -> None:
        """TxnOffsetCommit for topics that exist: the offsets count when the producer's transaction commits.

        Raises KafkaError, as Kafka's `validateTransactionalOffsetCommit`: before version 6 a stale epoch of a member,
        and a member of a group that does not exist, are ILLEGAL_GENERATION, which these clients understand. A commit in
        a transaction is no sign of life of the member.
        """
        group_id = request.group_id
        now = self.now()
        group = self.groups.get(group_id)
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                has_codes = version >= FIRST_TRANSACTIONAL_COMMIT_WITH_EPOCH_CODES
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if has_codes else ErrorCode.ILLEGAL_GENERATION)
            group = self._table.new_classic(group_id)
        check_partition = _check_transactional_commit(group, request, version)
        producer_id = request.producer_id
        self.log.check_producer(producer_id, request.producer_epoch)
        services = self._services
        records, response = self.offsets.plan_transactional_commit(
            request,
            now_ms=now.wall_ms,
            metadata_max_bytes=services.settings.offset_metadata_max_bytes,
            topic_id_of=services.topics.id_of,
            check_partition=check_partition,
        )
        self.log.check_records(records, most_bytes(records), in_one_batch=True)
        replies: list[Reply] = [(waiter, response)]
        if not records:
            self._finish(group, Effects([], replies), now)
            return
        self._table.put(group)
        for key, value in records:
            assert value is not None
            self.replay_open(producer_id, key, value)
        services.counters.offset_commits += len(records)
        self.log.write_transactional(group_id, records, replies, producer_id, request.producer_epoch)

    def end_transaction(self, end: TransactionMarker, done: VisibleCallback) -> None:
        """End a producer's transaction, for the transaction coordinator: its offsets become valid, or are dropped.

        `done(None)` once the marker is visible. With an error nothing has changed, and the caller asks again later.
        """

        def apply() -> None:
            self.offsets.end_transaction(end.producer_id, is_commit=end.is_commit)

        self.log.write_marker(self.offsets.pending.groups_of(end.producer_id), end, apply, done)

    def delete_offsets(self, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        """OffsetDelete for topics that exist. Raises KafkaError."""
        group = self._table.find(request.group_id)
        if group.type is GroupType.SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is a share group.")
        if group.type is GroupType.CLASSIC and not group.is_empty and group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records, response = self.offsets.plan_delete(request, group.is_subscribed_to)
        self.log.check_records(records, most_bytes(records), in_one_batch=True)
        self._replay_offsets(records)
        self._services.counters.offset_deletions += len(records)
        self._finish(group, Effects(records, [(waiter, response)]), self.now())

    def delete_group(self, group_id: str) -> None:
        """Remove a group and its offsets. Raises KafkaError, as `check_delete_group`."""
        tombstones = self.check_delete_group(group_id)
        self._services.counters.offset_deletions += len(tombstones)
        self._remove(self._table.find(group_id), tombstones)

    def check_delete_group(self, group_id: str) -> list[CoordinatorRecord]:
        """The tombstones of the offsets of a group that can be removed. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP.
        """
        self._table.find(group_id).check_delete()
        tombstones = self.offsets.tombstones(group_id)
        self._check_name(group_id)
        self.log.check_records(tombstones, most_bytes(tombstones), in_one_batch=False)
        return tombstones

    def _remove(self, group: Group, offset_tombstones: list[CoordinatorRecord]) -> None:
        self._replay_offsets(offset_tombstones)
        del self.groups[group.group_id]
        self.timer.plan(group.group_id, None)
        self.write(group.group_id, [*offset_tombstones, *group.tombstones()])

    # --- not caused by requests --------------------------------------------------------------------------------------

    def _forget_what_is_gone(self, group_id: str) -> None:
        """At a load: forget a group's offsets of topics that do not exist any more, or were created again since.

        A topic is deleted as soon as the metadata says so. Its offsets' tombstones are written after that, and a crash
        may come between. A new topic of the same name must not be read from the offset in the old one. A topic cannot
        be distinguished from a new one if its id was lost with the metadata log and every `partition.metadata`; reading
        it from its beginning loses nothing.
        """
        topic_id_of = self._services.topics.id_of
        self._forget_topics(group_id, [name for name in self.offsets.topics(group_id) if topic_id_of(name) is None])
        others = self.offsets.tombstones_of_others(group_id, topic_id_of)
        if others:
            topics = sorted({key.topic for key, _ in others if isinstance(key, OffsetCommitKey)})
            logger.warning(
                "group %r: its offsets of %s are removed: they were committed for a topic with another id",
                group_id,
                counted(len(topics), "topic") if len(topics) > MOST_NAMED else ", ".join(topics),
            )
            self._forget(group_id, others)

    def _forget_deleted(self, deleted: Collection[str]) -> Iterator[None]:
        """The steps in which all groups forget topics that are being deleted. No topic of such a name may be created
        before the last step: offsets committed for it would be forgotten, too.
        """
        self._forgetting[write := object()] = deleted

        def steps() -> Iterator[None]:
            pace = Pace(FORGOTTEN_PER_STEP)
            groups = list(self.offsets.groups())
            for group_id in groups:
                if pace.is_up(1 + self._forget_topics(group_id, deleted) // KEYS_PER_GROUP):
                    yield
                if self.is_dead:
                    return  # the next load gets them from `deleted_topics`
            del self._forgetting[write]
            if groups:
                yield  # another shard's groups are another step

        return steps()

    def _forget_topics(self, group_id: str, deleted: Collection[str]) -> int:
        """Forget a group's offsets of topics. By topic, not by `_forget`: deleted topics may have thousands of
        partitions, which many groups read. Return the number of offsets.
        """
        held = self.offsets.of_topics(group_id, deleted)
        keys: list[bytes] = []
        if held:
            self._forgetting[write := object()] = deleted
            self.offsets.forget_topics(group_id, held)
            keys = [key for topic, indexes in held.items() for key in encode_offset_keys(group_id, topic, indexes)]
            self._services.counters.offset_deletions += len(keys)
            self.log.write_encoded(group_id, [(key, None) for key in keys], ())
            self._end_forgetting(group_id, write)
        return len(keys)

    def _forget(self, group_id: str, tombstones: list[CoordinatorRecord]) -> None:
        self._replay_offsets(tombstones)
        self._services.counters.offset_deletions += len(tombstones)
        self.write(group_id, tombstones)

    def _end_forgetting(self, group_id: str, write: object) -> None:
        def settled(error: KafkaError | None) -> None:
            if error is None:
                del self._forgetting[write]
            elif not self.is_dead:  # the disk takes longer than a client's timeout
                self._end_forgetting(group_id, write)

        if not self.is_dead:
            self.log.when_durable(group_id, settled)

    @property
    def deleted_topics(self) -> set[str]:
        """Deleted topics whose offsets the log would restore if it were loaded now."""
        return set().union(*self._forgetting.values())

    def _expire(self, group: Group, deletion_ms: int) -> None:
        """Remove what has expired of one group (Kafka's `cleanupGroupMetadata`)."""
        idle_since_ms = group.offsets_idle_since_ms()
        if idle_since_ms == NEVER_IDLE_MS:
            return
        group_id = group.group_id
        records, is_all = self.offsets.expired(
            group_id,
            idle_since_ms=idle_since_ms,
            is_subscribed=group.is_subscribed_to,
            now_ms=deletion_ms,
            retention_ms=self._services.settings.offsets_retention_ms,
        )
        try:
            self.log.check_records(records, most_bytes(records), in_one_batch=False)
        except KafkaError as error:
            logger.error("group %r: its offsets cannot expire: %s", group_id, error.message)
            return
        self._services.counters.offset_expirations += len(records)
        if is_all and group.is_empty and group.next_deadline_ms is None:
            logger.info("group %r is removed: it is empty and its offsets have expired", group_id)
            self._remove(group, records)
        elif records:
            self._replay_offsets(records)
            self.write(group_id, records)

    # --- effects -----------------------------------------------------------------------------------------------------

    def _finish(self, group: Group, effects: Effects, now: Now) -> None:
        """Write the records of a step, send its replies when they may be sent, and plan the group's next deadline."""
        group = self._table.after_step(group, effects, now)
        if effects.records:
            self._count_rebalances(effects.records)
        self.finish(group.group_id, effects)
        if not self.is_dead and self.groups.get(group.group_id) is group:
            self.timer.plan(group.group_id, group.next_deadline_ms)

    def _count_rebalances(self, records: Sequence[CoordinatorRecord]) -> None:
        """Count rebalances by their records: a generation that has its assignment, an epoch of the group."""
        counters = self._services.counters
        for key, value in records:
            if isinstance(key, GroupMetadataKey):
                counters.classic_rebalances += isinstance(value, GroupMetadataValue) and value.protocol is not None
            elif isinstance(key, ConsumerGroupMetadataKey):
                counters.consumer_rebalances += value is not None
            elif isinstance(key, StreamsGroupMetadataKey):
                counters.streams_rebalances += value is not None

    def _begin_step(self) -> Now:
        """The time, for a step that may write what members sent. The limit is what the log accepts now."""
        self._services.settings.record_max_bytes = self.log.record_max_bytes
        return self.now()

    def _check_name(self, group_id: str, more: str = "") -> None:
        """Refuse a group if the log would not accept even its smallest record, with `more` text in it.

        Raises KafkaError UNKNOWN_SERVER_ERROR, as Kafka answers for records that are too large.
        """
        room_bytes = self.log.record_max_bytes - SMALLEST_RECORD_BYTES
        if 3 * (len(group_id) + len(more)) <= room_bytes:
            return
        size_bytes = len(group_id.encode()) + len(more.encode())
        if size_bytes > room_bytes:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the group's id and protocol type have {size_bytes} bytes, its log takes records of {room_bytes}",
            )


def _check_transactional_commit(group: Group, request: TxnOffsetCommitRequest, version: int) -> PartitionCheck | None:
    """As `Group.check_commit`, with the codes that clients of this version understand."""
    if version >= FIRST_TRANSACTIONAL_COMMIT_WITH_EPOCH_CODES:
        return group.check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version=version,
            is_transactional=True,
        )
    try:
        check_partition = group.check_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            api_version=version,
            is_transactional=True,
        )
    except KafkaError as refusal:
        raise _without_epochs(refusal) from refusal
    if check_partition is None:
        return None

    def check(topic: str, topic_id: UUID, partition: int) -> None:
        try:
            check_partition(topic, topic_id, partition)
        except KafkaError as refusal:
            raise _without_epochs(refusal) from refusal

    return check


def _without_epochs(refusal: KafkaError) -> KafkaError:
    """The refusal with a code of versions 0-5."""
    if refusal.code is ErrorCode.STALE_MEMBER_EPOCH:
        return KafkaError(ErrorCode.ILLEGAL_GENERATION, refusal.message)
    return refusal
