"""The figures of logins, of quotas and of the audit log, for `exposition.py`.

They are by listener and mechanism, and by kind of quota only: clients choose their names and ids, and a scrape must not
grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from ottla.broker.telemetry.buckets import cumulative

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ottla.broker.runtime.metrics import LoginCounters
    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.quotas import Quotas


_SERVER = "kafka_server_socketservermetrics"
_LOGINS: dict[str, tuple[str, str]] = {
    "successful": ("successful_authentication", "Clients that have logged in."),
    "failed": ("failed_authentication", "Clients that have failed to log in."),
    "successful_without_reauthentication": (
        "successful_authentication_no_reauth",
        "Clients that have logged in and do not know of re-authentication.",
    ),
    "successful_reauthentications": ("successful_reauthentication", "Clients that have logged in again."),
    "failed_reauthentications": ("failed_reauthentication", "Clients that have failed to log in again."),
    "expired_connections_killed": (
        "expired_connections_killed",
        "Connections closed because their session had expired.",
    ),
}


def login_figures(logins: Mapping[tuple[str, str], LoginCounters]) -> Iterator[Metric]:
    """All families, by listener and mechanism."""
    labels = ["listener", "mechanism"]
    for attribute, (name, text) in _LOGINS.items():
        family = CounterMetricFamily(f"{_SERVER}_{name}", text, labels=labels)
        for key, counters in logins.items():
            family.add_metric(key, getattr(counters, attribute))
        yield family
    times = HistogramMetricFamily(
        f"{_SERVER}_reauthentication_latency_seconds", "Time of logging in again.", labels=labels
    )
    for key, counters in logins.items():
        histogram = counters.reauthentication_times
        times.add_metric(key, cumulative(histogram), histogram.sum_us / 1e6)
    yield times


def audit_figures(audit: Audit | None) -> Iterator[Metric]:
    """All families; zeros without an audit log."""
    written, dropped = (0, 0) if audit is None else (audit.written, audit.dropped)
    yield CounterMetricFamily("ottla_audit_events", "Events written to the audit log.", value=written)
    yield CounterMetricFamily("ottla_audit_dropped", "Events left out of the audit log.", value=dropped)


def quota_figures(quotas: Quotas) -> Iterator[Metric]:
    """All families."""
    throttled = CounterMetricFamily(
        "ottla_throttled", "Requests and connections whose client had to wait.", labels=["quota"]
    )
    waits = CounterMetricFamily("ottla_throttle_seconds", "The sum of these waits.", labels=["quota"])
    for kind, count in quotas.counters.throttled.items():
        throttled.add_metric([kind], count)
        waits.add_metric([kind], quotas.counters.throttle_ms[kind] / 1e3)
    yield throttled
    yield waits
    accounts = 0 if quotas.clients is None else quotas.clients.account_count
    yield GaugeMetricFamily("ottla_quota_accounts", "Clients under quotas that are remembered.", value=accounts)
