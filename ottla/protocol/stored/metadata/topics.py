"""Metadata records of topics and partitions.

A topic is a TopicRecord and a PartitionRecord for each partition. PartitionChangeRecords follow, with changed fields
only. A RemoveTopicRecord removes all of it. Replicas are broker ids; `directories` has the log directory ids of the
replicas, in the same order.
"""

from __future__ import annotations

from ottla.protocol.message import since, tagged
from ottla.protocol.stored.metadata.record import MetadataRecord
from ottla.protocol.types import Int8, Int32, String, Uuid

NO_LEADER_CHANGE = -2
"""PartitionChangeRecord.leader when the leader stays and the leader epoch with it."""


class TopicRecord(MetadataRecord, key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: String
    topic_id: Uuid


class PartitionRecord(MetadataRecord, key=3, versions="0-2", flexible="0+"):
    """A partition was created, or exists in a snapshot.

    Version 1 adds the directories (KIP-858), version 2 the eligible leader replicas (KIP-966).
    `leader_recovery_state` is 1 after an unclean election, until the leader has recovered.
    """

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32] = since("0+", factory=list)
    adding_replicas: list[Int32] = since("0+", factory=list)
    leader: Int32 = -1
    leader_recovery_state: Int8 = tagged(0, "0+", default=0)
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: list[Uuid] = since("1+", factory=list)
    eligible_leader_replicas: list[Int32] | None = tagged(1, "2+", default=None)
    last_known_elr: list[Int32] | None = tagged(2, "2+", default=None)


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2", flexible="0+"):
    """A change of a partition; unchanged fields are null, NO_LEADER_CHANGE (`leader`) or -1 (`leader_recovery_state`).

    A `leader` of -1 means that there is none now. Each record increments the partition epoch. A record that names a
    leader, the same or another, also increments the leader epoch. Versions as in PartitionRecord.
    """

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: list[Int32] | None = tagged(0, "0+", default=None)
    leader: Int32 = tagged(1, "0+", default=NO_LEADER_CHANGE)
    replicas: list[Int32] | None = tagged(2, "0+", default=None)
    removing_replicas: list[Int32] | None = tagged(3, "0+", default=None)
    adding_replicas: list[Int32] | None = tagged(4, "0+", default=None)
    leader_recovery_state: Int8 = tagged(5, "0+", default=-1)
    directories: list[Uuid] | None = tagged(8, "1+", default=None)
    eligible_leader_replicas: list[Int32] | None = tagged(6, "2+", default=None)
    last_known_elr: list[Int32] | None = tagged(7, "2+", default=None)


class RemoveTopicRecord(MetadataRecord, key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and its configuration."""

    topic_id: Uuid


class ClearElrRecord(MetadataRecord, key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all where the name is empty, are cleared (KIP-966)."""

    topic_name: String
