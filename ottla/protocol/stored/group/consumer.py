"""Records of `__consumer_offsets` about groups of the consumer protocol (KIP-848).

Each part that changes by itself has a record: the group's epoch, its topics, each member, the target assignment, each
member's part of the target, and each member's current assignment. A tombstone deletes the part.
"""

from __future__ import annotations

from ottla.protocol.message import Struct, tagged
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.types import Bytes, Int8, Int32, Int64, NullableString, String, Uuid


class ConsumerGroupMetadataKey(GroupKey, key=3, versions="0"):
    """A group."""

    group_id: String


class ConsumerGroupMetadataValue(GroupValue, key=3, versions="0", flexible="0+"):
    """The group's epoch. `metadata_hash` is a hash of the topics it subscribes to (Kafka 4.1, KIP-1101)."""

    epoch: Int32
    metadata_hash: Int64 = tagged(0, "0+", default=0)


class ConsumerGroupPartitionMetadataKey(GroupKey, key=4, versions="0"):
    """A group."""

    group_id: String


class ConsumerGroupPartitionMetadataValue(GroupValue, key=4, versions="0", flexible="0+"):
    """The topics that the group subscribes to. Kafka 4.1 writes tombstones only: the hash has replaced it."""

    class PartitionMetadata(Struct):
        """A partition and the racks of its replicas."""

        partition: Int32
        racks: list[String]

    class TopicMetadata(Struct):
        """A topic."""

        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]

    topics: list[TopicMetadata]


class ConsumerGroupMemberMetadataKey(GroupKey, key=5, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(GroupValue, key=5, versions="0", flexible="0+"):
    """A member and its subscription."""

    class ClassicProtocol(Struct):
        """An assignor that a classic member knows, and its metadata for it."""

        name: String
        metadata: Bytes

    class ClassicMemberMetadata(Struct):
        """The additional fields of a member that uses the classic protocol in such a group."""

        session_timeout_ms: Int32
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: NullableString
    rebalance_timeout_ms: Int32 = -1
    server_assignor: NullableString
    classic_member_metadata: ClassicMemberMetadata | None = tagged(0, "0+", default=None, nullable="0+")


class ConsumerGroupTargetAssignmentMetadataKey(GroupKey, key=6, versions="0"):
    """A group."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(GroupValue, key=6, versions="0", flexible="0+"):
    """The epoch of the group for which the target was computed."""

    assignment_epoch: Int32


class ConsumerGroupTargetAssignmentMemberKey(GroupKey, key=7, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(GroupValue, key=7, versions="0", flexible="0+"):
    """The partitions that the member is to own."""

    class TopicPartition(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    topic_partitions: list[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(GroupKey, key=8, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(GroupValue, key=8, versions="0", flexible="0+"):
    """The partitions that the member owns on its way to the target, and those that it has still to give up.

    `state`: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown.
    """

    class TopicPartitions(Struct):
        """A topic's partitions, and for each the epoch at which it was assigned to the member (KIP-1251, Kafka 4.3).

        Earlier releases write no epochs, and skip them when reading.
        """

        topic_id: Uuid
        partitions: list[Int32]
        assignment_epochs: list[Int32] | None = tagged(0, "0+", default=None)

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


class ConsumerGroupRegularExpressionKey(GroupKey, key=16, versions="0"):
    """A regular expression that members of a group subscribe to."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(GroupValue, key=16, versions="0", flexible="0+"):
    """The topics that it matched, at a version of the metadata and a time in ms."""

    topics: list[String]
    version: Int64
    timestamp: Int64
