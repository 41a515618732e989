"""DescribeQuorum (key 55), versions 0-2: the replicas of the metadata log, and the end offset of each (KIP-595).

Versions: 1 has the times of the last fetch (KIP-836) · 2 directory ids, addresses and messages (KIP-853).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import ZERO_UUID, Int16, Int32, Int64, NullableString, String, Uint16, Uuid


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The partitions to describe; there is only `__cluster_metadata-0`."""

    class PartitionData(Struct):
        """One partition."""

        partition_index: Int32

    class TopicData(Struct):
        """A topic's partitions."""

        topic_name: String
        partitions: list[DescribeQuorumRequest.PartitionData]

    topics: list[TopicData]


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    """The partitions, and the nodes that are voters."""

    class ReplicaState(Struct):
        """A replica; times are in ms since 1970, -1 if unknown."""

        replica_id: Int32
        replica_directory_id: Uuid = since("2+", default=ZERO_UUID)
        log_end_offset: Int64
        last_fetch_timestamp: Int64 = since("1+", default=-1, ignorable=True)
        last_caught_up_timestamp: Int64 = since("1+", default=-1, ignorable=True)

    class PartitionData(Struct):
        """A partition: its leader, and its replicas."""

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = since("2+", default=None, ignorable=True)
        leader_id: Int32
        leader_epoch: Int32
        high_watermark: Int64
        current_voters: list[DescribeQuorumResponse.ReplicaState]
        observers: list[DescribeQuorumResponse.ReplicaState]

    class TopicData(Struct):
        """A topic's partitions."""

        topic_name: String
        partitions: list[DescribeQuorumResponse.PartitionData]

    class Listener(Struct):
        """An address, named by its listener."""

        name: String
        host: String
        port: Uint16

    class Node(Struct):
        """A node and its addresses."""

        node_id: Int32
        listeners: list[DescribeQuorumResponse.Listener]

    error_code: Int16 = 0
    error_message: NullableString = since("2+", default=None, ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = since("2+", factory=list)


def refused(request: DescribeQuorumRequest, version: int, code: ErrorCode, message: str) -> DescribeQuorumResponse:
    """Refuse the request."""
    return DescribeQuorumResponse(error_code=code, error_message=message, topics=[])
