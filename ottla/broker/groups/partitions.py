"""Partitions by topic: the one data type for partitions that are assigned, owned, or to be given up.

A `Partitions` is immutable, so members, targets and records may share it. Topics without partitions are left out, so
that equal sets are equal dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias
from uuid import UUID

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition indexes by topic id. Read only."""

NO_PARTITIONS: Partitions = {}


class TopicPartitions(Protocol):
    """A topic with its partitions in requests and records; each message has its own struct for it."""

    topic_id: UUID
    partitions: list[int]


def from_structs(structs: Iterable[TopicPartitions]) -> Partitions:
    """The partitions that a message lists; a topic that is listed twice is one topic."""
    collected: dict[UUID, frozenset[int]] = {}
    for struct in structs:
        if struct.partitions:
            collected[struct.topic_id] = collected.get(struct.topic_id, frozenset()).union(struct.partitions)
    return collected


def in_order(partitions: Partitions) -> list[tuple[UUID, list[int]]]:
    """Topics by id, their partitions ascending: the order in which messages list them."""
    return [(topic_id, sorted(partitions[topic_id])) for topic_id in sorted(partitions)]


def contains(whole: Partitions, part: Partitions) -> bool:
    """Whether all of `part` is in `whole`."""
    return all(indexes <= whole.get(topic_id, frozenset()) for topic_id, indexes in part.items())


def overlaps(one: Partitions, other: Partitions) -> bool:
    """Whether some partition is in both."""
    return any(not indexes.isdisjoint(other.get(topic_id, ())) for topic_id, indexes in one.items())


def united(one: Partitions, other: Partitions) -> Partitions:
    """The partitions that are in either."""
    if not one or not other:
        return one or other
    return {
        topic_id: one.get(topic_id, frozenset()) | other.get(topic_id, frozenset())
        for topic_id in dict.fromkeys((*one, *other))
    }


def count(partitions: Partitions) -> int:
    """The number of partitions."""
    return sum(map(len, partitions.values()))
