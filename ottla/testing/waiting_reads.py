"""How many reads wait at the end of each partition of a topic, inside a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.fetch.parked_fetches import Tail

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.partitions.partition import Partition


def waiting_reads(catalog: Catalog, topic: str) -> dict[int, int] | None:
    """The number of Fetch and ShareFetch requests that wait for more, by partition; None if there is no such topic.

    Partitions in a log directory that is offline are left out.
    """
    found = catalog.topics.get(topic)
    if found is None:
        return None
    return {partition.index: _waiting_at(partition) for partition in found.partitions if partition is not None}


def _waiting_at(partition: Partition) -> int:
    return sum(len(one.waiting) if isinstance(one, Tail) else 1 for one in partition.watchers)
