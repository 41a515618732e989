"""The target of a streams group: the tasks that each member should have, as the task assignor decides.

Source: Kafka's `TargetAssignmentBuilder` of streams groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.sticky_assignor import AssignorMember, assign_sticky
from ottla.broker.groups.streams.task_offsets import NO_TASK_OFFSETS, TaskOffsets
from ottla.broker.groups.streams.tasks import NO_TASK_SETS, TaskSets

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.state import StreamsGroupState


def compute_target(
    state: StreamsGroupState,
    configured: ConfiguredTopology,
    offsets: Mapping[str, TaskOffsets],
    standby_replicas: int,
) -> dict[str, TaskSets]:
    """The tasks of every member; none while the topology is not ready. `offsets` are what members have reported."""
    if not configured.is_ready or configured.subtopologies is None:
        return dict.fromkeys(sorted(state.members), NO_TASK_SETS)
    members = {}
    for member_id, member in state.members.items():
        has = member.assigned.without_epochs()
        reported = offsets.get(member_id, NO_TASK_OFFSETS)
        members[member_id] = AssignorMember(member.process_id, has.active, has.standby, reported.offsets)
    target = assign_sticky(members, configured.subtopologies, standby_replicas)
    return {member_id: target.get(member_id, NO_TASK_SETS) for member_id in sorted(members)}
