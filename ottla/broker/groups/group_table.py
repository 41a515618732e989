"""The groups of one shard by their ids, and the choice of the protocol that a group uses.

The protocol is chosen on three occasions, which are all here: a record is replayed at a load, a request may create a
group or change its protocol, and a step leaves only classic members. When a request creates a group, the caller `put`s
it into the table, once its step has something to store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.groups import conversion
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.consumer import ConsumerGroup
from ottla.broker.groups.group import Group, GroupType
from ottla.broker.groups.share_group import ShareGroup
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.group import (
    SHARE_GROUP_KEYS,
    STREAMS_GROUP_KEYS,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    ShareGroupMetadataKey,
    StreamsGroupMetadataKey,
)

if TYPE_CHECKING:
    from ottla.broker.groups.settings import GroupServices
    from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from ottla.protocol.api.join_group import JoinGroupRequest
    from ottla.protocol.message import Struct


class GroupTable:
    """The groups. Any part may read `by_id`; only the shard removes groups from it."""

    def __init__(self, services: GroupServices) -> None:
        self.by_id: dict[str, Group] = {}
        self._services = services

    def find(self, group_id: str) -> Group:
        """The group. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.by_id.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def put(self, group: Group) -> Group | None:
        """Make this the group of its id. Return the group that it replaces, if any."""
        replaced = self.by_id.get(group.group_id)
        self.by_id[group.group_id] = group
        return replaced

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of a group at a load."""
        if isinstance(key, GroupMetadataKey):
            self._replay(key.group, GroupType.CLASSIC, key, value)
        else:
            group_id: str = getattr(key, "group_id")  # noqa: B009  (Struct declares none; these keys have it)
            self._replay(group_id, _type_of(key), key, value)

    def replay_owner(self, group_id: str) -> None:
        """Create the group of a committed offset, if it is not known yet: as a classic one."""
        if group_id not in self.by_id:
            self.by_id[group_id] = self.new_classic(group_id)

    def _replay(self, group_id: str, kind: GroupType, key: Struct, value: Struct | None) -> None:
        group = self.by_id.get(group_id)
        if value is None:
            if group is None or group.type is not kind:
                return
            if isinstance(key, _KEYS_OF_GROUPS):
                del self.by_id[group_id]
                return
        elif group is None or group.type is not kind:
            group = self._new(group_id, kind)
            self.by_id[group_id] = group
        group.replay(key, value)

    def for_join(self, request: JoinGroupRequest) -> tuple[ClassicGroup | ConsumerGroup, Effects]:
        """The group that handles a JoinGroup, and the effects to be written before its step.

        An empty group of the consumer protocol, or of streams, becomes a new one of the classic protocol. A member that
        names its id must be known, so its group cannot be new. Raises KafkaError UNKNOWN_MEMBER_ID,
        INCONSISTENT_GROUP_PROTOCOL.
        """
        group = self.by_id.get(request.group_id)
        if isinstance(group, ClassicGroup) or (isinstance(group, ConsumerGroup) and not group.is_empty):
            return group, Effects()
        if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and not group.is_empty):
            kind = group.type.value
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Group {group.group_id} is a {kind} group.")
        if request.member_id and group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self.new_classic(request.group_id), Effects(records=[] if group is None else group.tombstones())

    def for_consumer_heartbeat(self, request: ConsumerGroupHeartbeatRequest, now: Now) -> tuple[ConsumerGroup, Effects]:
        """The group that handles a ConsumerGroupHeartbeat, and the effects to be written before its step.

        Raises KafkaError GROUP_ID_NOT_FOUND where there is none and the member does not join, or where the group
        uses the classic protocol and may not be upgraded.
        """
        group = self.by_id.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group, Effects()
        if request.member_epoch != 0:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} not found.")
        if group is None:
            return self._new_consumer(request.group_id), Effects()
        if not isinstance(group, ClassicGroup):
            raise _is_not(group, "consumer")
        services = self._services
        return conversion.upgrade(group, services.settings, services.topics, now, new_id=services.new_id)

    def for_share_group(self, group_id: str, *, may_be_new: bool) -> ShareGroup:
        """The share group of a request that may create it: a member that joins, an administrator who sets its offsets.

        Raises KafkaError GROUP_ID_NOT_FOUND where there is none and none may be created, or one of another type.
        """
        group = self.by_id.get(group_id)
        if group is None and may_be_new:
            return ShareGroup(group_id, self._services.settings, self._services.topics)
        return self.share_group(group_id)

    def share_group(self, group_id: str) -> ShareGroup:
        """A share group that is there. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if not isinstance(group, ShareGroup):
            raise _is_not(group, "share")
        return group

    def for_streams_heartbeat(self, group_id: str, *, joins: bool) -> tuple[StreamsGroup, Effects]:
        """The group that handles a StreamsGroupHeartbeat, and the effects to be written before its step.

        A classic group without members becomes a new streams group. Raises KafkaError GROUP_ID_NOT_FOUND where there
        is none and the member does not join, or one of another type.
        """
        group = self.by_id.get(group_id)
        if joins and (group is None or (isinstance(group, ClassicGroup) and group.is_empty)):
            new = StreamsGroup(group_id, self._services.settings, self._services.topics)
            return new, Effects(records=[] if group is None else group.tombstones())
        return self.streams_group(group_id), Effects()

    def streams_group(self, group_id: str) -> StreamsGroup:
        """A streams group that is there. Raises KafkaError GROUP_ID_NOT_FOUND."""
        group = self.find(group_id)
        if not isinstance(group, StreamsGroup):
            raise _is_not(group, "streams")
        return group

    def for_member(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """The group of a request that only members send; a group that does not exist answers as an empty one."""
        group = self.by_id.get(group_id)
        if isinstance(group, (ClassicGroup, ConsumerGroup)):
            return group
        return self.new_classic(group_id)

    def after_step(self, group: Group, effects: Effects, now: Now) -> Group:
        """The group after a step: a classic one that replaces it, if the step asked for that."""
        if isinstance(group, ConsumerGroup) and group.downgrade:
            group, more = conversion.downgrade(group, now)
            effects.join(more)
            self.by_id[group.group_id] = group
        return group

    def new_classic(self, group_id: str) -> ClassicGroup:
        """A new group without members. It is not in the table yet."""
        return ClassicGroup(group_id, self._services.settings, new_id=self._services.new_id)

    def _new(self, group_id: str, kind: GroupType) -> Group:
        if kind is GroupType.CLASSIC:
            return self.new_classic(group_id)
        if kind is GroupType.SHARE:
            return ShareGroup(group_id, self._services.settings, self._services.topics)
        if kind is GroupType.STREAMS:
            return StreamsGroup(group_id, self._services.settings, self._services.topics)
        return self._new_consumer(group_id)

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        services = self._services
        return ConsumerGroup(group_id, services.settings, services.topics, new_id=services.new_id)


_KEYS_OF_GROUPS = (GroupMetadataKey, ConsumerGroupMetadataKey, ShareGroupMetadataKey, StreamsGroupMetadataKey)
"""The keys whose tombstones remove a group."""


def _type_of(key: Struct) -> GroupType:
    """The type of the group of a record, other than a classic one's."""
    if isinstance(key, SHARE_GROUP_KEYS):
        return GroupType.SHARE
    return GroupType.STREAMS if isinstance(key, STREAMS_GROUP_KEYS) else GroupType.CONSUMER


def _is_not(group: Group, kind: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is not a {kind} group.")
