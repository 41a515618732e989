"""The assignor of share groups: several members may have a partition, and each member has at least one.

Where there are more partitions than members, each partition has one member, and members have as many as one another,
or one more; where there are more members, each has one partition, and partitions have as many members as one another,
or one more. What a member had before stays its own as far as that allows. Members that subscribe to different topics
get the least loaded choice at each step, which need not be even.

Source: KIP-932 and Kafka's `SimpleAssignor`, whose choices differ in who gets which partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias
from uuid import UUID

from ottla.broker.groups.assignors.assignor import Members, PartitionCounts, subscribe_alike
from ottla.broker.groups.partitions import Partitions

_Place: TypeAlias = tuple[UUID, int]


def assign_simple(members: Members, partition_counts: PartitionCounts) -> dict[str, Partitions]:
    """The partitions of each member; the mapping has all members."""
    given: dict[str, list[_Place]] = {member_id: [] for member_id in members}
    topics = frozenset().union(*(member.topics for member in members.values()))
    places = [(topic_id, index) for topic_id in sorted(topics) for index in range(partition_counts.get(topic_id, 0))]
    if places and members:
        if not subscribe_alike(members):
            _give_mixed(members, places, given)
        elif len(places) >= len(members):
            _give_each_partition(members, places, given)
        else:
            _give_each_member(members, places, given)
    return {member_id: _partitions(some) for member_id, some in given.items()}


def _give_each_partition(members: Members, places: list[_Place], given: dict[str, list[_Place]]) -> None:
    """Each partition has one member."""
    least, larger_shares = divmod(len(places), len(members))
    free = dict.fromkeys(places)
    for member_id, member in members.items():
        kept = [place for place in _places(member.target) if place in free]
        most = least + (len(kept) > least and larger_shares > 0)
        larger_shares -= most > least
        given[member_id] = kept[:most]
        for place in given[member_id]:
            del free[place]
    rest = iter(free)
    for some in given.values():
        while len(some) < least:
            some.append(next(rest))
    for some, place in zip((some for some in given.values() if len(some) == least), rest, strict=False):
        some.append(place)


def _give_each_member(members: Members, places: list[_Place], given: dict[str, list[_Place]]) -> None:
    """Each member has one partition."""
    least, larger_shares = divmod(len(members), len(places))
    shares = dict.fromkeys(places, 0)
    for member_id, member in members.items():
        for place in _places(member.target):
            taken = shares.get(place)
            if taken is not None and (taken < least or (taken == least and larger_shares > 0)):
                larger_shares -= taken == least
                shares[place] += 1
                given[member_id] = [place]
                break
    for some in given.values():
        if not some:
            place = min(places, key=shares.__getitem__)
            shares[place] += 1
            some.append(place)


def _give_mixed(members: Members, places: list[_Place], given: dict[str, list[_Place]]) -> None:
    """Each partition has a member, and each member a partition, if it subscribes to any."""
    shares = dict.fromkeys(places, 1)
    subscribers: dict[UUID, list[str]] = {}
    for member_id, member in members.items():
        for topic_id in member.topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    before = {member_id: frozenset(_places(member.target)) for member_id, member in members.items()}
    for place in places:
        chosen = min(subscribers[place[0]], key=lambda one: (len(given[one]), place not in before[one]))
        given[chosen].append(place)
    for member_id, some in given.items():
        choices = [place for place in places if place[0] in members[member_id].topics]
        if not some and choices:
            place = min(choices, key=lambda one: (shares[one], one not in before[member_id]))
            shares[place] += 1
            some.append(place)


def _places(partitions: Partitions) -> list[_Place]:
    return [(topic_id, index) for topic_id in sorted(partitions) for index in sorted(partitions[topic_id])]


def _partitions(places: Iterable[_Place]) -> Partitions:
    indexes: dict[UUID, set[int]] = {}
    for topic_id, index in places:
        indexes.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(some) for topic_id, some in indexes.items()}
