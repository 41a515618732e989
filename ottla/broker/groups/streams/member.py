"""A member of a streams group, as its records describe it: its metadata, and the tasks that it has.

Members are immutable; a record creates a new object. Two records describe a member: its metadata (type 19), written
when it sends different metadata, and its current assignment (type 22), written with each step of its reconciliation.
Source: Kafka's `StreamsGroupMember`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.streams.tasks import NOTHING_OWNED, OwnedTasks, from_ids

if TYPE_CHECKING:
    from ottla.broker.groups.group import Caller
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from ottla.protocol.stored.group import (
        StreamsGroupCurrentMemberAssignmentValue,
        StreamsGroupMemberMetadataValue,
    )

LOG = logging.getLogger("ottla.groups")
JOINING_EPOCH = 0
LEAVING_EPOCH = -1
"""In a request: the member leaves. In a member: its current assignment has been removed."""
STATIC_LEAVING_EPOCH = -2
"""A static member has left for a while; its tasks wait for its instance id until its session ends."""
NOT_GIVEN = -1
"""A rebalance timeout that has not changed, a topology epoch that is not known."""


class MemberState(IntEnum):
    """The progress of a member towards the target. The numbers are those in the record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """It must give up tasks before it can move to the next epoch."""
    UNRELEASED_TASKS = 3
    """It is at the target's epoch, but other members have not given up all tasks that it should have."""
    UNKNOWN = 127
    """A state of a later version of Kafka."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of a number in a record."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class Endpoint(NamedTuple):
    """Where a client answers interactive queries."""

    host: str
    port: int


class StreamsMember(NamedTuple):
    """One member. Immutable."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NOT_GIVEN
    topology_epoch: int = NOT_GIVEN
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Keys and values, sorted by key."""
    assigned: OwnedTasks = NOTHING_OWNED
    pending_revocation: OwnedTasks = NOTHING_OWNED

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has what the target of this epoch assigns to it."""
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def updated_by(self, request: StreamsGroupHeartbeatRequest, caller: Caller) -> StreamsMember:
        """The member with the fields of a heartbeat; those that are null did not change.

        A member that joins without an endpoint has none any more.
        """
        timeout_ms, endpoint = request.rebalance_timeout_ms, request.user_endpoint
        sent = None if endpoint is None else Endpoint(endpoint.host, endpoint.port)
        keeps_endpoint = sent is None and request.member_epoch != JOINING_EPOCH
        return self._replace(
            instance_id=self.instance_id if request.instance_id is None else request.instance_id,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            client_id=caller.client_id,
            client_host=caller.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
            topology_epoch=self.topology_epoch if request.topology is None else request.topology.epoch,
            process_id=self.process_id if request.process_id is None else request.process_id,
            user_endpoint=self.user_endpoint if keeps_endpoint else sent,
            client_tags=self.client_tags
            if request.client_tags is None
            else tuple(sorted((tag.key, tag.value) for tag in request.client_tags)),
        )

    def with_metadata(self, value: StreamsGroupMemberMetadataValue) -> StreamsMember:
        """The member with the metadata of a record."""
        endpoint = value.user_endpoint
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topology_epoch=value.topology_epoch,
            process_id=value.process_id,
            user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
            client_tags=tuple(sorted((tag.key, tag.value) for tag in value.client_tags)),
        )

    def with_assignment(self, value: StreamsGroupCurrentMemberAssignmentValue) -> StreamsMember:
        """The member with the tasks that a record lists."""
        epoch = value.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=OwnedTasks(
                _with_epochs(value.active_tasks, epoch), from_ids(value.standby_tasks), from_ids(value.warmup_tasks)
            ),
            pending_revocation=OwnedTasks(
                _with_epochs(value.active_tasks_pending_revocation, epoch),
                from_ids(value.standby_tasks_pending_revocation),
                from_ids(value.warmup_tasks_pending_revocation),
            ),
        )

    def without_assignment(self) -> StreamsMember:
        """The member after its current assignment was removed."""
        return self._replace(
            member_epoch=LEAVING_EPOCH,
            previous_member_epoch=LEAVING_EPOCH,
            assigned=NOTHING_OWNED,
            pending_revocation=NOTHING_OWNED,
        )

    def left_for_a_while(self) -> StreamsMember:
        """A static member that will come back: it keeps its tasks, at epoch 0, and has none to give up."""
        return self._replace(
            member_epoch=STATIC_LEAVING_EPOCH,
            assigned=self.assigned._replace(
                active={
                    subtopology_id: dict.fromkeys(tasks, 0) for subtopology_id, tasks in self.assigned.active.items()
                }
            ),
            pending_revocation=NOTHING_OWNED,
        )


def _with_epochs(
    listed: Iterable[StreamsGroupCurrentMemberAssignmentValue.TaskIds], member_epoch: int
) -> Mapping[str, Mapping[int, int]]:
    """Active tasks with the epochs at which they were assigned; the member's epoch where a record lists none."""
    tasks: dict[str, dict[int, int]] = {}
    for one in listed:
        epochs = one.assignment_epochs
        if epochs and len(epochs) != len(one.partitions):
            LOG.error(
                "a member's record has %d epochs for %d tasks of subtopology %s: epoch %d is used for all of them",
                len(epochs),
                len(one.partitions),
                one.subtopology_id,
                member_epoch,
            )
            epochs = None
        if one.partitions:
            of_subtopology = tasks.setdefault(one.subtopology_id, {})
            of_subtopology.update(zip(one.partitions, epochs or [member_epoch] * len(one.partitions), strict=True))
    return tasks
