"""A share group as its records have it: members, epochs, targets, and the partitions of which it has a state.

Changed by `replay` alone. Source: Kafka's `ShareGroup`, `ShareGroupMember` and `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, from_structs, in_order
from ottla.protocol.stored.group import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.effects import CoordinatorRecord
    from ottla.protocol.message import Struct

MEMBER_ID_CHARACTERS = 36
"""The longest member id, as in Kafka 4.4: that of a UUID in its usual text format."""
STABLE_MEMBER = 0
"""Kafka's `MemberState.STABLE`: a member of a share group takes its target at once."""


class ShareMember(NamedTuple):
    """One member. Never changed once made."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS

    @property
    def instance_id(self) -> None:
        """None: no member of a share group is static."""


class SharedTopic(NamedTuple):
    """A topic of which the group has a state, and its partitions."""

    name: str
    partitions: frozenset[int]


class ShareGroupState:
    """See the module's text."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.target: dict[str, Partitions] = {}
        self.topics: dict[UUID, SharedTopic] = {}
        """The topics of which the group has a state, by id."""

    @property
    def name(self) -> str:
        """The state as ListGroups shows it."""
        return "Stable" if self.members else "Empty"

    def subscribed_names(self) -> frozenset[str]:
        """The topics that members subscribe to."""
        return frozenset().union(*(member.subscribed_topic_names for member in self.members.values()))

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of types 10 to 15, but for the tombstone of the group."""
        if isinstance(key, ShareGroupMetadataKey):
            if isinstance(value, ShareGroupMetadataValue):
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
        elif isinstance(key, ShareGroupMemberMetadataKey):
            assert value is None or isinstance(value, ShareGroupMemberMetadataValue)
            self._replay_member(key.member_id, value)
        elif isinstance(key, ShareGroupTargetAssignmentMetadataKey):
            assert value is None or isinstance(value, ShareGroupTargetAssignmentMetadataValue)
            self.assignment_epoch = 0 if value is None else value.assignment_epoch
        elif isinstance(key, ShareGroupTargetAssignmentMemberKey):
            if isinstance(value, ShareGroupTargetAssignmentMemberValue):
                self.target[key.member_id] = from_structs(value.topic_partitions)
            else:
                self.target.pop(key.member_id, None)
        elif isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            assert value is None or isinstance(value, ShareGroupCurrentMemberAssignmentValue)
            self._replay_current(key.member_id, value)
        elif isinstance(key, ShareGroupStatePartitionMetadataKey):
            assert value is None or isinstance(value, ShareGroupStatePartitionMetadataValue)
            listed = [] if value is None else [*value.initializing_topics, *value.initialized_topics]
            self.topics = {one.topic_id: SharedTopic(one.topic_name, frozenset(one.partitions)) for one in listed}

    def _replay_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        known = self.members.get(member_id) or ShareMember(member_id)
        self.members[member_id] = known._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
        )

    def _replay_current(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                self.members[member_id] = known._replace(
                    member_epoch=0, previous_member_epoch=0, assigned=NO_PARTITIONS
                )
            return
        self.members[member_id] = (known or ShareMember(member_id))._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            assigned=from_structs(value.assigned_partitions),
        )


# --- records ----------------------------------------------------------------------------------------------------------


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """What a member is and subscribes to."""
    key = ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return key, ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The group's epoch, and the hash of its topics."""
    return ShareGroupMetadataKey(group_id=group_id), ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)


def assignment_epoch_record(group_id: str, epoch: int) -> CoordinatorRecord:
    """The epoch that the target is of."""
    key = ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    return key, ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch)


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """The partitions that a member is to have."""
    key = ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, ShareGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ShareGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(partitions)
        ]
    )


def current_assignment_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """The partitions that a member has."""
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return key, ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=STABLE_MEMBER,
        assigned_partitions=[
            ShareGroupCurrentMemberAssignmentValue.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(member.assigned)
        ],
    )


def topics_record(group_id: str, topics: Mapping[UUID, SharedTopic]) -> CoordinatorRecord:
    """The partitions of which the group has a state."""
    return ShareGroupStatePartitionMetadataKey(group_id=group_id), ShareGroupStatePartitionMetadataValue(
        initializing_topics=[],
        initialized_topics=[
            ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(
                topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions)
            )
            for topic_id in sorted(topics)
        ],
        deleting_topics=[],
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """A member is gone; in the order in which Kafka's replay insists."""
    return [
        (ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(state: ShareGroupState) -> list[CoordinatorRecord]:
    """The whole group is gone; in the order in which Kafka's replay insists."""
    group_id = state.group_id
    members: Iterable[str] = sorted(state.target.keys() | state.members.keys())
    return [
        *(record for member_id in members for record in member_tombstones(group_id, member_id)),
        (ShareGroupStatePartitionMetadataKey(group_id=group_id), None),
        (ShareGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        (ShareGroupMetadataKey(group_id=group_id), None),
    ]
