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


def count(partitions: Partitions) -> int:
    """The number of partitions."""
    return sum(map(len, partitions.values()))
