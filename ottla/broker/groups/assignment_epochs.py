"""The epoch at which each partition came to a member (KIP-1251): what says whether a late commit may still be made.

A commit carries the epoch that the member knew when it was sent. Meanwhile a heartbeat may have brought the member
further. The commit is good all the same for a partition that has been the member's since no later epoch than that; it
is stale for one that was given up, even if it came back. Source: `ConsumerGroupMember.assignmentEpoch` and
`Utils.assignmentFromTopicPartitions` of Kafka 4.3.
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
    """What the record of a member's current assignment calls a topic with its partitions."""

    topic_id: UUID
    partitions: list[int]
    assignment_epochs: list[int] | None


def of_one_epoch(partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """All of them came at one epoch."""
    return {topic_id: dict.fromkeys(indexes, epoch) for topic_id, indexes in partitions.items()}


def from_record(structs: Sequence[TopicPartitionsWithEpochs], member_epoch: int) -> AssignmentEpochs:
    """What a record lists.

    Kafka before 4.3 wrote no epochs: the partitions then came at the epoch of the member, at the latest. A static
    member that has left for a while has a negative one, and counts from 0.
    """
    epoch_without = max(member_epoch, 0)
    epochs: dict[UUID, dict[int, int]] = {}
    for struct in structs:
        if not struct.partitions:
            continue
        listed = struct.assignment_epochs
        if listed is not None and len(listed) != len(struct.partitions):
            LOG.error(
                "a member's record has %d epochs for %d partitions of topic %s: epoch %d is taken for all of them",
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
    """Those of both; where both have a partition, that of `other`."""
    if not one or not other:
        return one or other
    return {
        topic_id: {**one.get(topic_id, {}), **other.get(topic_id, {})} for topic_id in dict.fromkeys((*one, *other))
    }


def moved(before: AssignmentEpochs, held: Partitions, partitions: Partitions, epoch: int) -> AssignmentEpochs:
    """The epochs of `partitions`: those that were `held` keep theirs of `before`, the others come at `epoch`."""
    return {
        topic_id: _of_topic(before.get(topic_id, {}), held.get(topic_id, frozenset()), indexes, epoch)
        for topic_id, indexes in partitions.items()
    }


def _of_topic(before: Mapping[int, int], held: frozenset[int], indexes: frozenset[int], epoch: int) -> dict[int, int]:
    return {index: before[index] if index in held else epoch for index in indexes}
