"""Offsets by time, for consumers and admins: ListOffsets to each partition's leader, repeated if the leader moved."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError, is_worth_retrying
from ottla.client.missing_look_ups import NoSuchTopic, most_final
from ottla.client.structs import TopicPartition
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.errors import ErrorCode

LATEST = -1
"""Instead of a timestamp: the end of the log, where the next record will be (for read_committed, of the stable log)."""
EARLIEST = -2
"""Instead of a timestamp: the first offset of the log."""
MAX_TIMESTAMP = -3
"""Instead of a timestamp: the record with the largest timestamp (KIP-734)."""

_FIRST_VERSION_WITH_MAX_TIMESTAMP = 7


class OffsetAndTimestamp(NamedTuple):
    """An offset that was found, the timestamp of its record (-1 if there is none) and its leader epoch (or -1)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    timestamps: Mapping[TopicPartition, int],
    *,
    isolation_level: int = 0,
    timeout_ms: int,
    on_found: Callable[[Mapping[TopicPartition, OffsetAndTimestamp | None]], None] | None = None,
    gives_up: Callable[[KafkaError, float], bool] = lambda error, elapsed_s: False,
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return, per partition, the first record with that timestamp (in ms) or later, None if there is none.

    `LATEST`, `EARLIEST` and `MAX_TIMESTAMP` may be given as a timestamp. `on_found` is called with partial results, so
    that a partition without a reachable leader does not delay the rest. `gives_up`: see `Cluster.retry`.
    Raises the broker's KafkaError; after `timeout_ms` the last one, or ClientTimeout.
    """
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}

    async def attempt() -> None:
        missing = {partition: time for partition, time in timestamps.items() if partition not in found}
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        topics = {partition.topic for partition in missing}
        if any(cluster.leader_of(*partition) < 0 for partition in missing):
            await cluster.refresh(topics)
        failures: list[KafkaError] = []
        for partition, time in missing.items():
            try:
                by_leader[leader_of(cluster, partition)][partition] = time
            except KafkaError as leaderless:
                failures.append(leaderless)
        asked = (_ask_leader(cluster, leader, times, isolation_level) for leader, times in by_leader.items())
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, KafkaError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                found.update(outcome[0])
                if on_found is not None:
                    on_found(outcome[0])
                failures += outcome[1]
        if failures:
            cluster.mark_stale()
            raise next((one for one in failures if not is_worth_retrying(one)), most_final(failures))

    if timestamps:
        await cluster.retry(attempt, timeout_ms, gives_up)
    return {partition: found[partition] for partition in timestamps}


def leader_of(cluster: Cluster, partition: TopicPartition) -> int:
    """Return the leader of a partition; raises KafkaError, which is retried, if there is none or no such partition."""
    leader = cluster.leader_of(*partition)
    if leader >= 0:
        return leader
    known = cluster.topics.get(partition.topic)
    code = ErrorCode.LEADER_NOT_AVAILABLE
    if known is None or known.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoSuchTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition.topic}: there is no such topic")
    if partition.partition not in known.partitions:
        code = known.error if known.error else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    raise KafkaError(code, f"{partition.topic}-{partition.partition}: {code.message}")


async def _ask_leader(
    cluster: Cluster, leader: int, times: Mapping[TopicPartition, int], isolation_level: int
) -> tuple[dict[TopicPartition, OffsetAndTimestamp | None], list[KafkaError]]:
    """Return the offsets that one leader has returned, and its refusals."""
    by_topic: dict[str, list[ListOffsetsRequest.ListOffsetsPartition]] = defaultdict(list)
    for partition, time in times.items():
        question = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition.partition, current_leader_epoch=cluster.epoch_of(*partition), timestamp=time
        )
        by_topic[partition.topic].append(question)
    connection = await cluster.connection(leader)
    version = connection.version_for(ListOffsetsRequest)
    if version < _FIRST_VERSION_WITH_MAX_TIMESTAMP and MAX_TIMESTAMP in times.values():
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker is too old to find the largest timestamp")
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level if version >= 2 else 0,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=asked) for name, asked in by_topic.items()],
        timeout_ms=cluster.options.request_timeout_ms,
    )
    answer = await connection.send(request, ListOffsetsResponse, version)
    found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
    refused: list[KafkaError] = []
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if partition not in times:
                continue
            if entry.error_code:
                code = ErrorCode.of(entry.error_code)
                refused.append(KafkaError(code, f"{topic.name}-{entry.partition_index}: {code.message}"))
            elif entry.offset < 0:
                found[partition] = None
            else:
                found[partition] = OffsetAndTimestamp(entry.offset, entry.timestamp, entry.leader_epoch)
    silent = [partition for partition in times if partition not in found]
    if silent and not refused:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer lacks {silent[0]}")
    return found, refused
