"""The plan of `ottla groups reset`: the offsets at which a group will continue. Pure.

As in Kafka's `kafka-consumer-groups --reset-offsets`, an offset outside of the log means the nearest one in it, and a
time after the last record means the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.client import OffsetAndMetadata, TopicPartition
    from ottla.diagnosis.group_facts import Edges


class ResetTo(NamedTuple):
    """The position that the options name: exactly one of these is set."""

    is_earliest: bool = False
    is_latest: bool = False
    is_current: bool = False
    offset: int | None = None
    timestamp_ms: int | None = None
    shift_by: int | None = None

    @property
    def choices(self) -> int:
        """How many of them are set."""
        chosen = (self.is_earliest, self.is_latest, self.is_current)
        given = (self.offset, self.timestamp_ms, self.shift_by)
        return sum(chosen) + sum(one is not None for one in given)


class Reset(NamedTuple):
    """One partition: the committed offset and the new one. `remark`: why that is not the requested one."""

    committed: int | None
    offset: int
    end: int
    remark: str = ""


def plan_reset(
    wanted: ResetTo,
    edges: Mapping[TopicPartition, Edges],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    at_time: Mapping[TopicPartition, int | None],
) -> tuple[dict[TopicPartition, Reset], list[TopicPartition]]:
    """Return the plan, and the partitions without one: no offset is committed that could be kept or shifted.

    `at_time` has the offset of the first record at the requested time, None if there is none.
    """
    plan: dict[TopicPartition, Reset] = {}
    without: list[TopicPartition] = []
    for partition, (start, _, end) in sorted(edges.items()):
        now = committed[partition].offset if partition in committed else None
        if now is None and (wanted.is_current or wanted.shift_by is not None):
            without.append(partition)
            continue
        asked = _asked_for(wanted, start, end, now, at_time.get(partition))
        offset = min(max(asked, start), end)
        where = "past the end" if asked > end else "before the first offset" if asked < 0 else "deleted"
        remark = "" if offset == asked else f"{asked:,} is {where}"
        plan[partition] = Reset(now, offset, end, remark)
    return plan, without


def _asked_for(wanted: ResetTo, start: int, end: int, now: int | None, at_time: int | None) -> int:
    if wanted.is_earliest:
        return start
    if wanted.offset is not None:
        return wanted.offset
    if wanted.timestamp_ms is not None:
        return end if at_time is None else at_time
    if now is not None and (wanted.is_current or wanted.shift_by is not None):
        return now + (wanted.shift_by or 0)
    return end
