"""The figures of quotas and of the audit log, for `exposition.py`: who had to wait, and what was written of that.

By kind of quota only: clients choose their ids, and a scrape shall not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ottla.broker.security.audit import Audit
    from ottla.broker.security.quotas.quotas import Quotas


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
    waits = CounterMetricFamily("ottla_throttle_seconds", "For how long in all.", labels=["quota"])
    for kind, count in quotas.counters.throttled.items():
        throttled.add_metric([kind], count)
        waits.add_metric([kind], quotas.counters.throttle_ms[kind] / 1e3)
    yield throttled
    yield waits
    accounts = 0 if quotas.clients is None else quotas.clients.account_count
    yield GaugeMetricFamily("ottla_quota_accounts", "Clients under quotas that are remembered.", value=accounts)
