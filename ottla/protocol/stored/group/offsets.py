"""Records of `__consumer_offsets` about committed offsets.

Times are in ms since 1970.
"""

from __future__ import annotations

from ottla.protocol.message import ranged, since, tagged
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.types import ZERO_UUID, Int32, Int64, String, Uuid


class OffsetCommitKey(GroupKey, key=1, versions="0"):
    """The group and the partition of an offset. Kafka before 0.9 wrote type 0 with the same fields."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(GroupValue, key=1, versions="0-4", flexible="4+", written=4):
    """The committed offset of the group: that of the next record to read.

    Kafka 4.1 writes version 4, and version 1 if an expiry was requested (`expire_timestamp`, OffsetCommit 2-4).
    """

    offset: Int64
    leader_epoch: Int32 = since("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = ranged("1", default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, "4+", default=ZERO_UUID, ignorable=True)
