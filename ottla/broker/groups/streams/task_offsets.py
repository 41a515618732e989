"""The changelog offsets of a member's tasks, as its heartbeats report them: the sums over the changelogs of each task.

Soft state, for descriptions: it shows how far a member has still to restore. Source: Kafka's `MemberTaskOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.protocol.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest

OffsetsOfTasks: TypeAlias = Mapping[tuple[str, int], int]
"""Offsets by subtopology and partition."""
NO_OFFSETS: OffsetsOfTasks = {}


class TaskOffsets(NamedTuple):
    """The offsets that a member has reached in the changelogs of its tasks, and the ends of these changelogs."""

    offsets: OffsetsOfTasks = NO_OFFSETS
    end_offsets: OffsetsOfTasks = NO_OFFSETS

    def updated_by(self, request: StreamsGroupHeartbeatRequest) -> TaskOffsets:
        """The offsets after a heartbeat; null lists did not change. Raises KafkaError INVALID_REQUEST."""
        return TaskOffsets(
            self.offsets if request.task_offsets is None else _by_task(request.task_offsets),
            self.end_offsets if request.task_end_offsets is None else _by_task(request.task_end_offsets),
        )


def _by_task(listed: Iterable[StreamsGroupHeartbeatRequest.TaskOffset]) -> OffsetsOfTasks:
    offsets: dict[tuple[str, int], int] = {}
    for one in listed:
        task = one.subtopology_id, one.partition
        if task in offsets:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {one.subtopology_id} and partition "
                f"{one.partition}.",
            )
        offsets[task] = one.offset
    return offsets
