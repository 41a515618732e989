"""The broker's counters of itself: plain ints, incremented where the event happens.

The hot path does `counters.bytes_in += n` and nothing else: no locks, no look-ups, no objects. At a scrape,
`exposition.py` turns the ints, and the figures of logs and directories, into Prometheus samples.

Bounded: topics are those that exist (`forget_topic`), requests are keyed by API, version and error code.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from ottla.plain import Plain

REQUEST_BUCKETS_US = (
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
)
"""Upper bounds of the request and sync time buckets; the last bucket is open."""


FIRST_BUCKET_US, SECOND_BUCKET_US = REQUEST_BUCKETS_US[:2]


class Histogram:
    """Counts of times by bucket, with their sum."""

    __slots__ = ("counts", "max_us", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(REQUEST_BUCKETS_US) + 1)
        self.sum_us = 0
        self.max_us = 0
        """The longest time since it was last set to 0; only `observe` updates it."""

    @property
    def count(self) -> int:
        """How many times were observed."""
        return sum(self.counts)

    def observe(self, elapsed_us: int, count: int = 1) -> None:
        """Add one time, `count` times; a time equal to a bound belongs to its bucket."""
        self.counts[bisect_left(REQUEST_BUCKETS_US, elapsed_us)] += count
        self.sum_us += elapsed_us * count
        self.max_us = max(self.max_us, elapsed_us)


class RequestMeter:
    """Counts the answered requests of one API, version and error code, and notes their times."""

    __slots__ = ("count", "times")

    def __init__(self, times: Histogram) -> None:
        self.count = 0
        self.times = times

    def note(self, elapsed_us: int, count: int) -> None:
        """Count `count` requests that began and ended together, with their time from start to answer."""
        self.count += count
        times = self.times
        if elapsed_us <= FIRST_BUCKET_US:
            bucket = 0
        elif elapsed_us <= SECOND_BUCKET_US:
            bucket = 1
        else:
            bucket = bisect_left(REQUEST_BUCKETS_US, elapsed_us)
        times.counts[bucket] += count
        times.sum_us += elapsed_us * count


MeterOf: TypeAlias = Callable[[int], RequestMeter]
"""Returns the meter of the requests of one API and version, by the error code of their answers."""


class TopicCounters:
    """Counts of one topic: records and bytes in, bytes out, requests, failures."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.total_produce_requests = 0
        self.total_fetch_requests = 0
        self.failed_produce_requests = 0
        self.failed_fetch_requests = 0

    def add(self, other: TopicCounters) -> None:
        """Add another's counts to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class ChoreCounters:
    """Counts of one chore of the background: steps, failures, the time they took, and bytes.

    `bytes` are those that it freed or wrote, whatever its work is; `elapsed_us` is time of the broker's thread,
    `worker_us` of workers; `max_us` is the longest step on the broker's thread since it was last set to 0.
    """

    __slots__ = ("bytes", "elapsed_us", "failures", "last_wall_ms", "max_us", "steps", "worker_us")

    def __init__(self) -> None:
        self.steps = 0
        self.failures = 0
        self.elapsed_us = 0
        self.worker_us = 0
        self.max_us = 0
        self.last_wall_ms = 0
        self.bytes = 0

    def step(self, elapsed_us: int, wall_ms: int) -> None:
        """Count one step."""
        self.steps += 1
        self.last_wall_ms = wall_ms
        self.spend(elapsed_us)

    def spend(self, elapsed_us: int) -> None:
        """Count time that a step, or a part of one, took from the broker's thread."""
        self.elapsed_us += elapsed_us
        self.max_us = max(self.max_us, elapsed_us)


class GroupCounters:
    """Counts of the group coordinator: offsets, rebalances, and loads."""

    __slots__ = (
        "classic_rebalances",
        "consumer_rebalances",
        "load_us",
        "loaded_records",
        "loads",
        "offset_commits",
        "offset_deletions",
        "offset_expirations",
        "skipped_records",
        "streams_rebalances",
    )

    def __init__(self) -> None:
        self.offset_commits = 0
        self.offset_deletions = 0
        self.offset_expirations = 0
        self.classic_rebalances = 0
        self.consumer_rebalances = 0
        self.streams_rebalances = 0
        self.loads = 0
        self.load_us = 0
        self.loaded_records = 0
        self.skipped_records = 0


class TransactionCounters:
    """Counts of the transaction coordinator: transactions by how they ended, and loads."""

    __slots__ = (
        "aborts",
        "begun",
        "committed",
        "expired",
        "load_us",
        "loaded_records",
        "loads",
        "skipped_records",
    )

    def __init__(self) -> None:
        self.begun = 0
        self.committed = 0
        self.aborts = dict.fromkeys(("client", "timeout", "fenced"), 0)
        """By cause: the producer itself, its timeout, or another producer with its transactional id."""
        self.expired = 0
        """Transactional ids that were forgotten."""
        self.loads = 0
        self.load_us = 0
        self.loaded_records = 0
        self.skipped_records = 0

    def aborted(self, reason: str) -> None:
        """A transaction is aborted."""
        self.aborts[reason] += 1


class ShareGroupCounters:
    """Counts of the share coordinator: records by what became of them, and what loading brought."""

    __slots__ = (
        "acknowledged_records",
        "acquired_records",
        "archived_records",
        "dead_letters",
        "load_us",
        "loaded_records",
        "loads",
        "lost_dead_letters",
        "released_records",
        "skipped_records",
        "timed_out_records",
    )

    def __init__(self) -> None:
        self.acquired_records = 0
        self.acknowledged_records = 0
        self.released_records = 0
        """Available again because their member said so."""
        self.archived_records = 0
        """Rejected, or delivered as often as is allowed."""
        self.dead_letters = 0
        """Written (KIP-1191)."""
        self.lost_dead_letters = 0
        """Of archived records, not written: their topic may not be used, or refused them."""
        self.timed_out_records = 0
        """Available again, or archived, because their member had them for too long."""
        self.loads = 0
        self.load_us = 0
        self.loaded_records = 0
        self.skipped_records = 0


class LoginCounters:
    """Counts of the logins by one mechanism on one listener, as in Kafka's `socket-server-metrics`."""

    __slots__ = (
        "expired_connections_killed",
        "failed",
        "failed_reauthentications",
        "reauthentication_times",
        "successful",
        "successful_reauthentications",
        "successful_without_reauthentication",
    )

    def __init__(self) -> None:
        self.successful = 0
        self.failed = 0
        self.successful_without_reauthentication = 0
        """The logins in `successful` whose clients do not know of re-authentication (KIP-368)."""
        self.successful_reauthentications = 0
        self.failed_reauthentications = 0
        self.expired_connections_killed = 0
        """Connections that were closed because their session had expired."""
        self.reauthentication_times = Histogram()


class SyncCounters:
    """Counts of the sync rounds that were run in one way: rounds, their files, and the time that they took."""

    __slots__ = ("elapsed_us", "files", "rounds")

    def __init__(self) -> None:
        self.rounds = 0
        self.files = 0
        self.elapsed_us = 0


class Metrics:
    """The counters of one broker. Callers add to the attributes directly.

    `topic(name)` returns the topic's counters: keep the object, do not look it up for every batch.
    """

    def __init__(self) -> None:
        self.connections_opened = 0
        self.connections_closed = 0
        self.connections_refused = 0
        self.malformed_requests = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.sync_failures = 0
        self.corrupt_reads = 0
        """Reads of all partitions, deleted ones too, that were answered CORRUPT_MESSAGE."""
        self.loop_lag = Histogram()
        """How late a timer ran that is due ten times a second (`loop_watch.py`)."""
        self.syncs = Histogram()
        self.sync_rounds = {way: SyncCounters() for way in ("files", "threads", "volume", "redo", "loop")}
        """Sync rounds by how they were run (`sync_round.py`)."""
        self.sync_overtaken = 0
        """Syncs of a volume that took so long that the files of the round were synced beside it."""
        self.topics: dict[str, TopicCounters] = {}
        self.removed_topics = TopicCounters()
        """Sums of topics that are gone, so that the totals over all topics never fall."""
        self._meters: dict[tuple[str, int, int], RequestMeter] = {}
        self.request_times: dict[str, Histogram] = {}
        self.held: dict[str, Histogram] = {}
        """By API name: times for which one of its requests held the loop. A request that is answered immediately has
        one such time, a pending one has another for its answer. Requests on the fast paths are not measured."""
        self.chores: dict[str, ChoreCounters] = {}
        self.groups = GroupCounters()
        self.transactions = TransactionCounters()
        self.share_groups = ShareGroupCounters()
        self.logins: dict[tuple[str, str], LoginCounters] = {}
        """Login counters by listener and mechanism (`security/logins.py`)."""

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic, made on first use."""
        counters = self.topics.get(name)
        if counters is None:
            counters = self.topics[name] = TopicCounters()
        return counters

    def forget_topic(self, name: str) -> None:
        """The topic was deleted: keep its counts in the totals only."""
        counters = self.topics.pop(name, None)
        if counters is not None:
            self.removed_topics.add(counters)

    def chore(self, name: str) -> ChoreCounters:
        """The counters of a chore, made on first use."""
        counters = self.chores.get(name)
        if counters is None:
            counters = self.chores[name] = ChoreCounters()
        return counters

    def login(self, listener: str, mechanism: str) -> LoginCounters:
        """The counters of the logins by a mechanism on a listener, made on first use."""
        counters = self.logins.get((listener, mechanism))
        if counters is None:
            counters = self.logins[listener, mechanism] = LoginCounters()
        return counters

    @property
    def request_counts(self) -> dict[tuple[str, int, int], int]:
        """Answered requests by (API name, version, error code of the response)."""
        return {key: meter.count for key, meter in self._meters.items() if meter.count}

    def meter(self, api_name: str, version: int, error_code: int) -> RequestMeter:
        """The meter of an API's requests in one version with one error code, made on first use."""
        key = (api_name, version, error_code)
        meter = self._meters.get(key)
        if meter is None:
            times = self.request_times.get(api_name)
            if times is None:
                times = self.request_times[api_name] = Histogram()
            meter = self._meters[key] = RequestMeter(times)
        return meter

    def sync_round(self, way: str, files: int, timings: list[tuple[int, int]]) -> None:
        """Count a round of syncs: how it was run, and microseconds with the number of logs that they were spent on."""
        counters = self.sync_rounds[way]
        counters.rounds += 1
        counters.files += files
        for elapsed_us, logs in timings:
            counters.elapsed_us += elapsed_us
            self.syncs.observe(elapsed_us, logs)

    def hold(self, api_name: str, elapsed_us: int) -> None:
        """Note that a request of this API had the broker's thread to itself for so long."""
        held = self.held.get(api_name)
        if held is None:
            held = self.held[api_name] = Histogram()
        held.observe(elapsed_us)


class CleanerFigures(Plain):
    """The counts of the cleaner, for metrics; sums since the start, unless noted."""

    cleanings: int = 0
    failed: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    bytes_freed: int = 0
    records_removed: int = 0
    max_dirty_ratio: float = 0.0
    """The highest dirty ratio of all logs at the cleaner's last check."""
    last_look_wall_ms: int = 0
    last_recopy_ratio: float = 0.0
    last_map_utilization: float = 0.0
    last_cleaning_s: float = 0.0
    max_overdue_ms: int = 0
    """The longest that a log was overdue by `max.compaction.lag.ms` at the last check."""
