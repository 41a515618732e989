"""The figures of transactions, for `exposition.py`: how many there are, how they ended, and loads.

Kafka has hardly any of them, so their names begin with `ottla_`. A broker whose coordinator is not used yet shows
zeros, and a scrape does not create one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ottla.broker.runtime.metrics import TransactionCounters
    from ottla.broker.transactions.coordinator import TransactionCoordinator


def transaction_figures(transactions: TransactionCoordinator | None, counters: TransactionCounters) -> Iterator[Metric]:
    """All families; `transactions` is None if no client has used transactions since the start."""
    gauges = {
        "ottla_transactional_ids": ("Transactional ids.", transactions.id_count if transactions else 0),
        "ottla_transactions_open": (
            "Transactions that are open or being ended.",
            transactions.open_count if transactions else 0,
        ),
        "ottla_transactions_oldest_open_seconds": (
            "For how long the oldest of them has been open; 0 without one.",
            transactions.oldest_open_ms() / 1e3 if transactions else 0,
        ),
        "ottla_transaction_loads_under_way": (
            "Partitions of transactional ids being loaded.",
            transactions.loads_under_way if transactions else 0,
        ),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value=value)
    aborted = CounterMetricFamily(
        "ottla_transactions_aborted",
        "Transactions aborted: by their producer, by their timeout, or by another producer of the same id.",
        labels=["reason"],
    )
    for reason, count in counters.aborts.items():
        aborted.add_metric([reason], count)
    yield aborted
    counts = {
        "ottla_transactions_begun": ("Transactions begun.", counters.begun),
        "ottla_transactions_committed": ("Transactions committed, their markers visible.", counters.committed),
        "ottla_transactional_ids_expired": ("Transactional ids that were forgotten.", counters.expired),
        "ottla_transaction_loads": ("Partitions of transactional ids loaded.", counters.loads),
        "ottla_transaction_load_seconds": ("Time that loading took.", counters.load_us / 1e6),
        "ottla_transaction_load_records": ("Records replayed by loading.", counters.loaded_records),
        "ottla_transaction_load_skipped_records": (
            "Records that loading could not use.",
            counters.skipped_records,
        ),
    }
    for name, (text, value) in counts.items():
        yield CounterMetricFamily(name, text, value=value)
