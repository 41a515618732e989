"""The common algorithm of the sticky assignors: the most even assignment with the fewest moves. Pure.

1. *Claims*: a partition stays with the member that claims to own it, if that still subscribes to the topic. Of several
   claims that of the latest generation wins; two of the same generation are both ignored.
2. Partitions without an owner are assigned to the subscriber that has the fewest, those with few subscribers first.
3. *Chains*: while a member has at least two more than another one that could take over a partition, directly or via
   other members, one partition moves along this chain. Without such a chain no assignment is more even (Harvey et al.,
   optimal semi-matchings).

The search for chains works on members and topics, not partitions, since all partitions of a topic are equal for a
subscriber: thousands of partitions cost no more than a few.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.client.groups.assignors.interface import Assignment, GroupMember, in_order
from ottla.client.structs import TopicPartition


class Claim(NamedTuple):
    """The partitions that a member claims to own, and the generation in which it got them; -1 if that is unknown."""

    partitions: Sequence[TopicPartition]
    generation: int


def balance(
    partition_counts: Mapping[str, int], members: Sequence[GroupMember], claims: Mapping[str, Claim]
) -> Assignment:
    """Return the assignment of each member: every partition with a subscriber has one owner."""
    if not members:
        return {}
    shares = _Shares(partition_counts, in_order(members))
    for partition, member_id in _kept(partition_counts, members, claims).items():
        shares.give(partition, member_id)
    shares.hand_out_the_rest()
    while shares.move_along_a_chain():
        pass
    return shares.assignment()


def _kept(
    partition_counts: Mapping[str, int], members: Sequence[GroupMember], claims: Mapping[str, Claim]
) -> dict[TopicPartition, str]:
    """Return the owner of each partition by the members' claims."""
    owners: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        claim = claims[member.member_id]
        for partition in dict.fromkeys(claim.partitions):
            topic, index = partition
            if topic not in member.topics or not 0 <= index < partition_counts.get(topic, 0):
                continue
            generation, _ = owners.get(partition, (-2, None))
            if claim.generation > generation:
                owners[partition] = (claim.generation, member.member_id)
            elif claim.generation == generation:
                owners[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in owners.items() if owner is not None}


class _Shares:
    """The partitions of each member while they are being assigned."""

    def __init__(self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]) -> None:
        self._counts = {member.member_id: 0 for member in members}
        self._by_topic: dict[str, dict[str, set[int]]] = {
            member.member_id: defaultdict(set)
            for member in members  # topic -> partitions, per member
        }
        self._kept: dict[str, set[TopicPartition]] = {member.member_id: set() for member in members}
        self._subscribers: dict[str, list[str]] = {
            topic: [member.member_id for member in members if topic in member.topics] for topic in partition_counts
        }
        self._free = {topic: set(range(count)) for topic, count in partition_counts.items() if self._subscribers[topic]}
        self._place = {member.member_id: place for place, member in enumerate(members)}

    def give(self, partition: TopicPartition, member_id: str) -> None:
        """Let a member keep a partition."""
        self._free[partition.topic].discard(partition.partition)
        self._kept[member_id].add(partition)
        self._add(partition.topic, partition.partition, member_id)

    def hand_out_the_rest(self) -> None:
        """Assign the free partitions to the members with the fewest."""
        for topic in sorted(self._free, key=lambda topic: (len(self._subscribers[topic]), topic)):
            for index in sorted(self._free[topic]):
                taker = min(self._subscribers[topic], key=lambda one: (self._counts[one], self._place[one]))
                self._add(topic, index, taker)

    def move_along_a_chain(self) -> bool:
        """Move one partition from a member with many to one with few, via others if needed; False if none can move."""
        for giver in sorted(self._counts, key=lambda one: -self._counts[one]):
            if self._counts[giver] - min(self._counts.values()) < 2:
                return False
            chain = self._chain_from(giver)
            if chain:
                for source, topic, target in chain:
                    self._move(topic, source, target)
                return True
        return False

    def assignment(self) -> Assignment:
        """Return the partitions of all members, in order."""
        return {
            member_id: [TopicPartition(topic, index) for topic in sorted(owned) for index in sorted(owned[topic])]
            for member_id, owned in self._by_topic.items()
        }

    def _chain_from(self, giver: str) -> list[tuple[str, str, str]]:
        """Return the shortest chain, as (from, topic, to), to the reachable member with the fewest partitions."""
        came_by: dict[str, tuple[str, str]] = {}
        waiting = deque([giver])
        seen_topics: set[str] = set()
        best: str | None = None
        while waiting:
            source = waiting.popleft()
            for topic, owned in self._by_topic[source].items():
                if not owned or topic in seen_topics:
                    continue
                seen_topics.add(topic)  # members that can get it were already reached from the nearest owner
                for target in self._subscribers[topic]:
                    if target == giver or target in came_by:
                        continue
                    came_by[target] = (source, topic)
                    waiting.append(target)
                    if best is None or self._counts[target] < self._counts[best]:
                        best = target
        if best is None or self._counts[giver] - self._counts[best] < 2:
            return []
        chain: list[tuple[str, str, str]] = []
        while best != giver:
            source, topic = came_by[best]
            chain.append((source, topic, best))
            best = source
        return chain

    def _move(self, topic: str, source: str, target: str) -> None:
        """Move a partition: preferably one that the target had before, else one that the source did not have before."""
        owned = self._by_topic[source][topic]
        index = min(
            owned,
            key=lambda one: (
                TopicPartition(topic, one) not in self._kept[target],
                TopicPartition(topic, one) in self._kept[source],
                -one,
            ),
        )
        owned.discard(index)
        self._counts[source] -= 1
        self._add(topic, index, target)

    def _add(self, topic: str, index: int, member_id: str) -> None:
        self._by_topic[member_id][topic].add(index)
        self._counts[member_id] += 1
