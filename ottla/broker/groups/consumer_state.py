"""The durable state of a consumer group: epochs, members, target, owners. Only replaying records changes it.

Records may come in any order that a cleaned log can have: a member's assignment may come before its metadata, and a
tombstone without the record that it deletes. Nothing is refused here; a step is checked before it writes. Sources: the
replay methods of Kafka's `GroupMetadataManager`, and `ConsumerGroup`. Unlike there, a partition that two members'
records claim does not stop the load: it belongs to the later record, and the other member is asked to give it up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, from_structs
from ottla.broker.groups.subscriptions import ResolvedExpression, Subscriptions
from ottla.protocol.stored.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from ottla.protocol.message import Struct

NO_EPOCH = -1
"""The assignment epoch of a group whose target was removed."""


class ConsumerState:
    """One group's durable state. It may be read freely; only `replay` writes it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Partitions] = {}
        """What each member is to own; a member that has joined since has no entry."""
        self.static_member_ids: dict[str, str] = {}
        """Member id by instance id."""
        self.subscriptions = Subscriptions()
        self.has_partition_metadata = False
        """Whether a Kafka before 4.1 has left a record of type 4, which the hash replaces."""
        self._owners: dict[UUID, dict[int, str]] = {}

    @property
    def name(self) -> str:
        """The name of the state, by what the group waits for."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def is_taken(self, topic_id: UUID, partition: int, member_id: str) -> bool:
        """Whether a member other than this one owns the partition, or has still to give it up."""
        return self._owners.get(topic_id, NO_OWNERS).get(partition, member_id) != member_id

    def target_of(self, member_id: str) -> Partitions:
        """What a member is to own."""
        return self.target.get(member_id, NO_PARTITIONS)

    def member_of_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member of an instance id."""
        member_id = None if instance_id is None else self.static_member_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition that the member is to own, and does not, is still owned."""
        return any(
            self.is_taken(topic_id, partition, member.member_id)
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions - member.assigned.get(topic_id, frozenset())
        )

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of types 3 to 8 or 16; records of other types are ignored."""
        match key:
            case ConsumerGroupMemberMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._member_metadata(key.member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._current_assignment(key.member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                if value is None:
                    self.target.pop(key.member_id, None)
                else:
                    self.target[key.member_id] = from_structs(value.topic_partitions)
            case ConsumerGroupMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupMetadataValue)
                if value is not None:
                    self.group_epoch = value.epoch
                    self.metadata_hash = value.metadata_hash
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
            case ConsumerGroupRegularExpressionKey():
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                self.subscriptions.resolve(
                    key.regular_expression,
                    None
                    if value is None
                    else ResolvedExpression(frozenset(value.topics), value.version, value.timestamp),
                )
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None

    def _member_metadata(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None:
            self._replace(old, (old or ConsumerMember(member_id)).with_metadata(value))
        elif old is not None:
            self._replace(old, None)

    def _current_assignment(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        old = self.members.get(member_id)
        if value is not None or old is not None:
            self._replace(old, (old or ConsumerMember(member_id)).with_current_assignment(value))

    def _replace(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        self.subscriptions.replace(old, new)
        if old is not None:
            del self.members[old.member_id]
            if old.instance_id is not None and self.static_member_ids.get(old.instance_id) == old.member_id:
                del self.static_member_ids[old.instance_id]
        if new is not None:
            self.members[new.member_id] = new
            if new.instance_id is not None:
                self.static_member_ids[new.instance_id] = new.member_id
        old_owned = () if old is None else (old.assigned, old.pending_revocation)
        new_owned = () if new is None else (new.assigned, new.pending_revocation)
        if old_owned != new_owned:
            if old is not None:
                self._release(old)
            if new is not None:
                self._own(new)

    def _own(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member.member_id))

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in owned.items():
                owners = self._owners.get(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic_id, None)


NO_OWNERS: dict[int, str] = {}
