"""A member of a consumer group, as its records describe it: its metadata, its subscription, what it owns.

Members are immutable; a record creates a new object. Two records describe a member: its metadata (type 5), written when
it sends different metadata, and its current assignment (type 8), written with each step of its reconciliation. Source:
Kafka's `ConsumerGroupMember` and `ModernGroupMember`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

from ottla.broker.groups.assignment_epochs import NO_EPOCHS, AssignmentEpochs, from_record, joined, moved, of_one_epoch
from ottla.broker.groups.partitions import NO_PARTITIONS, Partitions, from_structs, in_order, united
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.stored.group import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
"""In a request: the member leaves. In a member: its current assignment has been removed."""
STATIC_LEAVING_EPOCH = -2
"""A static member has left for a while; its partitions wait for its instance id until its session ends."""
NOT_GIVEN = -1
"""A rebalance timeout that has not changed."""


class MemberState(IntEnum):
    """The progress of a member towards the target; the numbers are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it can move to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target's epoch, but other members have not given up all that it is to own."""
    UNKNOWN = 127
    """A state of a later version of Kafka."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of a number in a record."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member. `subscribed_topic_regex` is empty or None without one; `classic` is None in the consumer protocol.

    `assignment_epochs` has each partition of `assigned` and of `pending_revocation`.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NOT_GIVEN
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Partitions = field(default_factory=dict)
    pending_revocation: Partitions = field(default_factory=dict)
    assignment_epochs: AssignmentEpochs = field(default_factory=dict)
    classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = None

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it speaks JoinGroup and SyncGroup."""
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it owns what the target of this epoch assigns to it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def updated_by(self, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str) -> ConsumerMember:
        """The member after a heartbeat; null fields did not change. It uses the consumer protocol from now on."""
        names = request.subscribed_topic_names
        regex = request.subscribed_topic_regex
        timeout_ms = request.rebalance_timeout_ms
        return replace(
            self,
            instance_id=self.instance_id if request.instance_id is None else request.instance_id,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
            server_assignor=self.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=self.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=self.subscribed_topic_regex if regex is None else regex,
            client_id=client_id,
            client_host=client_host,
            classic=None,
        )

    def at_epoch(self, member_epoch: int) -> ConsumerMember:
        """The member at another epoch; its present epoch becomes the previous one."""
        return replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch)

    def moved_to(
        self,
        member_epoch: int,
        state: MemberState,
        assigned: Partitions,
        pending_revocation: Partitions,
        target_epoch: int,
    ) -> ConsumerMember:
        """The member after a step of its reconciliation: new partitions get `target_epoch`, the rest keep theirs.

        A partition that it gave up and gets back is new.
        """
        before = self.assignment_epochs
        epochs = joined(
            moved(before, united(self.assigned, self.pending_revocation), pending_revocation, target_epoch),
            moved(before, self.assigned, assigned, target_epoch),
        )
        return replace(
            self.at_epoch(member_epoch),
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
            assignment_epochs=epochs,
        )

    def left_for_a_while(self) -> ConsumerMember:
        """A static member that will return: it keeps its partitions, with the first epoch, and need not revoke any."""
        return replace(
            self,
            member_epoch=STATIC_LEAVING_EPOCH,
            pending_revocation=NO_PARTITIONS,
            assignment_epochs=of_one_epoch(self.assigned, JOINING_EPOCH),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """The member with the fields of a record of type 5."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> ConsumerMember:
        """The member with the fields of a record of type 8; a tombstone removes them and leaves the leaving epoch."""
        if value is None:
            return replace(
                self,
                member_epoch=LEAVING_EPOCH,
                previous_member_epoch=LEAVING_EPOCH,
                assigned=NO_PARTITIONS,
                pending_revocation=NO_PARTITIONS,
                assignment_epochs=NO_EPOCHS,
            )
        member_epoch = value.member_epoch
        return replace(
            self,
            member_epoch=member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=from_structs(value.assigned_partitions),
            pending_revocation=from_structs(value.partitions_pending_revocation),
            assignment_epochs=joined(
                from_record(value.partitions_pending_revocation, member_epoch),
                from_record(value.assigned_partitions, member_epoch),
            ),
        )

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        """Its record of type 5."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def current_assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """Its record of type 8."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=_listed(self.assigned, self.assignment_epochs),
            partitions_pending_revocation=_listed(self.pending_revocation, self.assignment_epochs),
        )


def _listed(
    partitions: Partitions, epochs: AssignmentEpochs
) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[epochs[topic_id][index] for index in indexes],
        )
        for topic_id, indexes in in_order(partitions)
    ]
