"""A topic in an answer to Metadata: its partitions and their leaders.

A leader with an older leader epoch than the known one is ignored (KIP-320), since brokers learn of changes at different
times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from ottla.protocol.api.metadata import MetadataResponse
from ottla.protocol.errors import ErrorCode


@dataclass(slots=True)
class PartitionMetadata:
    """A partition: the broker that leads it, -1 for none at the moment, and the epoch of that leadership."""

    index: int
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    error: ErrorCode


@dataclass(slots=True)
class TopicMetadata:
    """A topic: its id (zero if the broker sends none) and its partitions by index."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: dict[int, PartitionMetadata]
    error: ErrorCode

    @classmethod
    def of(cls, name: str, described: MetadataResponse.MetadataResponseTopic) -> Self:
        """The broker's description of the topic with this name."""
        return cls(
            name=name,
            topic_id=described.topic_id,
            is_internal=described.is_internal,
            partitions={
                partition.partition_index: PartitionMetadata(
                    index=partition.partition_index,
                    leader_id=partition.leader_id,
                    leader_epoch=partition.leader_epoch,
                    replicas=list(partition.replica_nodes),
                    in_sync_replicas=list(partition.isr_nodes),
                    error=ErrorCode.of(partition.error_code),
                )
                for partition in described.partitions
            },
            error=ErrorCode.of(described.error_code),
        )

    @property
    def is_usable(self) -> bool:
        """Whether all partitions are known, without gaps, so that keys can be mapped to them."""
        return not self.error and bool(self.partitions) and max(self.partitions) == len(self.partitions) - 1

    def keep_newer_leaders(self, before: TopicMetadata) -> None:
        """Replace leaders that are older than those known before, if that was the same topic."""
        if before.topic_id != self.topic_id:
            return
        for index, partition in self.partitions.items():
            known = before.partitions.get(index)
            if known is not None and 0 <= partition.leader_epoch < known.leader_epoch:
                self.partitions[index] = known
