"""The epoch at which each partition was assigned to a member (KIP-1251). It decides whether a late commit is valid.

A commit carries the epoch that the member knew when it sent the commit. Meanwhile a heartbeat may have moved the member
to a later epoch. The commit is still valid for a partition that has been the member's since that epoch or an earlier
one. It is stale for a partition that was given up, even if it came back. Source: `ConsumerGroupMember.assignmentEpoch`
and `Utils.assignmentFromTopicPartitions` of Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from ottla.broker.groups.partitions import Partitions

LOG = logging.getLogger("ottla.groups")

AssignmentEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Epochs by partition, by topic id. Read only."""

NO_EPOCHS: AssignmentEpochs = {}


class TopicPartitionsWithEpochs(Protocol):
    """A topic with its partitions, in the record of a member's current assignment."""

    topic_id: UUID
    partitions: list[int]
    assignment_epochs: list[int] | None


def of_one_epoch(partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """The epochs of partitions that were all assigned at one epoch."""
    return {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in partitions.items()}


def from_record(structs: Sequence[TopicPartitionsWithEpochs], member_epoch: int) -> AssignmentEpochs:
    """The epochs that a record lists.

    Kafka before 4.3 wrote no epochs: the partitions were then assigned at the member's epoch, at the latest. The epoch
    of a static member that has left temporarily is negative and counts as 0.
    """
    epoch_without = max(member_epoch, 0)
    epochs: dict[UUID, dict[int, int]] = {}
    for struct in structs:
        if not struct.partitions:
            continue
        listed = struct.assignment_epochs
        if listed is not None and len(listed) != len(struct.partitions):
            LOG.error(
                "a member's record has %d epochs for %d partitions of topic %s: epoch %d is used for all of them",
                len(listed),
                len(struct.partitions),
                struct.topic_id,
                epoch_without,
            )
            listed = None
        of_topic = epochs.setdefault(struct.topic_id, {})
        if listed is None:
            of_topic.update(dict.fromkeys(struct.partitions, epoch_without))
        else:
            of_topic.update(zip(struct.partitions, listed, strict=True))
    return epochs


def joined(one: AssignmentEpochs, other: AssignmentEpochs) -> AssignmentEpochs:
    """The epochs of both; where both have a partition, the epoch of `other` is used."""
    if not one or not other:
        return one or other
    return {
        topic_id: {**one.get(topic_id, {}), **other.get(topic_id, {})} for topic_id in dict.fromkeys((*one, *other))
    }


def moved(before: AssignmentEpochs, held: Partitions, partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """The epochs of `partitions`: those that were `held` keep theirs from `before`, new ones get `epoch`."""
    return {
        topic_id: _of_topic(before.get(topic_id, {}), held.get(topic_id, frozenset()), indexes, epoch)
        for topic_id, indexes in partitions.items()
    }


def _of_topic(before: Mapping[int, int], held: frozenset[int], indexes: frozenset[int], epoch: int) -> dict[int, int]:
    return {index: before[index] if index in held else epoch for index in indexes}
