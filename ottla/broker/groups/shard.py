"""The groups of one partition of `__consumer_offsets`: how requests, timers and deletions of topics change them.

    request, timer, disconnection -> step of a state machine -> effects -> one batch -> replies

From the effects on, the runtime does the work (`coordination/shard.py`). `group_table.py` decides which protocol a
group uses, also after a step. `offset_shard.py` handles committed offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.writes import release
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.offset_shard import OffsetShard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.stored.group import OffsetCommitKey, OffsetCommitValue
from ottla.shown import counted

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.effects import Now, Reply, Waiter
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.groups.group import Caller, Group
    from ottla.broker.groups.settings import GroupServices
    from ottla.broker.groups.share_group import ShareGroup
    from ottla.broker.groups.share_state import SharedTopic
    from ottla.broker.groups.streams.group import StreamsGroup
    from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.api.heartbeat import HeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.api.leave_group import LeaveGroupRequest
    from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from ottla.protocol.api.sync_group import SyncGroupRequest
    from ottla.protocol.message import Struct

GROUPS_PER_STEP = 100
"""Groups that one step of a start or of the expiry handles: a millisecond of work."""


class GroupShard(OffsetShard):
    """One partition's groups, from the end of their load until the partition is deleted or its disk fails."""

    def __init__(self, context: ShardContext, services: GroupServices) -> None:
        super().__init__(context, services)
        self._clock_trust = context.services.clock_trust
        self._beginning: Iterator[Group] | None = None
        self._expiry: Iterator[str] | None = None

    # --- load ------------------------------------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record of the log."""
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._replay_offset(key, value)
        else:
            self._table.replay(key, value)

    def begin_some(self) -> bool:
        """After the replay, begin the sessions of some groups. Return whether groups are left over."""
        if self._beginning is None:
            self._beginning = iter(list(self.groups.values()))
        now = self._begin_step()
        for _ in range(GROUPS_PER_STEP):
            group = next(self._beginning, None)
            if group is None:
                self._beginning = None
                return False
            self._forget_what_is_gone(group.group_id)
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
        """Heartbeat. Answered immediately, and not after the commits of its group as in Kafka: it stores nothing, and
        clients whose heartbeats wait for a slow disk would give up their membership, and what they have not committed.
        """
        now = self.now()
        group = self._table.for_member(request.group_id)
        effects = group.heartbeat(request, version, caller, waiter, now)
        replies, effects.replies = effects.replies, []
        self._finish(group, effects, now)
        release(replies)(None)

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

    def share_heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller, waiter: Waiter) -> None:
        """ShareGroupHeartbeat. Raises KafkaError."""
        self._check_name(request.group_id)
        now = self._begin_step()
        group = self._table.for_share_group(request.group_id, may_be_new=request.member_epoch == 0)
        self._run(group, Effects(), group.heartbeat(request, caller, waiter, now), now)

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, version: int, caller: Caller, waiter: Waiter
    ) -> None:
        """StreamsGroupHeartbeat. Raises KafkaError."""
        self._check_name(request.group_id)
        now = self._begin_step()
        group, effects = self._table.for_streams_heartbeat(request.group_id, joins=request.member_epoch == 0)
        self._run(group, effects, group.heartbeat(request, version, caller, waiter, now), now)

    def streams_group(self, group_id: str) -> StreamsGroup:
        """A streams group that is there. Raises KafkaError GROUP_ID_NOT_FOUND."""
        return self._table.streams_group(group_id)

    def share_group(self, group_id: str) -> ShareGroup:
        """A share group that is there. Raises KafkaError GROUP_ID_NOT_FOUND."""
        return self._table.share_group(group_id)

    def set_share_topics(self, group_id: str, added: Mapping[UUID, SharedTopic], removed: Iterable[UUID]) -> None:
        """Note that an empty share group has a state of some topics, or has none any more. A group that is not there
        is created for those that it has.

        Raises KafkaError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._table.for_share_group(group_id, may_be_new=bool(added))
        self._run(group, Effects(), group.with_topics(added, removed), self._begin_step())

    def check_share_topics(self, group_id: str) -> None:
        """Whether topics may be added to a share group, there or not. Raises KafkaError GROUP_ID_NOT_FOUND,
        NON_EMPTY_GROUP.
        """
        self._check_name(group_id)
        self._table.for_share_group(group_id, may_be_new=True).check_delete()

    def _run(self, group: Group, before: Effects, step: Effects, now: Now) -> None:
        """Put a group that a request created into the table, unless the group refused and has nothing to store.

        Members that wait in a classic group that is upgraded are asked to join again. Kafka asks them in a refused
        upgrade too, and then no deadline removes a member that had waited longer than its session and does not join.
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

    # --- not caused by requests --------------------------------------------------------------------------------------

    def on_disconnect(self, group_id: str, connection: object) -> None:
        """Handle the end of a connection on which members of the group have sent requests."""
        group = self.groups.get(group_id)
        if group is not None:
            now = self.now()
            self._finish(group, group.on_disconnect(connection, now), now)

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Topics were created, grew or were deleted: forget offsets of the deleted. Groups that the broker assigns do
        nothing immediately, as in Kafka: the next heartbeat of any member detects the new epoch of the topics.
        """
        return self._forget_deleted(deleted) if deleted else iter(())

    def expire_some(self) -> bool:
        """Remove expired offsets in some groups, and groups without any. Return whether groups are left over."""
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

    def on_due(self, key: str) -> None:
        """Handle a group's `next_deadline_ms` that has passed."""
        group = self.groups.get(key)
        if group is not None:
            now = self.now()
            self._finish(group, group.on_deadline(now), now)

    # --- the shard itself --------------------------------------------------------------------------------------------

    def on_unload(self) -> list[Reply]:
        """Unload all groups. Return the replies to members with parked requests: NOT_COORDINATOR."""
        replies = [reply for group in list(self.groups.values()) for reply in group.on_unload().replies]
        self.groups.clear()
        return replies

    def summary(self) -> str:
        """For the log: the numbers of groups and of committed offsets."""
        return f"{counted(len(self.groups), 'group')} and {counted(self.offsets.count, 'committed offset')}"
