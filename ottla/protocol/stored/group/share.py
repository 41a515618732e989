"""Records of `__consumer_offsets` about share groups (KIP-932).

One record for each thing that changes by itself: the group's epoch, each member, the target, each member's part of the
target, what each member has at present, and the partitions of which the group has a state. A tombstone forgets the
thing. The state itself, offsets and deliveries, is in `__share_group_state` (`ottla.protocol.stored.share_state`).
"""

from __future__ import annotations

from ottla.protocol.message import Struct, tagged
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.types import Int8, Int32, Int64, NullableString, String, Uuid


class ShareGroupMemberMetadataKey(GroupKey, key=10, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(GroupValue, key=10, versions="0", flexible="0+"):
    """What a member is and subscribes to."""

    rack_id: NullableString
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupMetadataKey(GroupKey, key=11, versions="0"):
    """A group."""

    group_id: String


class ShareGroupMetadataValue(GroupValue, key=11, versions="0", flexible="0+"):
    """The group's epoch. `metadata_hash` covers the topics that it subscribes to (KIP-1101)."""

    epoch: Int32
    metadata_hash: Int64


class ShareGroupTargetAssignmentMetadataKey(GroupKey, key=12, versions="0"):
    """A group."""

    group_id: String


class ShareGroupTargetAssignmentMetadataValue(GroupValue, key=12, versions="0", flexible="0+"):
    """The epoch of the group that the target was made for, and when (KIP-1263, Kafka 4.3; 0 where that is unknown)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, "0+", default=0)


class ShareGroupTargetAssignmentMemberKey(GroupKey, key=13, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ShareGroupTargetAssignmentMemberValue(GroupValue, key=13, versions="0", flexible="0+"):
    """The partitions that the member is to have."""

    class TopicPartition(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(GroupKey, key=14, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentValue(GroupValue, key=14, versions="0", flexible="0+"):
    """The partitions that the member has. `state`: 0 stable, the only one that share groups use."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(GroupKey, key=15, versions="0"):
    """A group."""

    group_id: String


class ShareGroupStatePartitionMetadataValue(GroupValue, key=15, versions="0", flexible="0+"):
    """The partitions of which the group has a state, and those whose state is being made or removed."""

    class TopicPartitionsInfo(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        topic_name: String
        partitions: list[Int32]

    class TopicInfo(Struct):
        """A topic."""

        topic_id: Uuid
        topic_name: String

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]
