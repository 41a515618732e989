"""WriteTxnMarkers (key 27), versions 1-2: end transactions in partitions, whatever state the coordinator has of them.

Brokers of a Kafka cluster send it to each other. Here administrators send it, to end transactions that would otherwise
stay open (`kafka-transactions abort`, KIP-664). Each partition is answered when its marker is visible. A marker with a
negative number is INVALID_REQUEST; Kafka fails with an UNKNOWN_SERVER_ERROR for all.

From version 2 on a marker has the `transaction.version` of its transaction. From level 2 on the end of a transaction
has a higher epoch than its records (KIP-890), so a marker of the same epoch is a late one of an earlier transaction: it
is INVALID_PRODUCER_EPOCH while a transaction is open (KIP-1228).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions.machine import ProducerIdAndEpoch
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.context import Context

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult

NO_EPOCH = -1
"""The epoch of a coordinator that the administrator does not know."""
FIRST_VERSION_THAT_BUMPS_EPOCHS = 2
"""The level of `transaction.version` from which on the end of a transaction has the next epoch."""
NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER, unless=(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)),)
CHUNKS = (Chunks(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),)


def handle(request: WriteTxnMarkersRequest, context: Context) -> Pending[WriteTxnMarkersResponse]:
    """Write each marker to each of its partitions."""
    pending: Pending[WriteTxnMarkersResponse] = Pending()
    response = WriteTxnMarkersResponse(markers=[])
    missing = 1

    def one_done() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            pending.complete(response)

    def waits_for(result: PartitionResult) -> Callable[[BaseException | None], None]:
        def done(error: BaseException | None) -> None:
            result.error_code = _code(error)
            one_done()

        return done

    transactions = context.services.transactions.get()
    for marker in request.markers:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        answered = Result(producer_id=marker.producer_id, topics=[])
        response.markers.append(answered)
        is_possible = (
            producer.producer_id >= 0
            and producer.epoch >= 0
            and marker.coordinator_epoch >= NO_EPOCH
            and marker.transaction_version >= 0
        )
        for topic in marker.topics:
            results = [PartitionResult(partition_index=index) for index in topic.partition_indexes]
            answered.topics.append(TopicResult(name=topic.name, partitions=results))
            for result in results:
                if not is_possible:
                    result.error_code = ErrorCode.INVALID_REQUEST
                    continue
                missing += 1
                transactions.write_marker(
                    (topic.name, result.partition_index),
                    producer,
                    is_commit=marker.transaction_result,
                    coordinator_epoch=marker.coordinator_epoch,
                    done=waits_for(result),
                    bumps_epoch=marker.transaction_version >= FIRST_VERSION_THAT_BUMPS_EPOCHS,
                )
    one_done()
    return pending


def _code(error: BaseException | None) -> ErrorCode:
    if error is None:
        return ErrorCode.NONE
    if not isinstance(error, KafkaError):
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error.code in NOT_READY else error.code
