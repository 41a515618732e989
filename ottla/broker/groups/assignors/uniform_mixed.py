"""The `uniform` assignor for members that subscribe to different topics.

Three steps. Each member keeps the partitions of topics to which it is still subscribed. Partitions without an owner are
assigned, topic by topic, to the subscriber with the fewest partitions; topics with the most partitions per subscriber
come first. Then partitions of a topic move from its most loaded owner to its least loaded subscriber, as long as these
two differ by more than one.

Moving one topic's partitions can unbalance another's, so the last step is repeated until a round moves nothing, or
`MOST_ROUNDS` have been made. The result is perfectly even where all subscribers of a topic have the same subscription,
and nearly even elsewhere. Source: Kafka 4.1's `UniformHeterogeneousAssignmentBuilder`, from which the limit of rounds
is taken; the heaps are Ottla's.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from uuid import UUID

from ottla.broker.groups.assignors.assignor import Members, PartitionCounts
from ottla.broker.groups.partitions import Partitions

MOST_ROUNDS = 16
NO_OWNER = -1


def assign_mixed(members: Members, partition_counts: PartitionCounts) -> dict[str, Partitions]:
    """The target of each member."""
    plan = _Plan(members, partition_counts)
    topics = plan.topics_by_load()
    for topic_id in topics:
        plan.give_what_nobody_has(topic_id)
    shared = [topic_id for topic_id in topics if len(plan.subscribers[topic_id]) > 1]
    for _ in range(MOST_ROUNDS):
        if not sum(map(plan.balance, shared)):
            break
    return plan.result()


class _Plan:
    """Owners by topic and partition, and the number of partitions of each member; members are numbers here."""

    def __init__(self, members: Members, partition_counts: PartitionCounts) -> None:
        self.members = members
        self.member_ids = list(members)
        self.loads = [0] * len(members)
        self.subscribers: dict[UUID, list[int]] = {}
        for number, member in enumerate(members.values()):
            for topic_id in member.topics:
                self.subscribers.setdefault(topic_id, []).append(number)
        self.owners = {topic_id: [NO_OWNER] * partition_counts[topic_id] for topic_id in self.subscribers}
        for number, member in enumerate(members.values()):
            for topic_id in member.topics & member.target.keys():
                self._keep(number, topic_id, member.target[topic_id])

    def _keep(self, number: int, topic_id: UUID, partitions: frozenset[int]) -> None:
        owners = self.owners[topic_id]
        for partition in partitions:
            if partition < len(owners) and owners[partition] == NO_OWNER:
                owners[partition] = number
                self.loads[number] += 1

    def topics_by_load(self) -> list[UUID]:
        """The topics with the most partitions per subscriber first, then with the fewest subscribers, then by id."""

        def place(topic_id: UUID) -> tuple[float, int, UUID]:
            subscriber_count = len(self.subscribers[topic_id])
            return (-len(self.owners[topic_id]) / subscriber_count, subscriber_count, topic_id)

        return sorted(self.subscribers, key=place)

    def give_what_nobody_has(self, topic_id: UUID) -> None:
        """Assign each partition without an owner to the subscriber that has the fewest."""
        owners = self.owners[topic_id]
        if NO_OWNER not in owners:
            return
        least_loaded = [(self.loads[number], number) for number in self.subscribers[topic_id]]
        heapify(least_loaded)
        for partition, owner in enumerate(owners):
            if owner == NO_OWNER:
                load, number = least_loaded[0]
                owners[partition] = number
                self.loads[number] = load + 1
                heapreplace(least_loaded, (load + 1, number))

    def balance(self, topic_id: UUID) -> int:
        """Move partitions of one topic until its subscribers are even, or none can give one. Return how many moved."""
        loads = self.loads
        subscribers = self.subscribers[topic_id]
        if max(loads[number] for number in subscribers) - min(loads[number] for number in subscribers) <= 1:
            return 0
        owners = self.owners[topic_id]
        to_give: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            to_give.setdefault(owner, []).append(partition)
        least_loaded = [(loads[number], number) for number in subscribers]
        most_loaded = [(-loads[number], number) for number in to_give]
        heapify(least_loaded)
        heapify(most_loaded)
        moved = 0
        while most_loaded:
            load, giver = -most_loaded[0][0], most_loaded[0][1]
            least, taker = least_loaded[0]
            if load - least <= 1:
                break
            # A giver is never the least loaded and a taker never gives back: loads in the heaps are those of the plan.
            partition = to_give[giver].pop()
            owners[partition] = taker
            loads[giver] -= 1
            loads[taker] += 1
            moved += 1
            heapreplace(least_loaded, (least + 1, taker))
            heappop(most_loaded)
            if to_give[giver]:
                heappush(most_loaded, (-load + 1, giver))
        return moved

    def result(self) -> dict[str, Partitions]:
        """The partitions of each member."""
        collected: list[dict[UUID, set[int]]] = [{} for _ in self.member_ids]
        for topic_id, owners in self.owners.items():
            for partition, number in enumerate(owners):
                collected[number].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in collected[number].items()}
            for number, member_id in enumerate(self.member_ids)
        }
