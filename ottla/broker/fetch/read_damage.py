"""Damage that a reader met: counted for each answer, and logged once a minute for each partition.

A consumer that is refused asks again and again, and so does each of its group. Called on the broker's thread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.node import Node
    from ottla.broker.partitions.partition import Partition
    from ottla.protocol.errors import KafkaError

LOG = logging.getLogger("ottla.partition")
LINE_INTERVAL_MS: Final = 60_000


def note_damage(node: Node, partition: Partition, wanted: str, error: KafkaError) -> None:
    """What was `wanted` (`offset 5`) is answered CORRUPT_MESSAGE: `error` says where the damage is."""
    node.metrics.corrupt_reads += 1
    partition.corrupt_reads += 1
    now_ms = node.clock.monotonic_ms()
    if now_ms < partition.next_damage_line_ms:
        return
    partition.next_damage_line_ms = now_ms + LINE_INTERVAL_MS
    LOG.error(
        "%s-%d: damaged: a read of %s is answered CORRUPT_MESSAGE (%s). What lies before it is served, and consumers"
        " may seek behind it; `ottla log verify`, while the broker is stopped, says what can be mended",
        partition.topic,
        partition.index,
        wanted,
        error.message,
    )
