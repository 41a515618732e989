"""Which offsets a stream's next micro-batch has. Pure except for the cluster and the clock that it is given.

A micro-batch leads from one `StreamOffsets` to the next. New partitions are read from offset 0, since `startingOffsets`
is only for partitions that exist when the stream begins. Records that should be read and are missing are data loss: an
error, or with failOnDataLoss=false a warning, and the existing ones are read. A topic deleted or created again, a log
that ends before the stream's position, and retention faster than the stream cause it. Source: Spark's
KafkaMicroBatchStream for the meaning of limits and of losses.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ottla.spark.errors import DataLoss
from ottla.spark.planner import (
    OffsetRange,
    check_coverage,
    first_offsets,
    from_latest,
    is_selected,
    last_offsets,
    log_ends,
    matches,
    present_part,
    select_topics,
    split,
    start_offsets,
)
from ottla.spark.rate_limit import share_out
from ottla.spark.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.spark.options import ReadOptions, TopicPartition
    from ottla.spark.planner import ClusterView, TopicInfo

logger = logging.getLogger(__name__)


class _Planned(NamedTuple):
    """A micro-batch's end, and what the cluster answered when it was planned."""

    end: StreamOffsets
    topics: Mapping[str, TopicInfo]
    lasts: Mapping[TopicPartition, int]


class StreamPlanner:
    """Plans one stream's micro-batches. `monotonic` gives seconds, for `maxTriggerDelay`."""

    def __init__(self, options: ReadOptions, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic
        self._must_end = False
        self._target: StreamOffsets | None = None
        self._initial: StreamOffsets | None = None
        self._held: Mapping[TopicPartition, int] = {}
        """Partitions whose ends are the stream's start, until the first batch is planned."""
        self._last_batch_at: float | None = None
        self._planned: _Planned | None = None
        """The last batch, if the cluster was asked for its end: its ranges, a moment later, need not ask again."""
        self._reported: set[str] = set()
        """Losses that were logged since the last batch: one that waits for more records is planned again and again."""
        self.newest: StreamOffsets | None = None
        """The ends of the logs at the last request."""

    def initial(self, cluster: ClusterView) -> StreamOffsets:
        """Return the start of a new stream. Raises OptionError or DataLoss when the options do not fit the topics.

        Spark asks twice in the first batch, for its end and for its ranges. Both answers are the same.
        """
        if self._initial is None:
            self._initial = self._find_initial(cluster)
        return self._initial

    def _find_initial(self, cluster: ClusterView) -> StreamOffsets:
        options = self._options
        topics = select_topics(options, cluster)
        partitions = _partitions(topics)
        check_coverage(options.starting, partitions)
        firsts = first_offsets(cluster, partitions)
        found = matches(options.starting, cluster, partitions)
        lasts = last_offsets(cluster, partitions)
        starts = start_offsets(options, found, firsts, lasts)
        lasts = log_ends(cluster, lasts, starts, options)
        positions = {}
        for place in partitions:
            # An empty range is checked like any other: a start outside of the log is reported before anything is read.
            wanted = OffsetRange(place[0], topics[place[0]].topic_id, place[1], starts[place], starts[place])
            positions[place] = present_part(wanted, firsts[place], lasts[place], options).start
        self._held = {place: positions[place] for place in from_latest(options, found, partitions)}
        return StreamOffsets(positions, _ids(topics))

    def stop_at_present_end(self) -> None:
        """Let the stream end at the ends of the logs when its next batch is planned (Trigger.AvailableNow).

        Not at their present ends: Spark calls `initial` after this, and that start must not be after the end.
        """
        self._must_end = True

    def next_end(
        self, start: StreamOffsets, most: int | None, *, take_all: bool, cluster: ClusterView
    ) -> StreamOffsets:
        """Return the end of the micro-batch from `start`; `start` itself when there is nothing to do yet.

        `most` bounds its offsets. `take_all` ignores limits. Raises DataLoss.

        The first batch takes nothing from partitions where a new stream begins at latest. Spark's checkpoint has the
        ends of batches: after a crash in the first one Spark calls `initial` again, which is later by then, and the
        records in between would be in no batch. Spark's own source keeps its start in a file of the checkpoint.
        """
        topics: Mapping[str, TopicInfo] | None = None
        ends = self._target
        if ends is None:
            topics = select_topics(self._options, cluster, must_exist=False)
            ends = StreamOffsets(last_offsets(cluster, _partitions(topics)), _ids(topics))
        self.newest = ends
        if self._must_end:
            self._target = ends
        begins = self._begins(start, ends, cluster)
        waiting = {
            place: 0 if self._held.get(place) == begin else max(0, ends.positions[place] - begin)
            for place, begin in begins.items()
        }
        self._held = {}
        if not take_all and self._is_too_early(sum(waiting.values())):
            return start
        self._reported.clear()
        takes = waiting if take_all or most is None else share_out(waiting, most)
        if any(takes.values()):
            self._last_batch_at = self._monotonic()
        end = StreamOffsets({place: begin + takes[place] for place, begin in begins.items()}, ends.topic_ids)
        self._planned = None if topics is None else _Planned(end, topics, ends.positions)
        return end

    def ranges(self, start: StreamOffsets, end: StreamOffsets, cluster: ClusterView) -> list[OffsetRange]:
        """Return the ranges of a micro-batch, one per task. Raises DataLoss.

        They depend on the two offsets and the cluster only: Spark plans a batch again after a restart.
        """
        wanted = []
        for place, stop in sorted(end.positions.items()):
            begin = start.positions.get(place, 0) if end.is_same_topic(place[0], start) else 0
            if begin < stop:
                wanted.append(OffsetRange(place[0], end.id_of(place[0]), place[1], begin, stop))
        if not wanted:
            return []
        present = []
        planned = self._planned if self._planned is not None and self._planned.end == end else None
        topics = cluster.describe(sorted({part.topic for part in wanted})) if planned is None else planned.topics
        existing = self._existing(wanted, topics)
        places = [(part.topic, part.partition) for part in existing]
        firsts = first_offsets(cluster, places)
        lasts = last_offsets(cluster, places) if planned is None else planned.lasts
        lasts = log_ends(cluster, lasts, {(part.topic, part.partition): part.end for part in existing}, self._options)
        for part, place in zip(existing, places, strict=True):
            left = present_part(part, firsts[place], lasts[place], self._options)
            if left.start < left.end:
                present.append(left)
        return split(present, self._options.min_partitions, self._options.max_records_per_partition)

    def _begins(self, start: StreamOffsets, ends: StreamOffsets, cluster: ClusterView) -> dict[TopicPartition, int]:
        """Return where each existing partition continues.

        That may be after the end in `ends`: a stream that was read_uncommitted before may have read records of a
        transaction that is still open. It waits there for the last stable offset, and reads nothing twice.
        """
        for place in sorted(start.positions.keys() - ends.positions.keys()):
            selected = is_selected(self._options.selection, *place)
            change = "does not exist any more" if selected else "is not selected by the options any more"
            self._lose(f"{place[0]}-{place[1]} {change}; the stream was at {_at(start, *place)}")
        begins = {}
        appeared = []
        known = {
            place: offset
            for place, offset in start.positions.items()
            if place in ends.positions and ends.is_same_topic(place[0], start)
        }
        lasts = log_ends(cluster, ends.positions, known, self._options)
        for place, last in lasts.items():
            topic, partition = place
            if place not in start.positions:
                appeared.append(place)
            elif not ends.is_same_topic(topic, start):
                self._lose(f"topic {topic} was deleted and created again; the stream was at {_at(start, *place)}")
                appeared.append(place)
            elif last < start.positions[place]:
                self._lose(f"{topic}-{partition}: the stream was at {_at(start, *place)}, the log ends at {last}")
                begins[place] = last
            else:
                begins[place] = start.positions[place]
        for place, first in first_offsets(cluster, appeared).items() if appeared else ():
            if first > 0 and self._options.fail_on_data_loss:  # else `ranges` logs it, once
                self._lose(f"{place[0]}-{place[1]} is new to the stream, and its log starts at {first} already")
            begins[place] = min(first, ends.positions[place])
        return begins

    def _existing(self, wanted: list[OffsetRange], topics: Mapping[str, TopicInfo]) -> list[OffsetRange]:
        existing = []
        for part in wanted:
            info = topics.get(part.topic)
            if info is None or part.partition not in info.partitions:
                self._lose(f"{part} is to be read, but does not exist any more")
            elif part.topic_id.int and info.topic_id.int and part.topic_id != info.topic_id:
                self._lose(f"{part} is to be read, but the topic was deleted and created again")
            else:
                existing.append(replace(part, leader=info.leaders.get(part.partition)))
        return existing

    def _is_too_early(self, waiting: int) -> bool:
        """Wait for `minOffsetsPerTrigger`, but no longer than `maxTriggerDelay`, and not when the stream must end."""
        limits = self._options.limits
        if limits.least is None or waiting >= limits.least or self._must_end:
            return False
        if self._last_batch_at is None:
            return False  # the first batch of a start does not wait
        return self._monotonic() - self._last_batch_at < limits.longest_delay_ms / 1000

    def _lose(self, problem: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{problem}; failOnDataLoss=false would continue with the existing records")
        if problem not in self._reported:
            self._reported.add(problem)
            logger.warning("%s; continuing with the existing records", problem)


def _partitions(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    return sorted((info.name, partition) for info in topics.values() for partition in info.partitions)


def _ids(topics: Mapping[str, TopicInfo]) -> dict[str, UUID]:
    return {name: info.topic_id for name, info in topics.items() if info.topic_id.int}


def _at(offsets: StreamOffsets, topic: str, partition: int) -> str:
    return f"offset {offsets.positions[topic, partition]}"
