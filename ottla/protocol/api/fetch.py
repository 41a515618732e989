"""Fetch (key 1), versions 0-18: read record batches from partitions.

The broker waits up to `max_wait_ms` for `min_bytes`. Limits are soft: the first batch of the first partition that has
any is returned whole even if it is larger (KIP-74). Batches are returned as they are stored, so the first one may begin
before the requested offset.

Versions: 1 adds the throttle time, 2 messages of format v1 (KIP-32), 3 a limit for the whole response (KIP-74) · 4
batches v2, the isolation level and aborted transactions (KIP-98) · 5 the log start offset · 7 fetch sessions
(KIP-227) · 9 the current leader epoch (KIP-320) · 10 allows zstd · 11 the rack and preferred replica (KIP-392) · 12 is
flexible, detects diverging logs and has the leader (KIP-595) · 13 names topics by id (KIP-516) · 14 tiered storage's
error · 15 the replica state (KIP-903) · 16 node endpoints (KIP-951) · 17 replica directory ids (KIP-853) · 18 the
follower's high watermark (KIP-1166).

Below version 4 records are sent as messages of format v1, below version 2 of v0. Versions 0-3 ended with Apache Kafka
4.0 (KIP-896).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since, tagged
from ottla.protocol.types import ZERO_UUID, Int8, Int16, Int32, Int64, NullableString, Records, String, Uuid


class FetchRequest(Request, key=1, versions="0-18", flexible="12+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The partitions to read. `session_id` 0 with `session_epoch` 0 requests a new session, with -1 none (KIP-227).

    Consumers have `replica_id` -1. `isolation_level` is 0 (read uncommitted) or 1 (read committed).
    """

    class ReplicaState(Struct):
        """The follower that sends the request; absent for consumers."""

        replica_id: Int32 = -1
        replica_epoch: Int64 = -1

    class FetchPartition(Struct):
        """The offset to read from in one partition.

        `current_leader_epoch` and `last_fetched_epoch` are -1 if the client does not know them.
        """

        partition: Int32
        current_leader_epoch: Int32 = since("9+", default=-1, ignorable=True)
        fetch_offset: Int64
        last_fetched_epoch: Int32 = since("12+", default=-1)
        log_start_offset: Int64 = since("5+", default=-1, ignorable=True)
        partition_max_bytes: Int32
        replica_directory_id: Uuid = tagged(0, "17+", default=ZERO_UUID, ignorable=True)
        high_watermark: Int64 = tagged(1, "18+", default=0x7FFF_FFFF_FFFF_FFFF, ignorable=True)

    class FetchTopic(Struct):
        """The partitions to read of one topic, named by `topic` up to version 12 and by `topic_id` after."""

        topic: String = ranged("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchRequest.FetchPartition]

    class ForgottenTopic(Struct):
        """Partitions to remove from the session."""

        topic: String = ranged("7-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[Int32]

    cluster_id: NullableString = tagged(0, "12+", default=None, ignorable=True)
    replica_id: Int32 = ranged("0-14", default=-1)
    replica_state: ReplicaState | None = tagged(1, "15+", default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = since("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: Int8 = since("4+", default=0, ignorable=True)
    session_id: Int32 = since("7+", default=0, ignorable=True)
    session_epoch: Int32 = since("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since("7+", factory=list)
    rack_id: String = since("11+", default="", ignorable=True)


class FetchResponse(Response, key=1, versions="0-18", flexible="12+"):
    """The records that were read. The `error_code` at the top (version 7 and later) is the session's."""

    class EpochEndOffset(Struct):
        """The point at which the client's log diverges from the leader's: the largest common epoch, and its end."""

        epoch: Int32 = -1
        end_offset: Int64 = -1

    class LeaderIdAndEpoch(Struct):
        """The leader to which the client should send the request instead."""

        leader_id: Int32 = -1
        leader_epoch: Int32 = -1

    class SnapshotId(Struct):
        """For the metadata log only: fetch this snapshot instead, the offset is no longer there."""

        end_offset: Int64 = -1
        epoch: Int32 = -1

    class AbortedTransaction(Struct):
        """From `first_offset` on, this producer's records belong to an aborted transaction."""

        producer_id: Int64
        first_offset: Int64

    class PartitionData(Struct):
        """The records of one partition.

        Without records, `records` must have zero bytes and not be null (librdkafka refuses null from version 12 on).
        `aborted_transactions` is null unless the isolation level is read committed.
        """

        partition_index: Int32
        error_code: Int16 = 0
        high_watermark: Int64
        last_stable_offset: Int64 = since("4+", default=-1, ignorable=True)
        log_start_offset: Int64 = since("5+", default=-1, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset | None = tagged(0, "12+", default=None)
        current_leader: FetchResponse.LeaderIdAndEpoch | None = tagged(1, "12+", default=None)
        snapshot_id: FetchResponse.SnapshotId | None = tagged(2, "12+", default=None)
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = since("4+", default=None, ignorable=True)
        preferred_read_replica: Int32 = since("11+", default=-1)
        records: Records

    class FetchableTopicResponse(Struct):
        """The partitions of one topic, named as in the request."""

        topic: String = ranged("0-12", default="", ignorable=True)
        topic_id: Uuid = since("13+", default=ZERO_UUID, ignorable=True)
        partitions: list[FetchResponse.PartitionData]

    class NodeEndpoint(Struct):
        """The address of a leader named above."""

        node_id: Int32
        host: String
        port: Int32
        rack: NullableString = None

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    error_code: Int16 = since("7+", default=0, ignorable=True)
    session_id: Int32 = since("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, "16+", factory=list)


def refused(request: FetchRequest, version: int, code: ErrorCode, message: str) -> FetchResponse:
    """Refuse the session from version 7 on, naming no partition; before it, every partition of the request."""
    if version >= 7:
        return FetchResponse(error_code=code, responses=[])
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
