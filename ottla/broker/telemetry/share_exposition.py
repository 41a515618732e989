"""The figures of share groups, for `exposition.py`: sessions, share partitions, their records, and loads.

Their names begin with `ottla_`. A broker whose share coordinator is not used yet shows zeros, and a scrape does not
create one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ottla.broker.runtime.metrics import ShareGroupCounters
    from ottla.broker.share.coordinator import ShareCoordinator


def share_group_figures(share_groups: ShareCoordinator | None, counters: ShareGroupCounters) -> Iterator[Metric]:
    """All families; `share_groups` is None if no client has used share groups since the start."""
    gauges: dict[str, tuple[str, float]] = {
        "ottla_share_sessions": ("Share sessions.", share_groups.session_count if share_groups else 0),
        "ottla_share_partitions": (
            "Partitions of share groups whose offsets are stored.",
            share_groups.state_count if share_groups else 0,
        ),
        "ottla_share_group_loads_under_way": (
            "Partitions of share groups' states being loaded.",
            share_groups.shards.loads_under_way if share_groups else 0,
        ),
        "ottla_share_dead_letters_pending": (
            "Dead letters of share groups that are not written yet.",
            share_groups.used.dead_letters.letter_count if share_groups else 0,
        ),
    }
    for name, (text, value) in gauges.items():
        yield GaugeMetricFamily(name, text, value=value)
    counts: dict[str, tuple[str, float]] = {
        "ottla_share_records_acquired": ("Records that members of share groups got.", counters.acquired_records),
        "ottla_share_records_acknowledged": ("Records that they accepted.", counters.acknowledged_records),
        "ottla_share_records_released": (
            "Records that became available again because a member released them, or its session ended.",
            counters.released_records,
        ),
        "ottla_share_records_archived": (
            "Records that were rejected, or delivered as often as is allowed.",
            counters.archived_records,
        ),
        "ottla_share_records_timed_out": (
            "Records that a member had for too long, which are available again or archived.",
            counters.timed_out_records,
        ),
        "ottla_share_dead_letters": ("Dead letters of share groups that were written.", counters.dead_letters),
        "ottla_share_dead_letters_lost": (
            "Records that were archived without the dead letter that their group should have.",
            counters.lost_dead_letters,
        ),
        "ottla_share_group_loads": ("Partitions of share groups' states loaded.", counters.loads),
        "ottla_share_group_load_seconds": ("Time that loading took.", counters.load_us / 1e6),
        "ottla_share_group_load_records": ("Records replayed by loading.", counters.loaded_records),
        "ottla_share_group_load_skipped_records": ("Records that loading could not use.", counters.skipped_records),
    }
    for name, (text, count) in counts.items():
        yield CounterMetricFamily(name, text, value=count)
