"""ListPartitionReassignments (key 46), version 0: the partitions that are moving between brokers (KIP-455)."""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, NullableString, String


class ListPartitionReassignmentsRequest(
    Request, key=46, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The partitions; null for all."""

    class ListPartitionReassignmentsTopics(Struct):
        """A topic's partitions."""

        name: String
        partition_indexes: list[Int32]

    timeout_ms: Int32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    """The partitions that are moving; all others are left out."""

    class OngoingPartitionReassignment(Struct):
        """A partition: its current brokers, those that are added, and those that are removed."""

        partition_index: Int32
        replicas: list[Int32]
        adding_replicas: list[Int32]
        removing_replicas: list[Int32]

    class OngoingTopicReassignment(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    topics: list[OngoingTopicReassignment]


def refused(
    request: ListPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str
) -> ListPartitionReassignmentsResponse:
    """Refuse the request, naming its partitions with nothing in them, as Kafka does."""
    return ListPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        topics=[
            ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                        partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )
