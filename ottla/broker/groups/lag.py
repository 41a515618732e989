"""The lag of groups: for each committed offset, the number of visible offsets of the partition beyond it.

These are figures for a scrape; the coordinator does not use them. Groups with members come first, and no more than the
caller asked for are read. Offsets of compacted records and of transaction markers count, as in all tools that subtract
offsets.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.coordinator import GroupCoordinator


PLACES_PER_STEP: Final = 2_000
"""Groups that are checked, and their places: a millisecond."""

CommittedPlace = tuple[str, str, int]
"""The place of a group's offset: group id, topic, partition. A plain tuple: ten thousand may be made at once."""


def committed_places(groups: GroupCoordinator, most: int) -> Generator[None, None, list[CommittedPlace]]:
    """At most `most` places: first of groups that have members, then of the other groups. Yields to other work after
    each `PLACES_PER_STEP`; a group that changes meanwhile is in the list once, or not at all.
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
    """The number of offsets from the committed one to the high watermark, 0 where the commit is beyond it. None where
    there is no commit any more, or the partition is deleted or offline.
    """
    group_id, topic, index = place
    shard, partition = groups.shards.get(group_id), catalog.partition(topic, index)
    committed = None if shard is None else shard.offsets.get(group_id, topic, index)
    if committed is None or partition is None:
        return None
    return max(0, partition.high_watermark - committed.offset)
