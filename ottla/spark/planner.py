"""Which offsets a query reads, and how they are divided among tasks. Pure except for its requests to the cluster.

An end before the start is an error if both are numbers of the options, as these contradict each other. Where the log
decides one of them (earliest, a time), the partition is empty, with a warning: retention moves the start of one
partition past an ending offset while others still have their records. (Spark's own source refuses such a query.)

The order is: topics to partitions, the ends of each log, the limits of the options to offsets, the check against the
log, the split into tasks. A start before the first record of the log, or an end after the last one, is data loss: an
error, or with failOnDataLoss=false a warning, and the existing part is read. Source for the meaning of the options:
Spark's "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import heapq
import itertools
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from ottla.spark.errors import DataLoss, OptionError
from ottla.spark.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    Earliest,
    Latest,
    Offsets,
    Subscribe,
    Timestamps,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from ottla.spark.option_values import Address
    from ottla.spark.options import ReadOptions, SubscribePattern, TopicPartition

logger = logging.getLogger(__name__)

MAX_TASKS = 1_000_000
"""The most tasks that a split may make; more is a mistake in the options, and too much for the driver."""

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = -2, -1  # ListOffsets' special times


@dataclass(frozen=True)
class TopicInfo:
    """A topic as the cluster knows it. `topic_id` is zero from brokers older than Kafka 2.8.

    `leaders` has the addresses of the partitions' leaders, without the partitions that have none now.
    """

    name: str
    topic_id: UUID
    partitions: tuple[int, ...]
    is_internal: bool = False
    leaders: Mapping[int, Address] = field(default_factory=dict)


@dataclass(frozen=True)
class OffsetRange:
    """Records of one partition from `start` to before `end`; the work of one task.

    `leader` is the partition's leader when the range was planned: a task that knows it needs no Metadata request, which
    would describe the whole topic to every task. It may be another one when the task runs, minutes or hours later.
    """

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int
    leader: Address | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


class ClusterView(Protocol):
    """The requests that the planner makes."""

    def describe(self, topics: Sequence[str] | None) -> dict[str, TopicInfo]:
        """Return the named topics that exist, or all; internal ones too."""

    def list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each time (EARLIEST_, LATEST_TIMESTAMP: the ends), None without one."""

    def high_watermarks(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of the logs, whatever open transactions hide."""


def plan(options: ReadOptions, cluster: ClusterView) -> list[OffsetRange]:
    """Return the ranges to read, one per task, without empty ones.

    Raises OptionError when the options do not fit the topics, DataLoss when records that they name are missing.
    """
    topics = select_topics(options, cluster)
    partitions = sorted((info.name, partition) for info in topics.values() for partition in info.partitions)
    if not partitions:
        return []
    for limit in (options.starting, options.ending):
        check_coverage(limit, partitions)
    firsts = first_offsets(cluster, partitions)
    start_matches = matches(options.starting, cluster, partitions)
    end_matches = matches(options.ending, cluster, partitions)
    # Last: a record that arrives meanwhile and matches a time must not seem to be after the end.
    lasts = last_offsets(cluster, partitions)
    starts = start_offsets(options, start_matches, firsts, lasts)
    ends = _ends(options, end_matches, lasts)
    ranges = []
    backward = []
    for topic, partition in partitions:
        place = (topic, partition)
        info = topics[topic]
        whole = OffsetRange(topic, info.topic_id, partition, starts[place], ends[place], info.leaders.get(partition))
        if whole.end < whole.start and not isinstance(options.ending, Latest):
            if _is_number(options.starting, place) and _is_number(options.ending, place):
                problem = f"the ending offset {whole.end} is before the start {whole.start}"
                raise OptionError(f"{topic}-{partition}: {problem}")
            backward.append(whole)
            whole = replace(whole, end=whole.start)
        present = present_part(
            whole, firsts[place], lasts[place], options, last_is_stable=options.client.read_committed
        )
        if present.start < present.end:
            ranges.append(present)
    if backward:
        logger.warning("nothing is read where the end is before the start: %s", _listed(backward))
    return split(ranges, options.min_partitions, options.max_records_per_partition)


def select_topics(options: ReadOptions, cluster: ClusterView, *, must_exist: bool = True) -> dict[str, TopicInfo]:
    """Return the topics, with the partitions, that the options select.

    Missing topics and partitions raise OptionError, or with `must_exist=False` are left out.
    """
    selection = options.selection
    if isinstance(selection, Subscribe):
        return _existing(selection.topics, cluster, must_exist)
    if isinstance(selection, Assign):
        topics = _existing(tuple(selection.partitions), cluster, must_exist)
        for name, info in topics.items():
            wanted = selection.partitions[name]
            missing = sorted(set(wanted) - set(info.partitions))
            if missing and must_exist:
                raise OptionError(f"assign: topic {name} has no partition {_listed(missing)}")
            topics[name] = replace(info, partitions=tuple(sorted(set(wanted) - set(missing))))
        return topics
    matching = {
        name: info
        for name, info in cluster.describe(None).items()
        if not info.is_internal and selection.pattern.search(name)
    }
    if not matching and must_exist:
        logger.warning("subscribePattern: no topic matches %s; the result is empty", selection.pattern.pattern)
    return matching


def is_selected(selection: Subscribe | SubscribePattern | Assign, topic: str, partition: int) -> bool:
    """Return whether the options select this partition, where it exists."""
    if isinstance(selection, Subscribe):
        return topic in selection.topics
    if isinstance(selection, Assign):
        return partition in selection.partitions.get(topic, ())
    return selection.pattern.search(topic) is not None


def _existing(names: Sequence[str], cluster: ClusterView, must_exist: bool) -> dict[str, TopicInfo]:
    topics = cluster.describe(names)
    missing = [name for name in names if name not in topics]
    if missing and must_exist:
        raise OptionError(f"unknown topic {_listed(missing)}")
    return topics


def check_coverage(limit: object, partitions: Collection[TopicPartition]) -> None:
    """Raise OptionError unless every partition that is read has a number, and no other, as Spark's source does."""
    if isinstance(limit, Offsets):
        named: Collection[TopicPartition] = limit.offsets.keys()
        hint = "; use -2 for earliest, -1 for latest"
    elif isinstance(limit, Timestamps) and limit.everywhere is None:
        named, hint = limit.by_partition.keys(), ""
    else:
        return
    missing = [f"{topic}-{partition}" for topic, partition in partitions if (topic, partition) not in named]
    if missing:
        raise OptionError(f"{limit.option}: every partition needs a number, {_listed(missing)} has none{hint}")
    strangers = sorted(f"{topic}-{partition}" for topic, partition in set(named) - set(partitions))
    if strangers:
        raise OptionError(f"{limit.option}: {_listed(strangers)} is not among the partitions that are read")


def matches(
    limit: object, cluster: ClusterView, partitions: Sequence[TopicPartition]
) -> Mapping[TopicPartition, int | None]:
    """Return the offsets of a limit by time; an empty map for any other limit."""
    if not isinstance(limit, Timestamps):
        return {}
    return cluster.list_offsets(_times(limit, partitions))


def start_offsets(
    options: ReadOptions,
    found: Mapping[TopicPartition, int | None],
    firsts: Mapping[TopicPartition, int],
    lasts: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """Return the first offset to read of each partition; `found` is what `matches` returned for the starting time.

    Raises OptionError when no record is at or after that time, unless the strategy is latest.
    """
    limit = options.starting
    if isinstance(limit, Earliest):
        return firsts
    if isinstance(limit, Latest):
        return lasts
    if isinstance(limit, Offsets):
        special = {EARLIEST_OFFSET: firsts, LATEST_OFFSET: lasts}
        return {
            place: special[offset][place] if offset in special else offset for place, offset in limit.offsets.items()
        }
    starts = {}
    for place, offset in found.items():
        if offset is None and not options.start_at_latest_without_match:
            raise OptionError(
                f"{limit.option}: {place[0]}-{place[1]} has no record at or after that time; "
                "startingOffsetsByTimestampStrategy=latest would start at its end"
            )
        starts[place] = lasts[place] if offset is None else offset
    return starts


def from_latest(
    options: ReadOptions, found: Mapping[TopicPartition, int | None], partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """Return which of `partitions` begin at the ends of their logs; `found`: see start_offsets."""
    limit = options.starting
    if isinstance(limit, Latest):
        return set(partitions)
    if isinstance(limit, Offsets):
        return {place for place, offset in limit.offsets.items() if offset == LATEST_OFFSET}
    return {place for place, offset in found.items() if offset is None}


def _is_number(limit: object, place: TopicPartition) -> bool:
    """Return whether the options have a number for this partition, other than earliest and latest."""
    return isinstance(limit, Offsets) and limit.offsets[place] >= 0


def _ends(
    options: ReadOptions,
    found: Mapping[TopicPartition, int | None],
    lasts: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    limit = options.ending
    if limit is None or isinstance(limit, Latest):
        return lasts
    if isinstance(limit, Offsets):
        return {place: lasts[place] if offset == LATEST_OFFSET else offset for place, offset in limit.offsets.items()}
    return {place: lasts[place] if offset is None else offset for place, offset in found.items()}


def _times(limit: Timestamps, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    if limit.everywhere is not None:
        return dict.fromkeys(partitions, limit.everywhere)
    return {place: limit.by_partition[place] for place in partitions}


def first_offsets(cluster: ClusterView, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start offsets."""
    return _known(cluster.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP)))


def last_offsets(cluster: ClusterView, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the ends of the logs, each the offset of the next record; with read_committed the last stable offsets."""
    return _known(cluster.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP)))


def _known(offsets: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """Return the offsets without None: a log always has a start and an end, the same offset in an empty one."""
    return {place: 0 if offset is None else offset for place, offset in offsets.items()}


def log_ends(
    cluster: ClusterView,
    lasts: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
    options: ReadOptions,
) -> dict[TopicPartition, int]:
    """Return the ends of the logs, exact enough to decide whether each of the `wanted` offsets exists.

    With read_committed `lasts` are the last stable offsets. An offset after one may exist nevertheless, hidden until a
    transaction ends, so the high watermark replaces it.
    """
    ends = dict(lasts)
    if options.client.read_committed:
        hidden = [place for place, offset in wanted.items() if offset > lasts[place]]
        ends |= cluster.high_watermarks(hidden) if hidden else {}
    return ends


def present_part(
    wanted: OffsetRange, first: int, last: int, options: ReadOptions, *, last_is_stable: bool = False
) -> OffsetRange:
    """Return what of a range is in the log from `first` to before `last`, which may be the last stable offset."""
    where = f"{wanted.topic}-{wanted.partition}"
    problem = ""
    if wanted.start < first:
        problem = f"{where}: offset {wanted.start} is gone, the log starts at {first}"
    elif (beyond := max(wanted.start, wanted.end)) > last:
        problem = f"{where}: offset {beyond} does not exist, the log ends at {last}"
        if last_is_stable:  # an open transaction hides the records after it
            stable = f"the last stable offset is {last} (kafka.isolation.level=read_committed)"
            problem = f"{where}: offset {beyond} cannot be read, {stable}"
    if not problem:
        return wanted
    if options.fail_on_data_loss:
        raise DataLoss(f"{problem}; failOnDataLoss=false would read the existing records")
    logger.warning("%s; reading the existing records", problem)
    start = min(max(wanted.start, first), last)
    return replace(wanted, start=start, end=max(start, min(wanted.end, last)))


def split(ranges: Sequence[OffsetRange], min_partitions: int | None, max_records: int | None) -> list[OffsetRange]:
    """Split ranges so that none exceeds `max_records` and there are at least `min_partitions`, if there are enough
    offsets.

    The range with the largest pieces is divided further, so that all pieces are about as large.
    """
    sizes = [part.end - part.start for part in ranges]
    pieces = [1 if max_records is None else -(-size // max_records) for size in sizes]
    if max(sum(pieces), min_partitions or 0) > MAX_TASKS:
        raise OptionError(f"minPartitions or maxRecordsPerPartition would make more than {MAX_TASKS} tasks")
    missing = (min_partitions or 0) - sum(pieces)
    if missing > 0:
        pieces = _more_pieces(sizes, pieces, missing)
    return [piece for part, count in zip(ranges, pieces, strict=True) for piece in _cut_evenly(part, count)]


def _more_pieces(sizes: Sequence[int], pieces: Sequence[int], missing: int) -> list[int]:
    """Divide `missing` further pieces among the ranges, each time in the range whose pieces are the largest."""
    counts = list(pieces)
    largest = [(-size / count, index) for index, (size, count) in enumerate(zip(sizes, counts, strict=True))]
    heapq.heapify(largest)
    while missing and largest:
        _, index = largest[0]
        if counts[index] >= sizes[index]:
            heapq.heappop(largest)
            continue
        counts[index] += 1
        missing -= 1
        heapq.heapreplace(largest, (-sizes[index] / counts[index], index))
    return counts


def _cut_evenly(part: OffsetRange, count: int) -> list[OffsetRange]:
    size = part.end - part.start
    edges = [part.start + size * index // count for index in range(count + 1)]
    return [replace(part, start=low, end=high) for low, high in itertools.pairwise(edges)]


def _listed(items: Sequence[object]) -> str:
    shown = ", ".join(str(item) for item in items[:5])
    return shown if len(items) <= 5 else f"{shown} and {len(items) - 5} more"
