"""A share group (KIP-932): members heartbeat, the broker lets them read from partitions, several from the same one.

As in a consumer group there are three epochs: the group's grows when members or topics change, the target is made for
one of them, and a member has come to one. But a member need not give anything up before another may have it, so it is
at the target's epoch with its next heartbeat. What is delivered to a member is not here: `ottla.broker.share`.

Durable state is `durable`; sessions and connections are soft. Unlike Kafka, a member is assigned partitions in the
answer to its first heartbeat: Kafka has their state made in `__share_group_state` first, and assigns them with the next
one. Here a state is made when it is first read, and a state that is missing begins as a new one does.

Source: `shareGroupHeartbeat` and `shareGroupLeave` of Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now, Waiter
from ottla.broker.groups.assignors.assignor import AssignorMember
from ottla.broker.groups.assignors.simple import assign_simple
from ottla.broker.groups.classic_stored import NEVER_IDLE_MS
from ottla.broker.groups.group import Caller, GroupType, PartitionCheck
from ottla.broker.groups.member_timers import Limit
from ottla.broker.groups.metadata_hash import hash_of_topic, hash_of_topics
from ottla.broker.groups.modern_group import ModernGroup
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, in_order
from ottla.broker.groups.share_state import (
    MEMBER_ID_CHARACTERS,
    SharedTopic,
    ShareGroupState,
    ShareMember,
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    target_record,
    topics_record,
)
from ottla.protocol.api.share_group_describe import ShareGroupDescribeResponse
from ottla.protocol.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import encode_group_key, encode_group_value

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView

LOG = logging.getLogger("ottla.groups")
JOINING_EPOCH = 0
LEAVING_EPOCH = -1
SHARE_PROTOCOL_TYPE = "share"
ASSIGNOR = "simple"


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Raises KafkaError INVALID_REQUEST, as Kafka's `throwIfShareGroupHeartbeatRequestIsInvalid`."""
    if not request.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    if len(request.member_id) > MEMBER_ID_CHARACTERS:
        raise _invalid(f"MemberId has {len(request.member_id)} characters, at most {MEMBER_ID_CHARACTERS} are allowed.")
    if not request.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if request.member_epoch == JOINING_EPOCH and not request.subscribed_topic_names:
        raise _invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVING_EPOCH:
        raise _invalid("MemberEpoch is invalid.")


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)


class ShareGroup(ModernGroup[ShareMember]):
    """One share group."""

    type = GroupType.SHARE
    durable: ShareGroupState

    def __init__(self, group_id: str, settings: GroupSettings, topics: TopicView) -> None:
        super().__init__(group_id, settings, topics)
        self.durable = ShareGroupState(group_id)
        self._topics_epoch = -1
        """The epoch of the cluster's topics that the group has looked at last."""
        self.is_being_deleted = False
        """Whether a request is deleting the group, and may have removed its offsets already."""

    # --- heartbeats --------------------------------------------------------------------------------------------------

    def heartbeat(self, request: ShareGroupHeartbeatRequest, caller: Caller, waiter: Waiter, now: Now) -> Effects:
        """Join, stay, or leave. A refused heartbeat changes nothing. Raises KafkaError."""
        if request.member_epoch == LEAVING_EPOCH:
            effects = self._remove([self.member_of(request.member_id).member_id])
            self._reply(effects, waiter, request.member_id, LEAVING_EPOCH, 0)
            return effects
        known = self._find(request)
        updated = _updated(known, request, caller)
        self._check_size(updated)
        effects = Effects()
        is_changed = updated != known or request.member_id not in self.durable.members
        if is_changed:
            self._write(effects, member_record(self.group_id, updated))
        self._catch_up(effects, is_changed=updated.subscribed_topic_names != known.subscribed_topic_names)
        after = self._take_target(effects, request.member_id)
        self.timers.start(request.member_id, Limit.SESSION, now.monotonic_ms + self._session_timeout_ms)
        self.timers.came_by(request.member_id, caller.connection)
        is_new = request.member_epoch in (JOINING_EPOCH, known.previous_member_epoch)  # it joins, or missed an answer
        is_full = is_new or request.subscribed_topic_names is not None
        assigned = after.assigned if is_full or after.assigned != known.assigned else None
        heartbeat_ms = self.settings.share_heartbeat_interval_ms_of(self.group_id)
        self._reply(effects, waiter, request.member_id, after.member_epoch, heartbeat_ms, assigned)
        return effects

    def check_delete(self) -> None:
        """Raise NON_EMPTY_GROUP while there are members, and COORDINATOR_LOAD_IN_PROGRESS as the next method."""
        super().check_delete()
        self._check_not_being_deleted()

    def _check_not_being_deleted(self) -> None:
        """Raise COORDINATOR_LOAD_IN_PROGRESS, after which clients try again, while the group is being deleted.

        Its offsets are removed first. A member that joined then would end the deletion, with the offsets gone; offsets
        that are set then would have no group; a second deletion would remove the group before its offsets are.
        """
        if self.is_being_deleted:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Group {self.group_id} is being deleted.")

    def _find(self, request: ShareGroupHeartbeatRequest) -> ShareMember:
        members, member_id, epoch = self.durable.members, request.member_id, request.member_epoch
        most = self.settings.share_max_size
        if epoch == JOINING_EPOCH and len(members) >= most and member_id not in members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, f"The share group has reached its maximum capacity of {most} members."
            )
        known = members.get(member_id)
        if epoch == JOINING_EPOCH:
            self._check_not_being_deleted()
            return known or ShareMember(member_id)
        known = self.member_of(member_id)
        if epoch > known.member_epoch or (epoch < known.member_epoch and epoch != known.previous_member_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The share group member has member epoch {epoch}, the group coordinator knows {known.member_epoch}. "
                "The member must abandon all its partitions and rejoin.",
            )
        return known

    def _catch_up(self, effects: Effects, *, is_changed: bool) -> None:
        """Begin a new epoch where the members or the topics changed, and give it a target."""
        state = self.durable
        if is_changed or not state.group_epoch or self._topics_epoch != self.topics.epoch:
            metadata_hash = self._metadata_hash()
            if is_changed or not state.group_epoch or metadata_hash != state.metadata_hash:
                self._write(effects, epoch_record(self.group_id, state.group_epoch + 1, metadata_hash))
            self._topics_epoch = self.topics.epoch
            self._note_topics(effects)
        if state.group_epoch > state.assignment_epoch:
            self._assign(effects)

    def _note_topics(self, effects: Effects) -> None:
        """Note the partitions that members subscribe to, and forget topics that are gone."""
        topics = {topic_id: one for topic_id, one in self.durable.topics.items() if self.topics.name_of(topic_id)}
        for name in self.durable.subscribed_names():
            topic_id = self.topics.id_of(name)
            if topic_id is not None:
                topics[topic_id] = SharedTopic(name, frozenset(range(self.topics.partition_count(topic_id))))
        self._set_topics(effects, topics)

    def _assign(self, effects: Effects) -> None:
        state, topics = self.durable, self.topics
        members = {
            member_id: AssignorMember(
                None,
                frozenset(filter(None, map(topics.id_of, state.members[member_id].subscribed_topic_names))),
                state.target.get(member_id, NO_PARTITIONS),
            )
            for member_id in sorted(state.members)
        }
        counts = {topic_id: topics.partition_count(topic_id) for one in members.values() for topic_id in one.topics}
        for member_id, partitions in assign_simple(members, counts).items():
            if partitions != state.target.get(member_id):
                self._write(effects, target_record(self.group_id, member_id, partitions))
        self._write(effects, assignment_epoch_record(self.group_id, state.group_epoch))

    def _take_target(self, effects: Effects, member_id: str) -> ShareMember:
        """Let a member come to the target's epoch."""
        state = self.durable
        member = state.members[member_id]
        target = state.target.get(member_id, NO_PARTITIONS)
        if member.member_epoch != state.assignment_epoch or member.assigned != target:
            moved = member._replace(
                member_epoch=state.assignment_epoch, previous_member_epoch=member.member_epoch, assigned=target
            )
            self._write(effects, current_assignment_record(self.group_id, moved))
        return state.members[member_id]

    def _remove(self, member_ids: Collection[str]) -> Effects:
        """Members leave, or their sessions have ended: a new epoch begins, whose target the next heartbeat makes.

        A group without members needs none, so it is at the new epoch immediately.
        """
        effects = Effects()
        for member_id in member_ids:
            for record in member_tombstones(self.group_id, member_id):
                self._write(effects, record)
            self.timers.forget(member_id)
        if member_ids:
            self._write(effects, epoch_record(self.group_id, self.durable.group_epoch + 1, self._metadata_hash()))
            if self.is_empty:
                self._write(effects, assignment_epoch_record(self.group_id, self.durable.group_epoch))
        return effects

    # --- what every group can do -------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """Always `share`."""
        return SHARE_PROTOCOL_TYPE

    @property
    def next_deadline_ms(self) -> float | None:
        """The earliest end of a session."""
        return self.timers.next_ms

    def on_load(self, now: Now) -> Effects:
        """Sessions begin again."""
        for member_id in self.durable.members:
            self.timers.start(member_id, Limit.SESSION, now.monotonic_ms + self._session_timeout_ms)
        return Effects()

    def on_deadline(self, now: Now) -> Effects:
        """Remove members whose sessions have ended."""
        due = [one for one in self.timers.pop_due(now.monotonic_ms) if one in self.durable.members]
        for member_id in due:
            LOG.info("share group %r: member %r is removed: %s", self.group_id, member_id, Limit.SESSION.value)
        return self._remove(due)

    def check_commit(
        self,
        member_id: str,
        group_instance_id: str | None,
        generation_or_epoch: int,
        *,
        api_version: int,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        """Raise GROUP_ID_NOT_FOUND: share groups commit no offsets."""
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_fetch_offsets(self, member_id: str | None, member_epoch: int) -> None:
        """Nothing: there are none to be read, as in a group that does not exist (Kafka's `fetchOffsets`)."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic."""
        return any(topic in member.subscribed_topic_names for member in self.durable.members.values())

    def tombstones(self) -> list[CoordinatorRecord]:
        """All records of the group, removed."""
        return group_tombstones(self.durable)

    def offsets_idle_since_ms(self) -> int | None:
        """Never: a share group stays until it is deleted."""
        return NEVER_IDLE_MS

    # --- administration ----------------------------------------------------------------------------------------------

    def describe(self) -> ShareGroupDescribeResponse.DescribedGroup:
        """The group as ShareGroupDescribe shows it, without authorized operations."""
        state = self.durable
        return ShareGroupDescribeResponse.DescribedGroup(
            group_id=self.group_id,
            group_state=state.name,
            group_epoch=state.group_epoch,
            assignment_epoch=state.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[self._described(member) for member in state.members.values()],
        )

    def with_topics(self, added: Mapping[UUID, SharedTopic], removed: Iterable[UUID] = ()) -> Effects:
        """The records after the group's states of some topics were made or removed; the group has to be empty. A group
        that is new begins with them.

        Raises KafkaError NON_EMPTY_GROUP.
        """
        self.check_delete()
        effects, topics = Effects(), dict(self.durable.topics)
        for topic_id, one in added.items():
            before = topics.get(topic_id)
            topics[topic_id] = one if before is None else one._replace(partitions=one.partitions | before.partitions)
        for topic_id in removed:
            topics.pop(topic_id, None)
        if not self.durable.group_epoch and topics:
            self._write(effects, epoch_record(self.group_id, 1, self._metadata_hash()))
            self._write(effects, assignment_epoch_record(self.group_id, 1))
        self._set_topics(effects, topics)
        return effects

    # --- below -------------------------------------------------------------------------------------------------------

    @property
    def _session_timeout_ms(self) -> int:
        return self.settings.share_session_timeout_ms_of(self.group_id)

    def _write(self, effects: Effects, record: CoordinatorRecord) -> None:
        """Ask for a record, and replay it."""
        effects.records.append(record)
        self.durable.replay(*record)

    def _set_topics(self, effects: Effects, topics: Mapping[UUID, SharedTopic]) -> None:
        if topics != self.durable.topics:
            self._write(effects, topics_record(self.group_id, topics))

    def _reply(
        self,
        effects: Effects,
        waiter: Waiter,
        member_id: str,
        member_epoch: int,
        heartbeat_interval_ms: int,
        assigned: Partitions | None = None,
    ) -> None:
        assignment = None
        if assigned is not None:
            assignment = ShareGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in in_order(assigned)
                ]
            )
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member_epoch,
            heartbeat_interval_ms=heartbeat_interval_ms,
            assignment=assignment,
        )
        effects.reply(waiter, response)

    def _check_size(self, member: ShareMember) -> None:
        """Raise UNKNOWN_SERVER_ERROR, as Kafka does, for a member whose record the log would not take."""
        key, value = member_record(self.group_id, member)
        assert value is not None
        size_bytes = len(encode_group_key(key)) + len(encode_group_value(value))
        if size_bytes > self.settings.record_max_bytes // 2:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the member's record would have {size_bytes} bytes, which is too large"
            )

    def _metadata_hash(self) -> int:
        """The hash of the topics that members subscribe to (KIP-1101)."""
        topics = self.topics
        found = ((name, topics.id_of(name)) for name in self.durable.subscribed_names())
        return hash_of_topics(
            (name, hash_of_topic(topic_id, name, topics.partition_count(topic_id)))
            for name, topic_id in found
            if topic_id is not None
        )

    def _described(self, member: ShareMember) -> ShareGroupDescribeResponse.Member:
        named = [(topic_id, self.topics.name_of(topic_id), indexes) for topic_id, indexes in in_order(member.assigned)]
        return ShareGroupDescribeResponse.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            assignment=ShareGroupDescribeResponse.Assignment(
                topic_partitions=[
                    ShareGroupDescribeResponse.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
                    for topic_id, name, indexes in named
                    if name is not None
                ]
            ),
        )


def _updated(member: ShareMember, request: ShareGroupHeartbeatRequest, caller: Caller) -> ShareMember:
    """The member with what a heartbeat says of it."""
    names = request.subscribed_topic_names
    return member._replace(
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
    )
