"""What is counted, and what Prometheus sees of it."""

from __future__ import annotations

import random

from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import ask, partition_of, pass_time, start_node
from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.node import Node
from ottla.broker.runtime.metrics import REQUEST_BUCKETS_US, Histogram, Metrics
from ottla.broker.telemetry.exposition import Exposition
from ottla.protocol.api.metadata import MetadataRequest


def scraped(node: Node) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by (name, labels)."""
    text = Exposition(node.services, node.cleaner).render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_time_belongs_to_the_bucket_whose_bound_it_reaches() -> None:
    histogram = Histogram()
    for elapsed_us in (1, 100, 101, 10**9):
        histogram.observe(elapsed_us)
    assert histogram.counts[0] == 2
    assert histogram.counts[1] == 1
    assert histogram.counts[-1] == 1
    assert len(histogram.counts) == len(REQUEST_BUCKETS_US) + 1
    assert histogram.count == 4


def test_counters_of_a_deleted_topic_stay_in_the_totals_only() -> None:
    metrics = Metrics()
    metrics.topic("a").messages_in += 5
    metrics.forget_topic("a")
    metrics.topic("a").messages_in += 1
    assert metrics.removed_topics.messages_in == 5
    assert metrics.topic("a").messages_in == 1


def test_a_scrape_shows_brokers_topics_requests_logs_and_chores() -> None:
    node, _, _ = start_node()
    node.services.catalog.create_topics([NewTopic("orders", partitions=2)], lambda _: None)
    node.settle()
    node.services.metrics.topic("orders").messages_in += 7
    node.services.metrics.topic("orders").bytes_in += 700
    node.services.metrics.meter("Produce", 9, 0).note(250, 1)
    node.services.metrics.meter("Produce", 9, 3).note(250, 1)
    node.services.metrics.connections_opened += 2
    samples = scraped(node)
    assert samples["kafka_server_brokertopicmetrics_messagesin_total", ()] == 7
    assert samples["kafka_server_brokertopicmetrics_bytesin_by_topic_total", (("topic", "orders"),)] == 700
    assert samples["kafka_network_requestmetrics_requests_total", (("request", "Produce"), ("version", "9"))] == 2
    errors = "kafka_network_requestmetrics_errors_total"
    assert samples[errors, (("error", "UNKNOWN_TOPIC_OR_PARTITION"), ("request", "Produce"))] == 1
    assert samples["kafka_network_requestmetrics_totaltime_seconds_count", (("request", "Produce"),)] == 2
    assert samples["kafka_log_log_logendoffset", (("partition", "1"), ("topic", "orders"))] == 0
    assert samples["kafka_server_replicamanager_partitioncount", ()] == 2
    assert samples["kafka_server_socketservermetrics_connection_count", ()] == 2
    assert samples["kafka_log_logmanager_offlinelogdirectorycount", ()] == 0
    assert samples["kafka_log_logflushstats_logflushtime_seconds_count", ()] > 0
    assert ("ottla_chore_steps_total", (("chore", "retention"),)) in samples


def test_buckets_are_cumulative() -> None:
    node, _, _ = start_node()
    for elapsed_us in (50, 200, 10**8):
        node.services.metrics.meter("Fetch", 4, 0).note(elapsed_us, 1)
    samples = scraped(node)
    name = "kafka_network_requestmetrics_totaltime_seconds_bucket"
    assert samples[name, (("le", "0.0001"), ("request", "Fetch"))] == 1
    assert samples[name, (("le", "0.00025"), ("request", "Fetch"))] == 2
    assert samples[name, (("le", "+Inf"), ("request", "Fetch"))] == 3


def test_totals_do_not_fall_when_a_topic_is_deleted() -> None:
    node, _, _ = start_node()
    ask(node, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 9)
    node.services.metrics.topic("t").messages_in += 5
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    samples = scraped(node)
    assert samples["kafka_server_brokertopicmetrics_messagesin_total", ()] == 5
    assert not [name for name, labels in samples if ("topic", "t") in labels]


def test_no_figure_is_negative_after_the_clock_was_put_back() -> None:
    node, _, clock = start_node()
    make_topic(node, "t", cleanup_policy="compact")
    partition = partition_of(node, "t")
    Exchange(node).ask(produce_request("t", batch()), 9)
    partition.log.roll(clock.wall_ms())
    pass_time(node, clock, 60_000)
    assert node.cleaner.figures.last_look_wall_ms, "the cleaner has looked"
    clock.set_wall(clock.wall_ms() - 365 * 24 * 3600 * 1000)
    assert [name for name, value in scraped(node).items() if value < 0] == []


def test_a_scrape_shows_what_the_start_had_to_quarantine() -> None:
    node, files, clock = start_node(ottla_redo_log_enable=False)
    make_topic(node, "t")
    for _ in range(3):
        Exchange(node).ask(produce_request("t", batch(1)), 9)
    log = node.services.catalog.topics["t"].partitions[0].log  # type: ignore[union-attr]
    first = log.segments[0]
    first.file.pwritev([b"?"], first.size_bytes // 3 + 40)  # in the second of three batches
    first.file.fdatasync()
    again, _, _ = start_node(files.crash(random.Random(0)), clock)
    samples = scraped(again)
    assert samples["ottla_recovery_kept_aside_files", ()] == 1
    assert samples["ottla_recovery_scanned_bytes", ()] > 0


def test_a_scrape_shows_the_memory_of_answers() -> None:
    node, _, _ = start_node(ottla_connections_max_unsent_bytes=10 << 20)
    memory = node.services.answer_memory
    reservation = memory.reserve(4 << 20)
    assert reservation is not None
    leaves = memory.wait(8 << 20, lambda reservation: None)
    slow = Slow()
    memory.note_unsent(slow, 1 << 20)
    figures = ("reserved_bytes", "unsent_bytes", "max_bytes", "waiting", "closed_connections_total")

    def shown() -> list[float]:
        samples = scraped(node)
        return [samples[f"ottla_answer_memory_{figure}", ()] for figure in figures]

    assert shown() == [4 << 20, 1 << 20, 10 << 20, 1, 0]
    leaves()
    memory.note_unsent(Slow(), 6 << 20)  # over the bound: the one that has left its answer for longest goes
    reservation.release()
    assert shown() == [0, 6 << 20, 10 << 20, 0, 1]
    assert slow.is_closed


class Slow:
    """A connection whose client takes nothing."""

    is_closed = False

    def close(self, reason: str) -> None:
        self.is_closed = True

    def abort(self) -> None:
        pass
