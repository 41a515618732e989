"""How a stream's limit of offsets for a micro-batch is divided among partitions. Pure.

The division is in proportion to the backlog of each partition, as in Spark's Kafka source. Here the rest from rounding
is divided too: a batch has exactly the limit, and the last one of a backlog is never a handful of records. A partition
with something to read gets at least one offset, else a small one would starve beside a large one. With more such
partitions than the limit allows, a batch has one offset of each.

Worked example: 5, 100 and 1 wait, the limit is 10. Shares: 0.47, 9.43, 0.09. Each gets 1; the other 7 are divided by
the rest of the shares, 0, 8.43 and 0: the batch takes 1, 8 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.options import TopicPartition


def share_out(waiting: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return how many of the `waiting` offsets (none below 0) a batch takes of each partition."""
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    takes = {place: min(1, count) for place, count in waiting.items()}
    left = most - sum(takes.values())
    if left <= 0:
        return takes
    behind = {place: count - takes[place] for place, count in waiting.items()}
    still_waiting = total - sum(takes.values())
    remainders = []
    given = 0
    for place, count in behind.items():
        whole, remainder = divmod(count * left, still_waiting)
        takes[place] += whole
        given += whole
        remainders.append((-remainder, place))
    for _, place in sorted(remainders)[: left - given]:
        takes[place] += 1
    return takes
