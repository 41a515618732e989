"""A node's figures as Prometheus samples, created at each scrape.

The names are those that the usual jmx_exporter rules make of Kafka's MBeans (`kafka_log_log_size`,
`kafka_server_brokertopicmetrics_messagesin_total`, ...), so that dashboards work; figures that Kafka does not have
begin with `ottla_`.

Only this module and the other `*_exposition.py` modules here use prometheus-client. They are imported with the first
scrape: a broker starts without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from ottla.broker.telemetry.buckets import cumulative
from ottla.broker.telemetry.lag_exposition import group_lag
from ottla.broker.telemetry.pause import PAUSE
from ottla.broker.telemetry.security_exposition import audit_figures, login_figures, quota_figures
from ottla.broker.telemetry.share_exposition import share_group_figures
from ottla.broker.telemetry.transaction_exposition import transaction_figures
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.chores.log_cleaner import LogCleaner
    from ottla.broker.context import ApiServices
    from ottla.broker.partitions.partition import Partition

_Family = TypeVar("_Family", CounterMetricFamily, GaugeMetricFamily)

CONTENT_TYPE = CONTENT_TYPE_LATEST
SAMPLES_PER_PIECE = 300
"""Lines of a scrape that are made in one step: two milliseconds."""
_TOPIC_COUNTERS = {
    "messages_in": ("messagesin", "Records appended."),
    "bytes_in": ("bytesin", "Bytes of batches appended."),
    "bytes_out": ("bytesout", "Bytes of batches sent to consumers."),
    "bytes_rejected": ("bytesrejected", "Bytes of batches refused."),
    "total_produce_requests": ("totalproducerequests", "Produce requests, one for each partition in them."),
    "total_fetch_requests": ("totalfetchrequests", "Fetch requests, one for each partition in them."),
    "failed_produce_requests": ("failedproducerequests", "Produce requests that failed."),
    "failed_fetch_requests": ("failedfetchrequests", "Fetch requests that failed."),
}

LOG_GAUGES: dict[str, tuple[str, Callable[[Partition], int]]] = {
    "kafka_log_log_size": ("Bytes of the partition's segments.", lambda each: each.log.size_bytes),
    "kafka_log_log_logstartoffset": ("First offset of the partition.", lambda each: each.log.log_start_offset),
    "kafka_log_log_logendoffset": ("Next offset of the partition.", lambda each: each.log.log_end_offset),
    "kafka_log_log_numlogsegments": ("Segments of the partition.", lambda each: len(each.log.segment_list)),
    "ottla_log_highwatermark": ("Offset below which records are seen.", lambda each: each.high_watermark),
    "ottla_log_syncedoffset": ("Offset below which records are on disk.", lambda each: each.log.synced_offset),
}


class Exposition:
    """The registry of one broker."""

    def __init__(self, services: ApiServices, cleaner: LogCleaner) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(NodeCollector(services, cleaner))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def render(self) -> bytes:
        """The response text of `/metrics`, of CONTENT_TYPE."""
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The same text, a few hundred lines at a time, so that no client waits for a scrape. Meanwhile counters may
        change, and topics may be created and deleted.
        """
        piece, count, before = b"", 0, ""
        for metric in self._registry.collect():
            if metric is PAUSE:
                yield piece
                piece, count = b"", 0
                continue
            for slot in range(0, max(len(metric.samples), 1), SAMPLES_PER_PIECE):
                part = copy(metric)
                part.samples = metric.samples[slot : slot + SAMPLES_PER_PIECE]
                text = generate_latest(_Collected(part))
                # The two comment lines before the samples are written once.
                piece += text if metric.name != before else text.split(b"\n", 2)[2]
                before = metric.name
                count += len(part.samples)
                if count >= SAMPLES_PER_PIECE:
                    yield piece
                    piece, count = b"", 0
        yield piece


class _Collected(CollectorRegistry):
    """A registry with one metric that is collected already."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(auto_describe=False)
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        """The one metric."""
        yield self._metric


class NodeCollector(Collector):
    """Reads the counters, logs and directories; keeps nothing."""

    def __init__(self, services: ApiServices, cleaner: LogCleaner) -> None:
        self._services = services
        self._log_cleaner = cleaner

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._topics()
        yield from self._requests()
        yield from self._network()
        yield from self._logs()
        yield from self._recovery()
        yield from self._directories()
        for _ in self._services.groups.import_some():
            yield PAUSE
        yield PAUSE
        yield from self._groups()
        yield from self._lag()
        yield from transaction_figures(self._services.transactions.if_made, self._services.metrics.transactions)
        yield from share_group_figures(self._services.share_groups.if_made, self._services.metrics.share_groups)
        yield from login_figures(self._services.metrics.logins)
        yield from quota_figures(self._services.quotas)
        yield from audit_figures(self._services.audit)
        yield from self._cleaner()
        yield from self._clock()
        yield from self._work()

    def _topics(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        for attribute, (name, text) in _TOPIC_COUNTERS.items():
            total = getattr(metrics.removed_topics, attribute)
            total += sum(map(attrgetter(attribute), metrics.topics.values()))
            yield _counter(f"kafka_server_brokertopicmetrics_{name}", text, total)
            yield PAUSE  # each has visited all topics
        for attribute, (name, text) in _TOPIC_COUNTERS.items():
            full_name = f"kafka_server_brokertopicmetrics_{name}_by_topic"
            lines = [([topic], getattr(counters, attribute)) for topic, counters in metrics.topics.items()]
            yield from _in_pieces(partial(CounterMetricFamily, full_name, text, labels=["topic"]), lines)

    def _requests(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        requests = CounterMetricFamily(
            "kafka_network_requestmetrics_requests", "Requests answered.", labels=["request", "version"]
        )
        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors", "Responses by their first error code.", labels=["request", "error"]
        )
        by_version: dict[tuple[str, str], int] = {}
        by_error: dict[tuple[str, str], int] = {}
        for (api, version, code), count in metrics.request_counts.items():
            by_version[api, str(version)] = by_version.get((api, str(version)), 0) + count
            by_error[api, _error_name(code)] = by_error.get((api, _error_name(code)), 0) + count
        for labels, count in by_version.items():
            requests.add_metric(labels, count)
        for labels, count in by_error.items():
            errors.add_metric(labels, count)
        times = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltime_seconds", "Time from start to answer.", labels=["request"]
        )
        for api, histogram in metrics.request_times.items():
            times.add_metric([api], cumulative(histogram), histogram.sum_us / 1e6)
        yield from (requests, errors, times)

    def _network(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        server = "kafka_server_socketservermetrics"
        yield _gauge(
            f"{server}_connection_count", "Open connections.", metrics.connections_opened - metrics.connections_closed
        )
        yield _counter(f"{server}_connection_creation", "Connections accepted.", metrics.connections_opened)
        yield _counter(f"{server}_connection_close", "Connections closed.", metrics.connections_closed)
        yield _counter("ottla_connections_refused", "Connections over a limit.", metrics.connections_refused)
        yield _counter("ottla_requests_malformed", "Requests that ended their connection.", metrics.malformed_requests)
        yield _counter(f"{server}_incoming_byte", "Bytes received.", metrics.bytes_received)
        yield _counter(f"{server}_outgoing_byte", "Bytes sent.", metrics.bytes_sent)
        memory, name = self._services.answer_memory, "ottla_answer_memory"
        yield _gauge(
            f"{name}_reserved_bytes", "Bytes of answers that are read, or about to be sent.", memory.reserved_bytes
        )
        yield _gauge(f"{name}_unsent_bytes", "Bytes of answers that clients do not take.", memory.unsent_bytes)
        yield _gauge(f"{name}_max_bytes", "ottla.connections.max.unsent.bytes, for both.", memory.max_bytes)
        yield _gauge(f"{name}_waiting", "Answers that wait for room.", memory.waiting)
        yield _counter(f"{name}_closed_connections", "Closed to make room.", memory.closed_connections)

    def _logs(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        for name, (text, value) in LOG_GAUGES.items():
            lines = ((line, value(partition)) for line, partition in self.partitions())
            yield from _in_pieces(partial(GaugeMetricFamily, name, text, labels=labels), lines)
        yield from self._damage()
        yield PAUSE
        topics = self._services.catalog.topics.values()
        offline = sum(topic.partitions.count(None) for topic in topics)
        count = sum(len(topic.partitions) for topic in topics)
        yield from self._replicas(count, offline)

    def partitions(self) -> Iterator[tuple[list[str], Partition]]:
        """The online partitions, with their labels. Between two of them topics may be created and deleted."""
        topics = self._services.catalog.topics
        for topic in list(topics.values()):
            for index, partition in enumerate(topic.partitions):
                if partition is not None and topics.get(topic.name) is topic:
                    yield [topic.name, str(index)], partition

    def _damage(self) -> Iterator[Metric]:
        """The damage that readers have found; by partition only if there was any."""
        yield PAUSE
        text = "Reads answered CORRUPT_MESSAGE, because of damage on the disk."
        yield _counter("ottla_corrupt_reads", text, self._services.metrics.corrupt_reads)
        family = CounterMetricFamily("ottla_corrupt_reads_by_partition", text, labels=["topic", "partition"])
        if self._services.metrics.corrupt_reads:
            for line, partition in self.partitions():
                if partition.corrupt_reads:
                    family.add_metric(line, partition.corrupt_reads)
        yield family

    def _recovery(self) -> Iterator[Metric]:
        """The findings of this start in the logs, mainly after a crash."""
        yield PAUSE
        found = [log.recovery for log in self._services.log_manager.logs.values()]
        scanned, torn = sum(map(attrgetter("scanned_bytes"), found)), sum(map(attrgetter("truncated_bytes"), found))
        yield _gauge("ottla_recovery_scanned_bytes", "Bytes of logs that the start checked.", scanned)
        yield _gauge("ottla_recovery_truncated_bytes", "Bytes of torn tails that it truncated.", torn)
        yield PAUSE
        quarantined = sum(len(report.quarantined) for report in found)
        lost = sum(map(attrgetter("lost_below_high_watermark"), found))
        yield _gauge("ottla_recovery_kept_aside_files", "Files that it quarantined: unsynced or damaged.", quarantined)
        yield _gauge("ottla_recovery_lost_logs", "Logs that ended below what was promised.", lost)

    def _replicas(self, count: int, offline: int) -> Iterator[Metric]:
        catalog = self._services.catalog
        replicas, controller = "kafka_server_replicamanager", "kafka_controller_kafkacontroller"
        yield _gauge(f"{replicas}_partitioncount", "Partitions of this broker.", count)
        yield _gauge(f"{replicas}_leadercount", "Partitions that this broker leads.", count - offline)
        yield _gauge(f"{replicas}_offlinereplicacount", "Partitions whose directory is offline.", offline)
        yield _gauge(f"{replicas}_underreplicatedpartitions", "Always 0: there is one replica.", 0)
        yield _gauge(f"{controller}_activecontrollercount", "Always 1: this broker.", 1)
        yield _gauge(f"{controller}_globaltopiccount", "Topics.", len(catalog.topics))
        yield _gauge(f"{controller}_globalpartitioncount", "Partitions.", count)
        yield _gauge(f"{controller}_offlinepartitionscount", "Partitions without a leader.", offline)
        yield _counter("ottla_metadata_snapshots", "Snapshots of the metadata written.", catalog.snapshots_taken)
        yield _gauge("ottla_metadata_log_end_offset", "Next offset of the metadata log.", catalog.metadata_end_offset)
        yield _gauge("ottla_metadata_changes_waiting", "Changes that wait for the disk.", catalog.waiting_changes)

    def _directories(self) -> Iterator[Metric]:
        directories = self._services.log_manager.directories
        offline = GaugeMetricFamily(
            "kafka_log_logmanager_logdirectoryoffline", "1 when the directory is offline.", labels=["logDirectory"]
        )
        full = GaugeMetricFamily("ottla_log_directory_full", "1 when the directory is full.", labels=["logDirectory"])
        free = GaugeMetricFamily(
            "ottla_log_directory_free_bytes", "Free on its volume, at the last check.", labels=["logDirectory"]
        )
        reserve = GaugeMetricFamily(
            "ottla_log_directory_reserve_bytes", "Below so many free bytes it is full.", labels=["logDirectory"]
        )
        inodes = GaugeMetricFamily(
            "ottla_log_directory_free_inodes", "Free on its volume, at the last check.", labels=["logDirectory"]
        )
        kept = GaugeMetricFamily(
            "ottla_log_directory_reserve_inodes", "Below so many free inodes it is full.", labels=["logDirectory"]
        )
        for directory in directories:
            path, room = str(directory.path), directory.room
            if room.free_inodes is not None:
                inodes.add_metric([path], room.free_inodes)
                kept.add_metric([path], room.reserve_inodes)
            offline.add_metric([path], int(directory.is_offline))
            full.add_metric([path], int(not directory.is_offline and not directory.is_online))
            if room.free_bytes is not None:
                free.add_metric([path], room.free_bytes)
                reserve.add_metric([path], room.reserve_bytes)
        count = sum(directory.is_offline for directory in directories)
        yield _gauge("kafka_log_logmanager_offlinelogdirectorycount", "Directories that are offline.", count)
        yield from (offline, full, free, reserve, inodes, kept)

    def _cleaner(self) -> Iterator[Metric]:
        services, cleaner = self._services, self._log_cleaner
        figures = cleaner.figures
        manager, one = "kafka_log_logcleanermanager", "kafka_log_logcleaner"
        count = GaugeMetricFamily(
            f"{manager}_uncleanable_partitions_count", "Logs that cannot be compacted.", labels=["logDirectory"]
        )
        size = GaugeMetricFamily(f"{manager}_uncleanable_bytes", "Bytes of such logs.", labels=["logDirectory"])
        for directory in services.log_manager.directories:
            logs = [log for log in cleaner.uncleanable if log.directory.parent == directory.path]
            count.add_metric([str(directory.path)], len(logs))
            size.add_metric([str(directory.path)], sum(log.size_bytes for log in logs))
        yield from (count, size)
        since_ms = services.clock.wall_ms() - figures.last_look_wall_ms if figures.last_look_wall_ms else 0
        since_ms = max(0, since_ms)  # the clock may have been put back
        percent, overdue = int(100 * figures.max_dirty_ratio), figures.max_overdue_ms / 1e3
        recopy, utilization = int(100 * figures.last_recopy_ratio), int(100 * figures.last_map_utilization)
        yield _gauge(f"{manager}_max_dirty_percent", "Dirty share of the dirtiest log.", percent)
        yield _gauge(f"{manager}_time_since_last_run_ms", "Since the cleaner's last check.", since_ms)
        yield _gauge(f"{one}_max_compaction_delay_secs", "Longest that a log is overdue.", overdue)
        yield _gauge(f"{one}_cleaner_recopy_percent", "Bytes kept by the last cleaning.", recopy)
        yield _gauge(f"{one}_max_buffer_utilization_percent", "How full its map of keys was.", utilization)
        yield _gauge(f"{one}_max_clean_time_secs", "How long it took.", figures.last_cleaning_s)
        yield _counter("ottla_log_cleaner_cleanings", "Cleanings of a log that were completed.", figures.cleanings)
        yield _counter("ottla_log_cleaner_failures", "Cleanings that failed.", figures.failed)
        yield _counter("ottla_log_cleaner_read_bytes", "Bytes read from logs.", figures.bytes_read)
        yield _counter("ottla_log_cleaner_written_bytes", "Bytes written to clean segments.", figures.bytes_written)
        yield _counter("ottla_log_cleaner_freed_bytes", "Bytes by which segments became smaller.", figures.bytes_freed)
        yield _counter("ottla_log_cleaner_removed_records", "Records compacted away.", figures.records_removed)

    def _lag(self) -> Iterator[Metric]:
        services = self._services
        yield from group_lag(
            services.groups.get(), services.catalog, services.config.ottla_metrics_group_lag_max_series
        )

    def _groups(self) -> Iterator[Metric]:
        groups, counters = self._services.groups.get(), self._services.metrics.groups
        manager, coordinator = "kafka_coordinator_group_groupmetadatamanager", "kafka_server_group_coordinator_metrics"
        counts = groups.count_by_state()
        by_state = GaugeMetricFamily("ottla_groups", "Groups by protocol and state.", labels=["type", "state"])
        for labels, count in counts.items():
            by_state.add_metric(labels, count)
        yield by_state
        yield _gauge(f"{manager}_numgroups", "Groups.", sum(counts.values()))
        yield _gauge(f"{manager}_numoffsets", "Committed offsets.", groups.offset_count)
        yield _counter(f"{coordinator}_offset_commit", "Offsets committed.", counters.offset_commits)
        yield _counter(f"{coordinator}_offset_deletion", "Offsets deleted.", counters.offset_deletions)
        yield _counter(f"{coordinator}_offset_expiration", "Offsets expired.", counters.offset_expirations)
        yield _counter(
            f"{coordinator}_group_completed_rebalance", "Generations of classic groups.", counters.classic_rebalances
        )
        yield _counter(
            f"{coordinator}_consumer_group_rebalance", "Epochs of consumer groups.", counters.consumer_rebalances
        )
        yield _counter(
            f"{coordinator}_streams_group_rebalance", "Epochs of streams groups.", counters.streams_rebalances
        )
        yield _gauge("ottla_group_loads_under_way", "Partitions of groups being loaded.", groups.loads_under_way)
        yield _counter("ottla_group_loads", "Partitions of groups loaded.", counters.loads)
        yield _counter("ottla_group_load_seconds", "Time that loading took.", counters.load_us / 1e6)
        yield _counter("ottla_group_load_records", "Records replayed by loading.", counters.loaded_records)
        yield _counter(
            "ottla_group_load_skipped_records", "Records that loading could not use.", counters.skipped_records
        )

    def _clock(self) -> Iterator[Metric]:
        trust = self._services.clock_trust
        yield _gauge("ottla_clock_suspect", "1 while the wall clock is not trusted.", int(trust.is_suspect))
        yield _gauge(
            "ottla_clock_jump_seconds",
            "Seconds by which a wall clock that is not trusted is ahead (behind: negative).",
            trust.jump_ms / 1e3,
        )
        yield _gauge(
            "ottla_clock_trust_seconds",
            "Seconds until a wall clock that is not trusted will be, if it does not jump again.",
            trust.left_ms / 1e3,
        )

    def _sync_rounds(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        rounds = CounterMetricFamily("ottla_sync_rounds", "Rounds of syncs, by how they were run.", labels=["way"])
        files = CounterMetricFamily("ottla_sync_round_files", "Log files that these rounds brought.", labels=["way"])
        seconds = CounterMetricFamily("ottla_sync_round_seconds", "Time that these rounds took.", labels=["way"])
        for way, counters in metrics.sync_rounds.items():
            rounds.add_metric([way], counters.rounds)
            files.add_metric([way], counters.files)
            seconds.add_metric([way], counters.elapsed_us / 1e6)
        yield from (rounds, files, seconds)
        text = "Syncs of a file system that took too long; the files of the round were synced beside them."
        yield _counter("ottla_sync_overtaken", text, metrics.sync_overtaken)

    def _work(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        syncs = HistogramMetricFamily("kafka_log_logflushstats_logflushtime_seconds", "Time of each sync of a log.")
        syncs.add_metric([], cumulative(metrics.syncs), metrics.syncs.sum_us / 1e6)
        yield syncs
        yield _counter("ottla_sync_failures", "Syncs that failed.", metrics.sync_failures)
        yield from self._sync_rounds()
        yield from self._loop()
        steps = CounterMetricFamily("ottla_chore_steps", "Steps of background work.", labels=["chore"])
        failures = CounterMetricFamily("ottla_chore_failures", "Steps that failed.", labels=["chore"])
        seconds = CounterMetricFamily("ottla_chore_seconds", "Time of the broker's thread.", labels=["chore"])
        in_workers = CounterMetricFamily("ottla_chore_worker_seconds", "Time of workers.", labels=["chore"])
        longest = GaugeMetricFamily(
            "ottla_chore_step_max_seconds", "The longest step since the last scrape.", labels=["chore"]
        )
        last = GaugeMetricFamily(
            "ottla_chore_last_step_timestamp_seconds", "When the newest step was; 0 for never.", labels=["chore"]
        )
        freed = CounterMetricFamily("ottla_chore_bytes", "Bytes written, or freed, by the chore.", labels=["chore"])
        for name, counters in metrics.chores.items():
            steps.add_metric([name], counters.steps)
            failures.add_metric([name], counters.failures)
            seconds.add_metric([name], counters.elapsed_us / 1e6)
            in_workers.add_metric([name], counters.worker_us / 1e6)
            longest.add_metric([name], counters.max_us / 1e6)
            last.add_metric([name], counters.last_wall_ms / 1e3)
            freed.add_metric([name], counters.bytes)
            counters.max_us = 0
        yield from (steps, failures, seconds, in_workers, longest, last, freed)

    def _loop(self) -> Iterator[Metric]:
        metrics = self._services.metrics
        lag = HistogramMetricFamily("ottla_loop_lag_seconds", "How late the loop runs what is due.")
        lag.add_metric([], cumulative(metrics.loop_lag), metrics.loop_lag.sum_us / 1e6)
        yield lag
        yield _gauge("ottla_loop_lag_max_seconds", "The longest since the last scrape.", metrics.loop_lag.max_us / 1e6)
        metrics.loop_lag.max_us = 0
        held = HistogramMetricFamily(
            "ottla_request_hold_seconds", "Times for which a request held the loop.", labels=["request"]
        )
        longest = GaugeMetricFamily(
            "ottla_request_hold_max_seconds", "The longest since the last scrape.", labels=["request"]
        )
        for api, histogram in metrics.held.items():
            held.add_metric([api], cumulative(histogram), histogram.sum_us / 1e6)
            longest.add_metric([api], histogram.max_us / 1e6)
            histogram.max_us = 0
        yield from (held, longest)


def _in_pieces(make: Callable[[], _Family], lines: Iterable[tuple[Sequence[str], float]]) -> Iterator[_Family]:
    """A family with one value for each line (labels and value), as several families of the same name with few lines
    each, which are created one by one.
    """
    family = make()
    for labels, value in lines:
        family.add_metric(labels, value)
        if len(family.samples) >= SAMPLES_PER_PIECE:
            yield family
            family = make()
    yield family


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _error_name(code: int) -> str:
    return ErrorCode.of(code).name
