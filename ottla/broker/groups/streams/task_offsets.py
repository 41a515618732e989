"""The changelog offsets of a member's tasks, as its heartbeats report them: the sums over the changelogs of each task.

Soft state. The assignor prefers members with much state, and descriptions show how far a member has still to restore.
Source: Kafka's `MemberTaskOffsets`; unlike there, tasks that the topology does not have are left out, so that a client
cannot fill the memory with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

OffsetsOfTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""Offsets by partition, by subtopology."""
NO_OFFSETS: OffsetsOfTasks = {}


class TaskOffsets(NamedTuple):
    """The offsets that a member has reached in the changelogs of its tasks, and the ends of these changelogs."""

    offsets: OffsetsOfTasks = NO_OFFSETS
    end_offsets: OffsetsOfTasks = NO_OFFSETS

    def updated_by(
        self, request: StreamsGroupHeartbeatRequest, subtopologies: Mapping[str, ConfiguredSubtopology]
    ) -> TaskOffsets:
        """The offsets after a heartbeat; null lists did not change. Raises KafkaError INVALID_REQUEST for a task that
        is listed twice.
        """
        offsets, ends = request.task_offsets, request.task_end_offsets
        return TaskOffsets(
            self.offsets if offsets is None else _by_task(offsets, subtopologies),
            self.end_offsets if ends is None else _by_task(ends, subtopologies),
        )


NO_TASK_OFFSETS = TaskOffsets()


def _by_task(
    listed: Iterable[StreamsGroupHeartbeatRequest.TaskOffset], subtopologies: Mapping[str, ConfiguredSubtopology]
) -> OffsetsOfTasks:
    seen: set[tuple[str, int]] = set()
    kept: dict[str, dict[int, int]] = {}
    for one in listed:
        task = one.subtopology_id, one.partition
        if task in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition "
                f"{one.partition}.",
            )
        seen.add(task)
        subtopology = subtopologies.get(one.subtopology_id)
        if subtopology is not None and 0 <= one.partition < subtopology.task_count:
            kept.setdefault(one.subtopology_id, {})[one.partition] = one.offset
    return kept
