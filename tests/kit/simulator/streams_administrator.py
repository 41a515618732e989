"""A simulated administrator of streams groups: it creates the topics that they wait for, deletes internal topics, sets
standby replicas, deletes offsets and groups, and looks at all of that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import SET, Administrator
from kit.simulator.members import Committer, ask_for_offsets
from kit.simulator.model import Model
from kit.simulator.share_administrator import GROUP_RESOURCE
from kit.simulator.streams_requests import DESCRIBE_VERSION, INTERNAL

from ottla.protocol.api.delete_topics import DeleteTopicsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line
    from kit.simulator.streams_model import StreamsGroupModel

STANDBY_REPLICAS: Final = "streams.num.standby.replicas"


class StreamsAdministrator:
    """See the module. `line` is given anew for each life of the broker."""

    def __init__(
        self, model: Model, groups: Sequence[StreamsGroupModel], administrator: Administrator, chance: random.Random
    ) -> None:
        """`administrator` makes topics."""
        self._model = model
        self._groups = groups
        self._administrator = administrator
        self._chance = chance
        self._committers = [Committer(model, group.application.group, chance) for group in groups]
        self.line: Line

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [
            (12, self._create_source),
            (1, self._delete_internal),
            (1, self._set),
            (3, self._fetch),
            (0.3, self._delete),
            (1, self._describe),
        ]

    # -- topics -------------------------------------------------------------------------------------------------------

    def create_sources(self, group: StreamsGroupModel) -> None:
        """All topics that the group reads and that are not there."""
        for name in self._missing(group):
            self._administrator.create_named(self.line, name)

    def _missing(self, group: StreamsGroupModel) -> list[str]:
        model = self._model
        names = group.application.source_topics
        return [name for name in names if name not in model.topics and name not in model.creating]

    def _create_source(self) -> None:
        missing = self._missing(self._chance.choice(self._groups))
        if missing:
            self._administrator.create_named(self.line, self._chance.choice(missing))

    def _delete_internal(self) -> None:
        self.partition_counts(self._delete_one)

    def _delete_one(self, counts: Mapping[str, int]) -> None:
        """One that does not fit any more, or now and then any of them."""
        names = [name for group in self._groups for name in ill_fitting(group, counts)]
        if not names and self._chance.random() < 0.3:
            names = sorted(name for name in counts if name.startswith(INTERNAL))
        if names:
            self.delete_topics([self._chance.choice(names)])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Whether they are deleted does not matter."""
        self.line.send(DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000), 5, _ignored)

    def partition_counts(self, then: Callable[[Mapping[str, int]], None]) -> None:
        """Call `then` with the number of partitions of each topic that there is."""

        def answered(response: Response) -> None:
            assert isinstance(response, MetadataResponse)
            then({topic.name or "": len(topic.partitions) for topic in response.topics})

        self.line.send(MetadataRequest(topics=None), 12, answered)

    # -- groups -------------------------------------------------------------------------------------------------------

    def _set(self) -> None:
        kind = IncrementalAlterConfigsRequest
        value = self._chance.choice(("0", "0", "1", "2"))
        change = kind.AlterableConfig(name=STANDBY_REPLICAS, config_operation=SET, value=value)
        name = self._chance.choice(self._groups).application.group
        resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=name, configs=[change])
        self.line.send(kind(resources=[resource], validate_only=False), 1, _ignored)

    def _fetch(self) -> None:
        """Ask for all offsets of a group."""
        group = self._chance.choice(self._groups).application.group
        places = [
            place for place in sorted(self._model.commits) if place[0] == group and place[1] in self._model.topics
        ]
        if places:
            ask_for_offsets(self.line, self._model, group, places)

    def _delete(self) -> None:
        self._chance.choice(self._committers).delete(self.line)

    def _describe(self) -> None:
        group = self._chance.choice(self._groups)
        self.describe(group, lambda found: None if found is None else group.check_disjoint(found))

    def describe(
        self,
        group: StreamsGroupModel,
        then: Callable[[StreamsGroupDescribeResponse.DescribedGroup | None], object],
    ) -> None:
        """Call `then` with a group; with None for one that is not there. Not if the broker cannot say it now."""

        def answered(response: Response) -> None:
            assert isinstance(response, StreamsGroupDescribeResponse)
            found = response.groups[0]
            if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                then(None)
            elif found.error_code == ErrorCode.NONE:
                then(found)

        request = StreamsGroupDescribeRequest(group_ids=[group.application.group], include_authorized_operations=False)
        self.line.send(request, DESCRIBE_VERSION, answered)


def _ignored(response: Response) -> None:
    """Whether it was done shows elsewhere."""


def wanted_counts(group: StreamsGroupModel, counts: Mapping[str, int]) -> dict[str, int]:
    """The numbers of tasks of the subtopologies of a group, as far as the topics that are there say them."""
    application = group.application
    tasks: dict[str, int] = {}
    for subtopology_id, sources in application.sources.items():
        plain = [counts.get(name, 0) for name in sources if not name.startswith(INTERNAL)]
        if plain and all(plain):
            tasks[subtopology_id] = max(plain)
    if "1" in tasks and "2" in application.sources:
        tasks["2"] = tasks["1"]  # it reads what that one writes
    return tasks


def ill_fitting(group: StreamsGroupModel, counts: Mapping[str, int]) -> list[str]:
    """The internal topics of a group that have another number of partitions than it needs."""
    application, tasks = group.application, wanted_counts(group, counts)
    internal = {
        name: tasks[subtopology_id]
        for subtopology_id, sources in application.sources.items()
        if subtopology_id in tasks
        for name in (*sources, application.changelogs.get(subtopology_id, ""))
        if name.startswith(INTERNAL)
    }
    return [name for name, count in internal.items() if counts.get(name, count) != count]
