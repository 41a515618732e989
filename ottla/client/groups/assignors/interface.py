"""The interface of an assignor in the classic protocol.

A program may have its own: a subclass of `Assignor` with a name that all members of the group use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from ottla.client.structs import TopicPartition

NO_GENERATION = -1

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id; it has every member."""


class GroupMember(NamedTuple):
    """A member for the leader: its subscribed topics and the partitions that it claims to own.

    `generation` is the one in which it got these partitions, -1 if unknown. `user_data` belongs to the assignor.
    """

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""


class Assignor(ABC):
    """Assigns partitions to members. It is stateless: state between rebalances is in the members' user data."""

    name: ClassVar[str]
    """The name on which the members of a group agree, as in Kafka."""
    is_cooperative: ClassVar[bool] = False
    """Whether a member may keep its partitions while the group rebalances (KIP-429). If so, `assign` must not assign a
    partition that another member still owns."""

    def user_data(self, previous: Sequence[TopicPartition], generation: int) -> bytes:
        """Return a member's data for the leader besides its topics: `previous` are its last partitions."""
        return b""

    @abstractmethod
    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Return the partitions of each member; topics that are not in `partition_counts` do not exist."""


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return members in Kafka's order: static ones first, by instance id, then the rest by member id.

    So a static member that restarts, with a new member id, keeps its place.
    """
    return sorted(members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or "", one.member_id))
