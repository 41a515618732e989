"""DeleteRecords (key 21), versions 0-2: move the start of partitions forward.

Offset -1 means up to the high watermark. Version 2 is flexible, otherwise all are the same.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, Int64, String


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    """The offsets before which records are deleted; `timeout_ms` limits the wait."""

    class DeleteRecordsPartition(Struct):
        """One partition; records before `offset` are deleted."""

        partition_index: Int32
        offset: Int64

    class DeleteRecordsTopic(Struct):
        """The partitions of one topic."""

        name: String
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    """The new log start offsets of the partitions."""

    class DeleteRecordsPartitionResult(Struct):
        """One partition; `low_watermark` is -1 on error."""

        partition_index: Int32
        low_watermark: Int64
        error_code: Int16 = 0

    class DeleteRecordsTopicResult(Struct):
        """The partitions of one topic."""

        name: String
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


def refused(request: DeleteRecordsRequest, version: int, code: ErrorCode, message: str) -> DeleteRecordsResponse:
    """Refuse every partition of the request."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsResponse.DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=-1, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
