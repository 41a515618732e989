"""Records of `__consumer_offsets` about streams groups (KIP-1071).

One record for each thing that changes by itself: the group's epoch, its topology, each member, the target, each
member's part of the target, and what each member has at present. A tombstone forgets the thing.

Two tagged lists may be null, but their default is the empty list (``"default": null`` without quotes in Kafka's schema
means that): an absent one is read as empty, and null is written.
"""

from __future__ import annotations

from ottla.protocol.message import Struct, tagged
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.types import Int8, Int16, Int32, Int64, NullableString, String, Uint16


class StreamsGroupMetadataKey(GroupKey, key=17, versions="0"):
    """A group."""

    group_id: String


class StreamsGroupMetadataValue(GroupValue, key=17, versions="0", flexible="0+"):
    """The group's epoch, the hash of its topics (KIP-1101), and what was last checked and used.

    `validated_topology_epoch`: the topology whose topics were present and well partitioned, -1 for none.
    `last_assignment_configs`: the settings of the last assignment. `stored_description_topology_epoch`: the topology
    of which a plugin of Kafka holds the description (KIP-1331), -1 for none, -2 while that is uncertain;
    `failed_description_topology_epoch`: the one that the plugin has refused, -1 for none.
    """

    class LastAssignmentConfig(Struct):
        """A setting of the last assignment."""

        key: String
        value: String

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = tagged(0, "0+", default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = tagged(1, "0+", factory=list)
    stored_description_topology_epoch: Int32 = tagged(2, "0+", default=-1)
    failed_description_topology_epoch: Int32 = tagged(3, "0+", default=-1)


class StreamsGroupMemberMetadataKey(GroupKey, key=19, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class StreamsGroupMemberMetadataValue(GroupValue, key=19, versions="0", flexible="0+"):
    """What a member is and runs on."""

    class Endpoint(Struct):
        """Where the client answers interactive queries."""

        host: String
        port: Uint16

    class KeyValue(Struct):
        """A tag of the client."""

        key: String
        value: String

    instance_id: NullableString
    rack_id: NullableString
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = -1
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


class StreamsGroupTargetAssignmentMetadataKey(GroupKey, key=20, versions="0"):
    """A group."""

    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(GroupValue, key=20, versions="0", flexible="0+"):
    """The epoch of the group that the target was made for, and when (KIP-1263, Kafka 4.3; 0 where that is unknown)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, "0+", default=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(GroupKey, key=21, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValue(GroupValue, key=21, versions="0", flexible="0+"):
    """The tasks that the member is to have."""

    class TaskIds(Struct):
        """Tasks of one subtopology."""

        subtopology_id: String
        partitions: list[Int32]

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class StreamsGroupCurrentMemberAssignmentKey(GroupKey, key=22, versions="0"):
    """A member of a group."""

    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValue(GroupValue, key=22, versions="0", flexible="0+"):
    """The tasks that the member has and those that it must give up.

    `state`: 1 stable, 2 it has tasks to revoke, 3 it waits for tasks of others (Kafka's `MemberState`).
    """

    class TaskIds(Struct):
        """Tasks of one subtopology. `assignment_epochs`: when the member got each active task; fences commits."""

        subtopology_id: String
        partitions: list[Int32]
        assignment_epochs: list[Int32] | None = tagged(0, "0+", factory=list)

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]
    active_tasks_pending_revocation: list[TaskIds]
    standby_tasks_pending_revocation: list[TaskIds]
    warmup_tasks_pending_revocation: list[TaskIds]


class StreamsGroupTopologyKey(GroupKey, key=23, versions="0"):
    """A group."""

    group_id: String


class StreamsGroupTopologyValue(GroupValue, key=23, versions="0", flexible="0+"):
    """The topology as the first member of its epoch sent it."""

    class TopicConfig(Struct):
        """A configuration of an internal topic."""

        key: String
        value: String

    class TopicInfo(Struct):
        """An internal topic. 0 partitions: not fixed, always so for changelogs; replication factor 0: the default."""

        name: String
        partitions: Int32
        replication_factor: Int16
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig]

    class CopartitionGroup(Struct):
        """Topics that must have the same number of partitions, as indexes into the lists of the subtopology."""

        source_topics: list[Int16]
        source_topic_regex: list[Int16]
        repartition_source_topics: list[Int16]

    class Subtopology(Struct):
        """A part of the topology, of which each partition is a task."""

        subtopology_id: String
        source_topics: list[String]
        source_topic_regex: list[String]
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo]
        repartition_sink_topics: list[String]
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo]
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup]

    epoch: Int32
    subtopologies: list[Subtopology]
