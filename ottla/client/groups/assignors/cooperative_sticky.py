"""Cooperative sticky: sticky, but no member stops for a rebalance (Kafka's CooperativeStickyAssignor, KIP-429).

Members keep their partitions while they join. A partition that moves is assigned to no member at first; when its owner
has given it up the group rebalances again, and then it gets its new owner. A member's subscription contains its
partitions, since version 2 also the generation; for older readers the generation is in the user data, an int32.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence

from ottla.client.groups.assignors.balance import Claim, balance
from ottla.client.groups.assignors.interface import NO_GENERATION, Assignment, Assignor, GroupMember
from ottla.client.structs import TopicPartition

_INT32 = struct.Struct(">i")


class CooperativeStickyAssignor(Assignor):
    """See the module."""

    name = "cooperative-sticky"
    is_cooperative = True

    def user_data(self, previous: Sequence[TopicPartition], generation: int) -> bytes:
        """Return the generation."""
        return _INT32.pack(generation)

    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Assign, but hold back partitions that another member still has to give up."""
        claims = {member.member_id: Claim(member.owned, _generation_of(member)) for member in members}
        assignment = balance(partition_counts, members, claims)
        owners: dict[TopicPartition, set[str]] = defaultdict(set)
        for member in members:
            for partition in member.owned:
                owners[partition].add(member.member_id)
        return {
            member_id: [one for one in partitions if one not in owners or member_id in owners[one]]
            for member_id, partitions in assignment.items()
        }


def _generation_of(member: GroupMember) -> int:
    if member.generation >= 0 or len(member.user_data) != _INT32.size:
        return member.generation
    generation: int = _INT32.unpack(member.user_data)[0]
    return max(generation, NO_GENERATION)
