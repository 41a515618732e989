"""What an assignor of the classic protocol is given and gives back.

A program may bring its own: a subclass of `Assignor` with a name that all members of the group use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from ottla.client.structs import TopicPartition

NO_GENERATION = -1

Assignment = dict[str, list[TopicPartition]]
"""What each member is to own, by member id; every member is in it."""


class GroupMember(NamedTuple):
    """A member as the leader sees it: what it subscribes to and what it says that it owns.

    `generation` is that in which it got what it owns, -1 where it does not say. `user_data` is the assignor's own.
    """

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    user_data: bytes = b""


class Assignor(ABC):
    """Shares out partitions among members. Stateless: what it must remember travels in the members' user data."""

    name: ClassVar[str]
    """What the members of a group agree on; Kafka's names."""
    is_cooperative: ClassVar[bool] = False
    """Whether a member may keep its partitions while the group rebalances (KIP-429). If so, `assign` must not give a
    member what another still owns."""

    def user_data(self, previous: Sequence[TopicPartition], generation: int) -> bytes:
        """Return what a member sends the leader beside its topics: `previous` is what it got last, in `generation`."""
        return b""

    @abstractmethod
    def assign(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> Assignment:
        """Return what each member is to own; topics that are not in `partition_counts` do not exist."""


def in_order(members: Iterable[GroupMember]) -> list[GroupMember]:
    """Return members as Kafka orders them: static ones first, by instance id, then the others by member id.

    So that a static member that restarts, with a new member id, gets the place it had.
    """
    return sorted(members, key=lambda one: (one.group_instance_id is None, one.group_instance_id or "", one.member_id))
