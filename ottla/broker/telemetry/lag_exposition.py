"""`ottla_group_lag`: the lag of each group in each partition, for `exposition.py`.

There may be as many lines as all other figures have together, so a line is created with its piece of the scrape: the
places are listed at the beginning, in steps, and the lag is looked up later. A place that no longer exists then is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.samples import Sample

from ottla.broker.groups.lag import CommittedPlace, committed_places, lag_of
from ottla.broker.telemetry.pause import PAUSE

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.groups.coordinator import GroupCoordinator

NAME = "ottla_group_lag"


def group_lag(groups: GroupCoordinator, catalog: Catalog, most: int) -> Iterator[Metric]:
    """The lag by group, topic and partition, at most `most` lines (`ottla.metrics.group.lag.max.series`), and how many
    committed offsets are left out.
    """
    places: list[CommittedPlace] = []
    if most:
        steps = committed_places(groups, most)
        while True:
            yield PAUSE
            try:
                next(steps)
            except StopIteration as end:
                places = end.value
                break
    family = GaugeMetricFamily(
        NAME,
        "Offsets below the high watermark that the group has not committed.",
        labels=["group", "topic", "partition"],
    )
    family.samples = _Lags(groups, catalog, places)  # type: ignore[assignment]  # a list that is made piece by piece
    yield family
    omitted = GaugeMetricFamily(f"{NAME}_omitted", "Committed offsets that ottla_group_lag leaves out.")
    omitted.add_metric([], max(0, groups.offset_count - len(places)) if most else 0)
    yield omitted


class _Lags(Sequence[Sample]):
    """The samples; slices are created on access."""

    def __init__(self, groups: GroupCoordinator, catalog: Catalog, places: list[CommittedPlace]) -> None:
        self._groups = groups
        self._catalog = catalog
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            made = ((place, lag_of(self._groups, self._catalog, place)) for place in self._places[index])
            return [_sample(place, lag) for place, lag in made if lag is not None]
        place = self._places[index]
        return _sample(place, lag_of(self._groups, self._catalog, place) or 0)


def _sample(place: CommittedPlace, lag: int) -> Sample:
    group_id, topic, index = place
    return Sample(NAME, {"group": group_id, "topic": topic, "partition": str(index)}, lag)
