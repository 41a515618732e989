"""AlterReplicaLogDirs (key 34), versions 1-2: move partitions to another log directory.

A partition that is already in the directory succeeds, as in Kafka. Moving one is not supported: it is
INVALID_REPLICA_ASSIGNMENT, so that no client waits for it (a difference; `docs/deviations.md`). A path that does not
match one of `log.dirs` exactly is LOG_DIR_NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = ()


def handle(request: AlterReplicaLogDirsRequest, context: Context) -> AlterReplicaLogDirsResponse:
    """Answer immediately. If a partition is named for several directories, the last one counts, as in Kafka."""
    codes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                codes.setdefault(topic.name, {})[index] = _code(directory.path, topic.name, index, context)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=code
                    )
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in codes.items()
        ]
    )


def _code(path: str, topic: str, index: int, context: Context) -> ErrorCode:
    manager = context.services.log_manager
    wanted = next((one for one in manager.directories if str(one.path.absolute()) == path), None)
    if wanted is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not wanted.is_online:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if context.services.catalog.partition(topic, index) is None:
        return context.services.catalog.why_missing(topic, index)
    if manager.directory_of(topic, index) is wanted:
        return ErrorCode.NONE
    return ErrorCode.INVALID_REPLICA_ASSIGNMENT
