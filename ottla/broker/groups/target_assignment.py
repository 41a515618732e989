"""The target of a consumer group: which partitions each member is to own (Kafka's `TargetAssignmentBuilder`).

The assignor is the one that most members prefer. Where they have no preference, or prefer one that is not configured,
it is the first of `group.consumer.assignors`, which also decides ties by its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.groups.assignors.assignor import Assignor, AssignorMember
from ottla.broker.groups.assignors.range import assign_range
from ottla.broker.groups.assignors.uniform import assign_uniform
from ottla.broker.groups.partitions import Partitions

if TYPE_CHECKING:
    from ottla.broker.groups.consumer_state import ConsumerState
    from ottla.broker.groups.topics import TopicView

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
"""The assignors by the names that members and `group.consumer.assignors` use."""

DEFAULT_ASSIGNOR = "uniform"
"""Used where the configuration has no name that is known here: Kafka's may be Java classes."""


def preferred_assignor(state: ConsumerState, configured: Sequence[str]) -> str:
    """The name of the assignor that the group uses."""
    votes = Counter(member.server_assignor for member in state.members.values())
    known = [name for name in configured if name in ASSIGNORS] or [DEFAULT_ASSIGNOR]
    return max(known, key=lambda name: votes[name])


def compute_target(state: ConsumerState, topics: TopicView, assignor: str) -> dict[str, Partitions]:
    """The partitions that each member is to own from now on."""
    ids_by_names: dict[frozenset[str], frozenset[UUID]] = {}
    members: dict[str, AssignorMember] = {}
    for member_id in sorted(state.members):
        member = state.members[member_id]
        names = state.subscriptions.names_of(member)
        ids = ids_by_names.get(names)
        if ids is None:
            ids = ids_by_names[names] = frozenset(filter(None, map(topics.id_of, names)))
        members[member_id] = AssignorMember(member.instance_id, ids, state.target_of(member_id))
    partition_counts = {topic_id: topics.partition_count(topic_id) for ids in ids_by_names.values() for topic_id in ids}
    return ASSIGNORS[assignor](members, partition_counts)
