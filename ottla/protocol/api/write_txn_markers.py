"""WriteTxnMarkers (key 27), versions 1-2: the markers that end transactions, for their partitions.

In Kafka a coordinator sends it to the leaders of partitions. To Ottla an administrator sends it, to end a transaction
that no coordinator knows (`kafka-transactions abort`, KIP-664). Version 0 ended with Apache Kafka 4.0 and no tool used
it. Versions: 2 has the `transaction.version` of the transaction (KIP-1228).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, String


class WriteTxnMarkersRequest(Request, key=27, versions="1-2", flexible="1+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The markers."""

    class WritableTxnMarkerTopic(Struct):
        """A topic's partitions."""

        name: String
        partition_indexes: list[Int32]

    class WritableTxnMarker(Struct):
        """A producer's transaction; `transaction_result` is true for COMMIT and false for ABORT."""

        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = since("2+", default=0, ignorable=True)

    markers: list[WritableTxnMarker]


class WriteTxnMarkersResponse(Response, key=27, versions="1-2", flexible="1+"):
    """An error code for each partition."""

    class WritableTxnMarkerPartitionResult(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0

    class WritableTxnMarkerTopicResult(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]

    class WritableTxnMarkerResult(Struct):
        """A marker's partitions."""

        producer_id: Int64
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]

    markers: list[WritableTxnMarkerResult]


def refused(request: WriteTxnMarkersRequest, version: int, code: ErrorCode, message: str) -> WriteTxnMarkersResponse:
    """Refuse every partition of every marker."""
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
