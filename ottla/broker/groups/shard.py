"""The groups of one partition of `__consumer_offsets`: what each request, timer and change of topics does to them.

    request, timer, disconnection, change of topics -> step of a machine -> effects -> one batch -> replies

The way from the effects on is the runtime's (`coordination/shard.py`). Which machine serves a group, and what a group
turns into after a step: `group_table.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.shard import CoordinatorShard
from ottla.broker.coordination.writes import release
from ottla.broker.groups.classic import NEVER_IDLE_MS, ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.groups.group import Group, GroupType
from ottla.broker.groups.group_table import GroupTable
from ottla.broker.groups.offsets import Offsets, most_bytes
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord, Now, Reply, Waiter
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.groups.group import Caller
    from ottla.broker.groups.settings import GroupServices
    from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.api.leave_group import LeaveGroupRequest
    from ottla.protocol.api.offset_commit import OffsetCommitRequest
    from ottla.protocol.api.offset_delete import OffsetDeleteRequest
    from ottla.protocol.api.sync_group import SyncGroupRequest
    from ottla.protocol.message import Struct

logger = logging.getLogger(__name__)

GROUPS_PER_STEP = 100
"""Groups that one step of a start or of the expiry looks at: a millisecond of work."""
FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCHS = 9
SMALLEST_RECORD_BYTES = 64
"""A group's record without its names: the key's version, numbers, empty lists."""


class GroupShard(CoordinatorShard):
    """One partition's groups, from the end of their load until the partition goes or its disk fails."""

    def __init__(self, context: ShardContext, services: GroupServices) -> None:
        super().__init__(context)
        self._table = GroupTable(services)
        self.groups = self._table.by_id
        self.offsets = Offsets()
        self._services = services
        self._clock_trust = context.services.clock_trust
        self._beginning: Iterator[Group] | None = None
        self._expiry: Iterator[str] | None = None
        self._forgetting: dict[object, Collection[str]] = {}
        """Deleted topics by the writes of their offsets' tombstones that are under way."""

    # --- load ------------------------------------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record of the log."""
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)
            if value is not None:
                self._table.replay_owner(key.group)
        else:
            self._table.replay(key, value)

    def begin_some(self) -> bool:
        """Everything is replayed: sessions begin, in some groups at a time; whether groups are left over."""
        if self._beginning is None:
            self._beginning = iter(list(self.groups.values()))
        now = self._begin_step()
        for _ in range(GROUPS_PER_STEP):
            group = next(self._beginning, None)
            if group is None:
                self._beginning = None
                return False
            self._forget_topics(group.group_id, self._missing_topics(group.group_id))
            self._finish(group, group.on_load(now), now)
        return True

    # --- requests of members -----------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, version: int, caller: Caller, waiter: Waiter) -> None:
        """JoinGroup. Raises KafkaError."""
        self._check_name(request.group_id, request.protocol_type)
        now = self._begin_step()
        group, effects = self._table.for_join(request)
        step = group.join(request, version, caller, waiter, now)
        self._run(group, effects, step, now)

    def sync(self, request: SyncGroupRequest, version: int, caller: Caller, waiter: Waiter) -> None:
        """SyncGroup."""
        now = self._begin_step()
        group = self._table.for_member(request.group_id)
        self._finish(group, group.sync(request, version, caller, waiter, now), now)

    def heartbeat(self, request: HeartbeatRequest, version: int, caller: Caller, waiter: Waiter) -> None:
        """Heartbeat."""
        now = self.now()
        group = self._table.for_member(request.group_id)
        self._finish(group, group.heartbeat(request, version, caller, waiter, now), now)

    def leave(self, request: LeaveGroupRequest, version: int, caller: Caller, waiter: Waiter) -> None:
        """LeaveGroup."""
        now = self.now()
        group = self._table.for_member(request.group_id)
        self._finish(group, group.leave(request, version, caller, waiter, now), now)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, caller: Caller, waiter: Waiter
    ) -> None:
        """ConsumerGroupHeartbeat. Raises KafkaError."""
        self._check_name(request.group_id)
        now = self._begin_step()
        group, effects = self._table.for_consumer_heartbeat(request, now)
        step = group.consumer_heartbeat(request, version, caller, waiter, now)
        self._run(group, effects, step, now)

    def _run(self, group: Group, before: Effects, step: Effects, now: Now) -> None:
        """Put a group that a request made in its place, unless the machine refused and wants nothing kept.

        Members that wait in a classic group that is upgraded are asked to join again. Kafka asks them in a refused
        upgrade too, and then no deadline ends a member that had waited for longer than its session and does not come.
        """
        if self.groups.get(group.group_id) is not group:
            if not step.records:
                self.when_durable(group.group_id, release(step.replies))
                return
            replaced = self._table.put(group)
            if isinstance(replaced, ClassicGroup):
                before.join(replaced.answer_waiters(ErrorCode.REBALANCE_IN_PROGRESS))
        before.join(step)
        self._finish(group, before, now)

    # --- committed offsets -------------------------------------------------------------------------------------------

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
        group.check_commit(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, api_version=version
        )
        group.note_commit(request.member_id, now)
        services = self._services
        records, response = self.offsets.plan_commit(
            request,
            now_ms=now.wall_ms,
            metadata_max_bytes=services.settings.offset_metadata_max_bytes,
            exists=services.topics.exists,
        )
        self.log.check_records(records, most_bytes(records), in_one_batch=True)
        if records:
            self._table.put(group)
            self._replay_offsets(records)
            services.counters.offset_commits += len(records)
        self._finish(group, Effects(records, [(waiter, response)]), now)

    def delete_offsets(self, request: OffsetDeleteRequest, waiter: Waiter) -> None:
        """OffsetDelete for topics that exist. Raises KafkaError."""
        group = self._table.find(request.group_id)
        if group.type is GroupType.CLASSIC and not group.is_empty and group.protocol_type != "consumer":
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        records, response = self.offsets.plan_delete(request, group.is_subscribed_to)
        self.log.check_records(records, most_bytes(records), in_one_batch=True)
        self._replay_offsets(records)
        self._services.counters.offset_deletions += len(records)
        self._finish(group, Effects(records, [(waiter, response)]), self.now())

    def delete_group(self, group_id: str) -> None:
        """Remove a group and its offsets. Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        group = self._table.find(group_id)
        group.check_delete()
        tombstones = self.offsets.tombstones(group_id)
        self._check_name(group_id)
        self.log.check_records(tombstones, most_bytes(tombstones), in_one_batch=False)
        self._services.counters.offset_deletions += len(tombstones)
        self._remove(group, tombstones)

    def _remove(self, group: Group, offset_tombstones: list[CoordinatorRecord]) -> None:
        self._replay_offsets(offset_tombstones)
        del self.groups[group.group_id]
        self.timer.plan(group.group_id, None)
        self.write(group.group_id, [*offset_tombstones, *group.tombstones()])

    def _replay_offsets(self, records: Sequence[CoordinatorRecord]) -> None:
        for key, value in records:
            assert isinstance(key, OffsetCommitKey)
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.replay(key, value)

    # --- what happens by itself --------------------------------------------------------------------------------------

    def on_disconnect(self, group_id: str, connection: object) -> None:
        """A connection by which members of the group came has ended."""
        group = self.groups.get(group_id)
        if group is not None:
            now = self.now()
            self._finish(group, group.on_disconnect(connection, now), now)

    def on_topics_changed(self, deleted: Collection[str]) -> None:
        """Topics came, grew or went: groups that are assigned by the broker look again, offsets of the deleted go."""
        now = self.now()
        if deleted:
            for group_id in list(self.offsets.groups()):
                self._forget_topics(group_id, deleted)
        for group in list(self.groups.values()):
            if isinstance(group, ConsumerGroup):
                self._finish(group, group.on_metadata_change(now), now)

    def _missing_topics(self, group_id: str) -> list[str]:
        """The topics that a group has offsets of and that are not there any more.

        A topic is gone as soon as the metadata say so; its offsets' tombstones are written after that, and a crash may
        come between. A new topic of the same name must not be read from where the old one was left.
        """
        topics = self._services.topics
        return [topic for topic in self.offsets.of(group_id) if topics.id_of(topic) is None]

    def _forget_topics(self, group_id: str, deleted: Collection[str]) -> None:
        records = self.offsets.tombstones_of_topics(group_id, deleted)
        if records:
            self._forgetting[write := object()] = deleted
            self._replay_offsets(records)
            self._services.counters.offset_deletions += len(records)
            self.write(group_id, records)
            self._end_forgetting(group_id, write)

    def _end_forgetting(self, group_id: str, write: object) -> None:
        def settled(error: KafkaError | None) -> None:
            if error is None:
                del self._forgetting[write]
            elif not self.is_dead:  # the disk takes longer than a client waits
                self._end_forgetting(group_id, write)

        if not self.is_dead:
            self.log.when_durable(group_id, settled)

    @property
    def deleted_topics(self) -> set[str]:
        """Topics that are deleted, and whose offsets the log would bring back if it were loaded now."""
        return set().union(*self._forgetting.values())

    def expire_some(self) -> bool:
        """Remove what is too old in some groups, and groups that nothing is left of; whether groups are left over."""
        if self._expiry is None:
            self._expiry = iter(list(self.groups))
        deletion_ms = self._clock_trust.deletion_ms()
        for _ in range(GROUPS_PER_STEP):
            group_id = next(self._expiry, None)
            if group_id is None:
                self._expiry = None
                return False
            group = self.groups.get(group_id)
            if group is not None:
                self._expire(group, deletion_ms)
        return True

    def _expire(self, group: Group, deletion_ms: int) -> None:
        """Kafka's `cleanupGroupMetadata` of one group."""
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

    def on_due(self, key: str) -> None:
        """A group's `next_deadline_ms` has come."""
        group = self.groups.get(key)
        if group is not None:
            now = self.now()
            self._finish(group, group.on_deadline(now), now)

    # --- effects -----------------------------------------------------------------------------------------------------

    def _finish(self, group: Group, effects: Effects, now: Now) -> None:
        """Write the records of a step, let its replies go when they may, and note when the group is due again."""
        group = self._table.after_step(group, effects, now)
        if effects.records:
            self._count_rebalances(effects.records)
        self.finish(group.group_id, effects)
        if not self.is_dead and self.groups.get(group.group_id) is group:
            self.timer.plan(group.group_id, group.next_deadline_ms)

    def _count_rebalances(self, records: Sequence[CoordinatorRecord]) -> None:
        """Rebalances leave a record each: a generation that has its assignment, an epoch of the group."""
        counters = self._services.counters
        for key, value in records:
            if isinstance(key, GroupMetadataKey):
                counters.classic_rebalances += isinstance(value, GroupMetadataValue) and value.protocol is not None
            elif isinstance(key, ConsumerGroupMetadataKey):
                counters.consumer_rebalances += value is not None

    def on_unload(self) -> list[Reply]:
        """The replies of members that wait for others: NOT_COORDINATOR."""
        replies = [reply for group in list(self.groups.values()) for reply in group.on_unload().replies]
        self.groups.clear()
        return replies

    def summary(self) -> str:
        """For the log: how many groups and committed offsets there are."""
        return f"{counted(len(self.groups), 'group')} and {counted(self.offsets.count, 'committed offset')}"

    def _begin_step(self) -> Now:
        """The time, for a step that may write what members brought: they are held to what the log takes now."""
        self._services.settings.record_max_bytes = self.log.record_max_bytes
        return self.now()

    def _check_name(self, group_id: str, more: str = "") -> None:
        """Refuse a group whose smallest record, with `more` text in it, the log would not take.

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
