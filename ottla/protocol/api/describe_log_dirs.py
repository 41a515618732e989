"""DescribeLogDirs (key 35), versions 0-5: the log directories, the logs in them, and the free space.

Versions: 1 equals 0 · 2 is flexible · 3 has an error code at the top (KIP-784) · 4 the bytes of the volume (KIP-827) ·
5 whether the directory takes no new partitions (KIP-1066).
Version 0 ended with Apache Kafka 4.0; the AdminClients of 1.0 and 1.1 have no other.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int16, Int32, Int64, String


class DescribeLogDirsRequest(Request, key=35, versions="0-5", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The partitions to describe; null for all."""

    class DescribableLogDirTopic(Struct):
        """A topic's partitions."""

        topic: String
        partitions: list[Int32]

    topics: list[DescribableLogDirTopic] | None


class DescribeLogDirsResponse(Response, key=35, versions="0-5", flexible="2+"):
    """The directories."""

    class DescribeLogDirsPartition(Struct):
        """A log: its size in bytes, and how far it lags behind (a future log: behind the current one)."""

        partition_index: Int32
        partition_size: Int64
        offset_lag: Int64
        is_future_key: Bool

    class DescribeLogDirsTopic(Struct):
        """A topic's logs."""

        name: String
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]

    class DescribeLogDirsResult(Struct):
        """A directory; total and usable bytes are those of its volume, -1 if unknown."""

        error_code: Int16 = 0
        log_dir: String
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: Int64 = since("4+", default=-1, ignorable=True)
        usable_bytes: Int64 = since("4+", default=-1, ignorable=True)
        is_cordoned: Bool = since("5+", default=False, ignorable=True)

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


def refused(request: DescribeLogDirsRequest, version: int, code: ErrorCode, message: str) -> DescribeLogDirsResponse:
    """Refuse the request."""
    return DescribeLogDirsResponse(error_code=code, results=[])
