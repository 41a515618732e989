"""ElectLeaders (key 43), versions 0-2: give partitions another leader.

Versions: 1 can ask for an unclean election (KIP-460) · 2 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """The partitions, null for all. `election_type`: 0 the preferred leader, 1 any replica."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic: String
        partitions: list[Int32]

    election_type: Int8 = since("1+", default=0)
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: Int32 = 60000


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """The result for each partition."""

    class PartitionResult(Struct):
        """One partition."""

        partition_id: Int32
        error_code: Int16 = 0
        error_message: NullableString = None

    class ReplicaElectionResult(Struct):
        """A topic's partitions."""

        topic: String
        partition_result: list[ElectLeadersResponse.PartitionResult]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


def refused(request: ElectLeadersRequest, version: int, code: ErrorCode, message: str) -> ElectLeadersResponse:
    """Refuse every partition of the request, and the request from version 1 on."""
    return ElectLeadersResponse(
        error_code=code if version >= 1 else ErrorCode.NONE,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponse.PartitionResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
