"""DescribeLogDirs (key 35), versions 0-5: the log directories, the logs in them, and the free space.

Null topics ask for all; partitions that are not in a directory are left out of it, as in Kafka. A directory that has
failed is KAFKA_STORAGE_ERROR. A cordoned one takes no new partitions (`cordoned.log.dirs`, KIP-1066). The lag of a log
to itself is 0. `__cluster_metadata` is not a topic and not listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.storage.directories.log_directory import LogDirectory

UNKNOWN_BYTES = -1
"""Used where the size of the volume is not known."""

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.CLUSTER),)
CHUNKS = ()


Response = DescribeLogDirsResponse


def handle(
    request: DescribeLogDirsRequest, context: Context
) -> DescribeLogDirsResponse | Pending[DescribeLogDirsResponse]:
    """Answer immediately if there are few partitions."""
    named: dict[str, set[int]] = {}
    for topic in request.topics or ():
        named.setdefault(topic.topic, set()).update(topic.partitions)
    return context.in_steps(_describe_all(None if request.topics is None else named, context))


def _describe_all(wanted: dict[str, set[int]] | None, context: Context) -> Steps[DescribeLogDirsResponse]:
    pace = Pace()
    results = []
    for directory in context.services.log_manager.directories:
        results.append((yield from _describe(directory, wanted, context, pace)))
    return DescribeLogDirsResponse(results=results)


def _describe(
    directory: LogDirectory, wanted: dict[str, set[int]] | None, context: Context, pace: Pace
) -> Steps[Response.DescribeLogDirsResult]:
    path = directory.path.absolute()
    if directory.is_offline:
        return Response.DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(path), topics=[], is_cordoned=directory.is_cordoned
        )
    volume = context.services.files.volume_bytes(path)
    total_bytes, usable_bytes = (UNKNOWN_BYTES, UNKNOWN_BYTES) if volume is None else volume
    topics: list[Response.DescribeLogDirsTopic] = []
    directory_of = context.services.log_manager.directory_of
    for topic in list(context.services.catalog.topics.values()):
        if wanted is not None and topic.name not in wanted:
            continue
        here = [
            partition
            for partition in topic.partitions
            if partition is not None
            and (wanted is None or partition.index in wanted[topic.name])
            and directory_of(topic.name, partition.index) is directory
        ]
        partitions = yield from pace.made(_partition, here)
        if partitions:
            topics.append(Response.DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    return Response.DescribeLogDirsResult(
        log_dir=str(path),
        topics=topics,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=directory.is_cordoned,
    )


def _partition(partition: Partition) -> Response.DescribeLogDirsPartition:
    return Response.DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size_bytes,
        offset_lag=0,
        is_future_key=False,
    )
