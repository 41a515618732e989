"""Errors of readers on the disk: reads that failed, and damage.

Damage is counted for each answer and logged once a minute for each partition: a consumer that is refused tries again
and again, and so does each member of its group. Called on the broker's thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.storage.files.disk_errors import level_of

if TYPE_CHECKING:
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import Metrics
    from ottla.protocol.errors import KafkaError

LOG = logging.getLogger("ottla.partition")
LINE_INTERVAL_MS: Final = 60_000


def note_damage(metrics: Metrics, now_ms: int, partition: Partition, wanted: str, error: KafkaError) -> None:
    """Note that a read of `wanted` (`offset 5`) is answered CORRUPT_MESSAGE; `error` says where the damage is.

    `now_ms` is monotonic.
    """
    metrics.corrupt_reads += 1
    partition.corrupt_reads += 1
    if now_ms < partition.next_damage_line_ms:
        return
    partition.next_damage_line_ms = now_ms + LINE_INTERVAL_MS
    LOG.error(
        "%s-%d: damaged: a read of %s is answered CORRUPT_MESSAGE (%s). What is before it is served, and consumers"
        " may seek past it; `ottla log verify`, while the broker is stopped, says what can be mended",
        partition.topic,
        partition.index,
        wanted,
        error.message,
    )


def note_read_error(partition: Partition, error: OSError) -> None:
    """Log a read that the disk has failed. The directory stays online, because other reads may succeed."""
    LOG.log(level_of(error), "%s-%d: reading failed: %s", partition.topic, partition.index, error)
