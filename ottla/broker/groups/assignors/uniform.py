"""The `uniform` assignor: as even as possible, with as few moves as that allows. The default of the consumer protocol.

Where all members have the same subscription, the numbers are fixed beforehand: with P partitions and N members each
gets P // N, and P % N members one more. Each member keeps what it has up to its number; the rest is assigned to members
that have too few. A member that already has one more than P // N has the first claim on one of the P % N extra
partitions, so that nothing moves only to even out a difference of one.

Where subscriptions differ, `uniform_mixed.py` takes over. Source: Kafka 4.1's `UniformAssignor` and
`UniformHomogeneousAssignmentBuilder` (KIP-848).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from uuid import UUID

from ottla.broker.groups.assignors.assignor import AssignorMember, Members, PartitionCounts, subscribe_alike
from ottla.broker.groups.assignors.uniform_mixed import assign_mixed
from ottla.broker.groups.partitions import Partitions


def assign_uniform(members: Members, partition_counts: PartitionCounts) -> dict[str, Partitions]:
    """The target of each member."""
    if not members:
        return {}
    if not subscribe_alike(members):
        return assign_mixed(members, partition_counts)
    topics = next(iter(members.values())).topics
    return _assign_alike(members, {topic_id: partition_counts[topic_id] for topic_id in sorted(topics)})


def _assign_alike(members: Members, partition_counts: PartitionCounts) -> dict[str, Partitions]:
    share, extra = divmod(sum(partition_counts.values()), len(members))
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in partition_counts}
    assigned: dict[str, Partitions] = {}
    too_few: list[tuple[str, int]] = []
    members_left = len(members)
    for member_id, member in members.items():
        may_have_extra = extra > 0
        kept, room = _keep(member, share + may_have_extra, partition_counts, taken)
        if room > 0 and may_have_extra and members_left > extra:
            # A later member may have the extra partition already; only the last ones must take what is left.
            room -= 1
            may_have_extra = False
        if room > 0:
            too_few.append((member_id, room))
        extra -= may_have_extra
        members_left -= 1
        assigned[member_id] = kept
    free = _free(partition_counts, taken)
    for member_id, room in too_few:
        assigned[member_id] = _with(assigned[member_id], islice(free, room))
    return assigned


def _keep(
    member: AssignorMember, room: int, partition_counts: PartitionCounts, taken: dict[UUID, set[int]]
) -> tuple[Partitions, int]:
    """The part of its target that a member keeps (`member.target` itself if that is all), and its room for more."""
    kept: dict[UUID, frozenset[int]] = {}
    is_whole = True
    for topic_id, partitions in member.target.items():
        topic_taken = taken.get(topic_id)
        if topic_taken is None:
            is_whole = False
            continue
        fits = len(partitions) <= room and max(partitions) < partition_counts[topic_id]
        if not fits or not topic_taken.isdisjoint(partitions):
            still_there = [p for p in sorted(partitions - topic_taken) if p < partition_counts[topic_id]]
            partitions = frozenset(still_there[:room])  # noqa: PLW2901 - the part that it keeps
            is_whole = False
        if partitions:
            kept[topic_id] = partitions
            topic_taken |= partitions
            room -= len(partitions)
    return (member.target if is_whole else kept), room


def _free(partition_counts: PartitionCounts, taken: dict[UUID, set[int]]) -> Iterator[tuple[UUID, int]]:
    for topic_id, partition_count in partition_counts.items():
        topic_taken = taken[topic_id]
        if len(topic_taken) < partition_count:
            for partition in range(partition_count):
                if partition not in topic_taken:
                    yield topic_id, partition


def _with(partitions: Partitions, more: Iterator[tuple[UUID, int]]) -> Partitions:
    collected: dict[UUID, set[int]] = {}
    for topic_id, partition in more:
        collected.setdefault(topic_id, set()).add(partition)
    if not collected:
        return partitions
    return {
        **partitions,
        **{topic_id: partitions.get(topic_id, frozenset()) | new for topic_id, new in collected.items()},
    }
