"""Produce (key 0), versions 0-13: append records to partitions.

One request has batches for many partitions; each partition has its own error code in the response. With ``acks=0``
there is no response at all. From version 3 on a partition's records are exactly one batch of format v2, before that a
set of messages of format v0 or v1.

Versions: 1 adds the throttle time, 2 the log append time and messages v1 (KIP-32), 3 the transactional id and batches
v2 (KIP-98) · 4 may answer KAFKA_STORAGE_ERROR · 5 adds the log start offset to the response · 7 allows zstd · 8 names
the refused records (KIP-467) · 9 is flexible · 10 has the new leader in tagged fields (KIP-951) · 11 may answer
TRANSACTION_ABORTABLE, 12 adds partitions to the transaction implicitly (KIP-890) · 13 names topics by id (KIP-516).

Versions 0-2 ended with Apache Kafka 4.0 (KIP-896), which still advertises them but refuses them (KAFKA-18659).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since, tagged
from ottla.protocol.types import ZERO_UUID, Int16, Int32, Int64, NullableString, Records, String, Uuid


class ProduceRequest(Request, key=0, versions="0-13", flexible="9+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """Records to append. `acks` is -1 (all), 0 or 1; `timeout_ms` limits the wait for replicas."""

    class PartitionProduceData(Struct):
        """The records for one partition; `records` is a view into the frame, not a copy."""

        index: Int32
        records: Records

    class TopicProduceData(Struct):
        """The records for one topic, named by `name` up to version 12 and by `topic_id` after."""

        name: String = ranged("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData]

    transactional_id: NullableString = since("3+", default=None)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]


class ProduceResponse(Response, key=0, versions="0-13", flexible="9+"):
    """The offsets of the batches, or the errors. `throttle_time_ms` is the time for which the client should pause."""

    class BatchIndexAndErrorMessage(Struct):
        """A record that caused the refusal, by its index in the batch."""

        batch_index: Int32
        batch_index_error_message: NullableString = None

    class LeaderIdAndEpoch(Struct):
        """The leader to which the client should send the request instead."""

        leader_id: Int32 = -1
        leader_epoch: Int32 = -1

    class PartitionProduceResponse(Struct):
        """The result for one partition.

        `base_offset` is -1 on error; `log_append_time_ms` is -1 unless the topic stamps records with the append time.
        """

        index: Int32
        error_code: Int16 = 0
        base_offset: Int64
        log_append_time_ms: Int64 = since("2+", default=-1, ignorable=True)
        log_start_offset: Int64 = since("5+", default=-1, ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = since("8+", factory=list, ignorable=True)
        error_message: NullableString = since("8+", default=None, ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch | None = tagged(0, "10+", default=None)

    class TopicProduceResponse(Struct):
        """The results for one topic, named as in the request."""

        name: String = ranged("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse]

    class NodeEndpoint(Struct):
        """The address of a leader named above."""

        node_id: Int32
        host: String
        port: Int32
        rack: NullableString = None

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = tagged(0, "10+", factory=list)


def refused(request: ProduceRequest, version: int, code: ErrorCode, message: str) -> ProduceResponse | None:
    """Refuse every partition of the request; None for acks=0, which is never answered."""
    if request.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=-1, error_message=message
                    )
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )
