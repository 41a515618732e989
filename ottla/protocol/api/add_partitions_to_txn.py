"""AddPartitionsToTxn (key 24), versions 0-5: partitions that a transaction is going to write to.

Up to version 3 a producer names its own transaction. From version 4 on a broker names several transactions. It adds
partitions, or only asks whether they were added (`verify_only`). The response is grouped by transactional id (KIP-890).

Versions: 2 may answer PRODUCER_FENCED · 3 is flexible · 4 is for brokers · 5 may answer TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Bool, Int16, Int32, Int64, String


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The partitions of one transaction (0-3), or of several (4 and later)."""

    class AddPartitionsToTxnTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[Int32]

    class AddPartitionsToTxnTransaction(Struct):
        """A transaction; with `verify_only` nothing is added."""

        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]

    transactions: list[AddPartitionsToTxnTransaction] = since("4+", factory=list)
    v3_and_below_transactional_id: String = ranged("0-3", default="")
    v3_and_below_producer_id: Int64 = ranged("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = ranged("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = ranged("0-3", factory=list)


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    """An error code for each partition, and from version 4 on one at the top for the whole request."""

    class AddPartitionsToTxnPartitionResult(Struct):
        """One partition."""

        partition_index: Int32
        partition_error_code: Int16 = 0

    class AddPartitionsToTxnTopicResult(Struct):
        """A topic's partitions."""

        name: String
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]

    class AddPartitionsToTxnResult(Struct):
        """A transaction's partitions."""

        transactional_id: String
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = since("4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = ranged("0-3", factory=list)


def refused(
    request: AddPartitionsToTxnRequest, version: int, code: ErrorCode, message: str
) -> AddPartitionsToTxnResponse:
    """Refuse the request; up to version 3, every partition of it."""
    if version > 3:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topic_results(request.v3_and_below_topics, code))


def topic_results(
    topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]:
    """The same code for every partition of these topics: a transaction is accepted or refused as a whole."""
    return [
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
