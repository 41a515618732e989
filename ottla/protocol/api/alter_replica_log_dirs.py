"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas from one log directory to another.

Versions: 2 is flexible. Version 0 ended with Apache Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, String


class AlterReplicaLogDirsRequest(
    Request, key=34, versions="1-2", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The directories, each with the partitions to move there."""

    class AlterReplicaLogDirTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[Int32]

    class AlterReplicaLogDir(Struct):
        """A directory, by its absolute path."""

        path: String
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]

    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    """The result for each partition."""

    class AlterReplicaLogDirPartitionResult(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0

    class AlterReplicaLogDirTopicResult(Struct):
        """A topic's partitions."""

        topic_name: String
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]


def refused(
    request: AlterReplicaLogDirsRequest, version: int, code: ErrorCode, message: str
) -> AlterReplicaLogDirsResponse:
    """Refuse every partition of the request."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )
