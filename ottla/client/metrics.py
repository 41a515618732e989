"""A client's metrics, under Kafka's metric names, as a plain dict of numbers.

Totals count since the start. Averages, maxima and rates cover the last half to whole minute, like Kafka's with two
samples of 30 seconds. Values are recorded per batch and per request, not per record, so that the cost is negligible.
They are first collected in rows, which are added up column by column (`SpreadRows`). The time is passed in, in seconds
of a clock that never goes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

SAMPLE_S = 30.0
"""Kafka's `metrics.sample.window.ms`; there are two samples."""
ROWS_S = 1.0
"""How long rows are kept before they are added up: they then count in the sample of the last one."""
MOST_ROWS = 256


class Spread:
    """The recent average, maximum and frequency of a value, and its sum since the start."""

    __slots__ = ("_before", "_began", "_ends", "_largest", "_past", "_past_began", "count", "total")

    def __init__(self, now: float) -> None:
        self.count = 0
        self.total = 0.0
        self._began = now
        self._ends = now + SAMPLE_S
        self._past_began = now
        self._before = (0, 0.0)
        """Count and total at the beginning of this sample."""
        self._largest = -math.inf
        self._past = (0, 0.0, -math.inf)

    def add(self, value: float, now: float) -> None:
        """Record a value."""
        if now >= self._ends:
            self._turn(now)
        self.count += 1
        self.total += value
        if value > self._largest:  # noqa: PLR1730  # a call of max costs four times the comparison
            self._largest = value

    def add_all(self, values: Sequence[float], now: float) -> None:
        """Record several values."""
        if now >= self._ends:
            self._turn(now)
        self.count += len(values)
        self.total += sum(values)
        self._largest = max(self._largest, *values)

    def _turn(self, now: float) -> None:
        is_recent = now - self._began < 2 * SAMPLE_S
        self._past = self._sample() if is_recent else (0, 0.0, -math.inf)
        self._past_began = self._began if is_recent else now - SAMPLE_S
        self._before = (self.count, self.total)
        self._largest = -math.inf
        self._began = now
        self._ends = now + SAMPLE_S

    def _sample(self) -> tuple[int, float, float]:
        """Return (count, sum, maximum) of this sample."""
        count, total = self._before
        return self.count - count, self.total - total, self._largest

    def lately(self, now: float) -> tuple[int, float, float, float]:
        """Return (count, sum, maximum, seconds) of the last one or two samples; the maximum is NaN without any."""
        if now >= self._ends:
            self._turn(now)
        sample = self._sample()
        count, total, largest = sample[0] + self._past[0], sample[1] + self._past[1], max(sample[2], self._past[2])
        return count, total, largest if count else math.nan, max(now - self._past_began, 1.0)

    def average(self, now: float) -> float:
        """Return the recent average, NaN without any value."""
        count, total, _, _ = self.lately(now)
        return total / count if count else math.nan

    def largest(self, now: float) -> float:
        """Return the recent maximum, NaN without any value."""
        return self.lately(now)[2]

    def rate(self, now: float) -> float:
        """Return the recent number of values per second."""
        count, _, _, seconds = self.lately(now)
        return count / seconds

    def sum_rate(self, now: float) -> float:
        """Return the recent sum of values per second."""
        _, total, _, seconds = self.lately(now)
        return total / seconds


class SpreadRows:
    """Spreads that each get a value at the same time: rows of values are collected, and added up together."""

    __slots__ = ("_due_at", "_last_at", "_rows", "_spreads")

    def __init__(self, now: float, *spreads: Spread) -> None:
        self._spreads = spreads
        self._rows: list[tuple[float, ...]] = []
        self._last_at = now
        self._due_at = now + ROWS_S

    def add(self, now: float, *values: float) -> None:
        """Record a value for each spread."""
        if now >= self._due_at or len(self._rows) == MOST_ROWS:
            self.add_up(now)
        self._rows.append(values)
        self._last_at = now

    def add_up(self, now: float) -> None:
        """Add the recorded rows to the spreads; call it before reading them."""
        if self._rows:
            for spread, values in zip(self._spreads, zip(*self._rows, strict=True), strict=True):
                spread.add_all(values, self._last_at)
            self._rows.clear()
        self._due_at = now + ROWS_S


class ConnectionMetrics:
    """The metrics of all connections of a client."""

    def __init__(self, now: float) -> None:
        self.sent_bytes = Spread(now)
        self.received_bytes = Spread(now)
        self.latency_ms = Spread(now)
        self.connections = Spread(now)
        self.connections_closed = Spread(now)
        self.answers = SpreadRows(now, self.received_bytes, self.latency_ms)

    def snapshot(self, now: float) -> dict[str, float]:
        """Return the metrics by name."""
        self.answers.add_up(now)
        return {
            "connection-creation-total": self.connections.count,
            "connection-close-total": self.connections_closed.count,
            "connection-count": self.connections.count - self.connections_closed.count,
            "request-total": self.sent_bytes.count,
            "request-rate": self.sent_bytes.rate(now),
            "request-size-avg": self.sent_bytes.average(now),
            "request-size-max": self.sent_bytes.largest(now),
            "outgoing-byte-total": self.sent_bytes.total,
            "outgoing-byte-rate": self.sent_bytes.sum_rate(now),
            "response-total": self.received_bytes.count,
            "response-rate": self.received_bytes.rate(now),
            "incoming-byte-total": self.received_bytes.total,
            "incoming-byte-rate": self.received_bytes.sum_rate(now),
            "request-latency-avg": self.latency_ms.average(now),
            "request-latency-max": self.latency_ms.largest(now),
        }


class ProducerMetrics:
    """The metrics of a producer's batches."""

    def __init__(self, now: float) -> None:
        self.records_sent = Spread(now)
        self.record_errors = Spread(now)
        self.record_retries = Spread(now)
        self.batch_bytes = Spread(now)
        self.compression_rate = Spread(now)
        self.queue_ms = Spread(now)
        self.records_per_request = Spread(now)
        self.batch_splits = Spread(now)
        self.throttle_ms = Spread(now)
        """The throttle times of throttled answers."""
        self.batches = SpreadRows(now, self.records_sent, self.batch_bytes, self.compression_rate, self.queue_ms)
        """One row for each batch that is sent for the first time."""
        self.alone = SpreadRows(
            now, self.records_sent, self.batch_bytes, self.compression_rate, self.queue_ms, self.records_per_request
        )
        """The same for a batch that is alone in its request."""

    def snapshot(self, now: float) -> dict[str, float]:
        """Return the metrics by name."""
        self.batches.add_up(now)
        self.alone.add_up(now)
        batch_bytes = self.batch_bytes.average(now)
        batches, _, _, _ = self.batch_bytes.lately(now)
        records = self.records_sent.lately(now)[1]
        requests, _, _, _ = self.records_per_request.lately(now)
        throttled, throttle_ms, longest_ms, _ = self.throttle_ms.lately(now)
        return {
            "record-send-total": self.records_sent.total,
            "record-send-rate": self.records_sent.sum_rate(now),
            "record-error-total": self.record_errors.total,
            "record-error-rate": self.record_errors.sum_rate(now),
            "record-retry-total": self.record_retries.total,
            "record-retry-rate": self.record_retries.sum_rate(now),
            "record-size-avg": batch_bytes * batches / records if records else math.nan,
            "batch-size-avg": batch_bytes,
            "batch-size-max": self.batch_bytes.largest(now),
            "byte-total": self.batch_bytes.total,
            "byte-rate": self.batch_bytes.sum_rate(now),
            "compression-rate-avg": self.compression_rate.average(now),
            "record-queue-time-avg": self.queue_ms.average(now),
            "record-queue-time-max": self.queue_ms.largest(now),
            "records-per-request-avg": self.records_per_request.average(now),
            "batch-split-total": self.batch_splits.count,
            "batch-split-rate": self.batch_splits.rate(now),
            "produce-throttle-time-avg": throttle_ms / requests if requests else math.nan,
            "produce-throttle-time-max": longest_ms if throttled else 0.0 if requests else math.nan,
        }


class ConsumerMetrics:
    """The metrics of a consumer's fetches."""

    def __init__(self, now: float) -> None:
        self.fetched_bytes = Spread(now)
        self.fetch_latency_ms = Spread(now)
        self.consumed_bytes = Spread(now)
        self.consumed_records = Spread(now)
        self.throttle_ms = Spread(now)
        self.fetches = SpreadRows(now, self.fetched_bytes, self.fetch_latency_ms, self.throttle_ms)
        """One row for each answer."""
        self.decoded = SpreadRows(now, self.consumed_records, self.consumed_bytes)
        """One row for some batches that were decoded in one step."""

    def snapshot(self, now: float, lags: Mapping[tuple[str, int], int]) -> dict[str, float]:
        """Return the metrics by name; `lags` are numbers of records by partition."""
        self.fetches.add_up(now)
        self.decoded.add_up(now)
        found = {
            "fetch-total": self.fetch_latency_ms.count,
            "fetch-rate": self.fetch_latency_ms.rate(now),
            "fetch-latency-avg": self.fetch_latency_ms.average(now),
            "fetch-latency-max": self.fetch_latency_ms.largest(now),
            "fetch-size-avg": self.fetched_bytes.average(now),
            "fetch-size-max": self.fetched_bytes.largest(now),
            "fetch-throttle-time-avg": self.throttle_ms.average(now),
            "fetch-throttle-time-max": self.throttle_ms.largest(now),
            "bytes-consumed-total": self.consumed_bytes.total,
            "bytes-consumed-rate": self.consumed_bytes.sum_rate(now),
            "records-consumed-total": self.consumed_records.total,
            "records-consumed-rate": self.consumed_records.sum_rate(now),
            "records-lag-max": max(lags.values(), default=math.nan),
        }
        found |= {f"records-lag{{topic={topic},partition={index}}}": lag for (topic, index), lag in lags.items()}
        return found


class GroupMetrics:
    """The metrics of a group's member."""

    def __init__(self, now: float) -> None:
        self.commit_latency_ms = Spread(now)
        self.failed_commits = Spread(now)
        self.heartbeat_latency_ms = Spread(now)
        self.rebalances = Spread(now)
        self.revoked = Spread(now)
        self.lost = Spread(now)

    def snapshot(self, now: float) -> dict[str, float]:
        """Return the metrics by name."""
        return {
            "commit-total": self.commit_latency_ms.count,
            "commit-rate": self.commit_latency_ms.rate(now),
            "commit-latency-avg": self.commit_latency_ms.average(now),
            "commit-latency-max": self.commit_latency_ms.largest(now),
            "failed-commit-total": self.failed_commits.count,
            "heartbeat-total": self.heartbeat_latency_ms.count,
            "heartbeat-rate": self.heartbeat_latency_ms.rate(now),
            "heartbeat-response-time-max": self.heartbeat_latency_ms.largest(now),
            "rebalance-total": self.rebalances.count,
            "partitions-revoked-total": self.revoked.total,
            "partitions-lost-total": self.lost.total,
        }
