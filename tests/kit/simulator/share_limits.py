"""Limits of share groups with which a world reaches what takes a broker days: sessions of members that do not end by
time, small segments of `__share_group_state`, snapshots after few updates, and the removal of superseded records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from unittest import mock

from kit.simulator.members import SESSION_TIMEOUT_MS

from ottla.broker.share import shard

KEYS: Final[dict[str, object]] = {
    "group.share.session.timeout.ms": SESSION_TIMEOUT_MS,
    "group.share.max.session.timeout.ms": SESSION_TIMEOUT_MS,
    "share.coordinator.state.topic.num.partitions": 2,
    "share.coordinator.state.topic.segment.bytes": 1024,
    "share.coordinator.state.topic.prune.interval.ms": 1000,
    "share.coordinator.snapshot.update.records.per.snapshot": 4,
}
"""Of the broker."""
RECORDS_LEFT: Final = 12
RECORDS_PER_STATE: Final = 2


@contextmanager
def few_records_left() -> Iterator[None]:
    """Old snapshots are written again after few records."""
    with (
        mock.patch.object(shard, "RECORDS_LEFT", RECORDS_LEFT),
        mock.patch.object(shard, "RECORDS_PER_STATE", RECORDS_PER_STATE),
    ):
        yield
