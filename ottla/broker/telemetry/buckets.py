"""Conversion of Ottla's histograms for Prometheus: each count includes those of all smaller buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.runtime.metrics import REQUEST_BUCKETS_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.runtime.metrics import Histogram


def cumulative(histogram: Histogram) -> Sequence[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds."""
    bounds = [repr(bound / 1e6) for bound in REQUEST_BUCKETS_US] + ["+Inf"]
    total = 0
    buckets = []
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets
