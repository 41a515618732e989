"""How far groups are behind: for each committed offset, how many offsets the partition shows beyond it.

Figures for a scrape, and nothing that the coordinator acts by. Of many groups those with members come first, and no
more than the caller takes; looking on costs nothing then. A record that compaction or a transaction's marker stands for
counts as one, as in all tools that subtract offsets.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.coordinator import GroupCoordinator


PLACES_PER_STEP: Final = 2_000
"""Groups that are looked at, and their places: a millisecond."""

CommittedPlace = tuple[str, str, int]
"""Where a group has an offset: its id, topic, partition. A plain tuple: ten thousand of them are made in one go."""


def committed_places(groups: GroupCoordinator, most: int) -> Generator[None, None, list[CommittedPlace]]:
    """At most `most` places: first of groups that have members, then of the others, as they come. Stops for others
    after each `PLACES_PER_STEP`; a group that changes meanwhile is in the list once, or not at all.
    """
    places: list[CommittedPlace] = []
    taken: set[str] = set()
    left = PLACES_PER_STEP
    for wants_empty in (False, True):
        for shard in groups.shards.active():
            for group_id in list(shard.offsets.groups()):
                left -= 1
                group = shard.groups.get(group_id)
                if (group is None or group.is_empty) is wants_empty and group_id not in taken:
                    taken.add(group_id)
                    before = len(places)
                    for topic, partitions in shard.offsets.of(group_id).items():
                        places += [(group_id, topic, index) for index in islice(partitions, most - len(places))]
                    left -= len(places) - before
                if len(places) >= most:
                    return places
                if left <= 0:
                    left = PLACES_PER_STEP
                    yield
    return places


def lag_of(groups: GroupCoordinator, catalog: Catalog, place: CommittedPlace) -> int | None:
    """Offsets below the high watermark that are not committed, 0 where the commit lies beyond it; None where there is
    no commit any more, or the partition is gone or offline.
    """
    group_id, topic, index = place
    shard, partition = groups.shards.get(group_id), catalog.partition(topic, index)
    committed = None if shard is None else shard.offsets.get(group_id, topic, index)
    if committed is None or partition is None:
        return None
    return max(0, partition.high_watermark - committed.offset)
