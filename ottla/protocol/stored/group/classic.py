"""Records of `__consumer_offsets` about groups of the classic protocol."""

from __future__ import annotations

from ottla.protocol.message import Struct, since
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.types import Bytes, Int32, Int64, NullableString, String


class GroupMetadataKey(GroupKey, key=2, versions="0"):
    """A group."""

    group: String


class GroupMetadataValue(GroupValue, key=2, versions="0-4", flexible="4+", written=3):
    """A generation of the group: all of its members, with their subscriptions and assignments.

    `protocol` and `leader` are null in an empty group. Kafka 4.1 writes version 3.
    """

    class MemberMetadata(Struct):
        """A member; timeouts are in ms, subscription and assignment in the bytes of the protocol."""

        member_id: String
        group_instance_id: NullableString = since("3+", default=None, ignorable=True)
        client_id: String
        client_host: String
        rebalance_timeout: Int32 = since("1+", default=-1, ignorable=True)
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes

    protocol_type: String
    generation: Int32
    protocol: NullableString
    leader: NullableString
    current_state_timestamp: Int64 = since("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]
