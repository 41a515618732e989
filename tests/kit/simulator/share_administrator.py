"""A simulated administrator of share groups: it describes, alters and deletes their offsets, deletes groups, and
changes their settings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kit.simulator.admin import SET
from kit.simulator.members import DELETE_GROUPS_VERSION
from kit.simulator.model import Violation
from kit.simulator.share_model import ShareModel, SharePartitionModel

from ottla.protocol.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from ottla.protocol.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.api.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

if TYPE_CHECKING:
    from kit.simulator.clients import Line

GROUP_RESOURCE: Final = 32
LIMIT: Final = "share.delivery.count.limit"
RESET: Final = "share.auto.offset.reset"
ISOLATION: Final = "share.isolation.level"
CHANGES: Final[Mapping[str, Sequence[str]]] = {
    LIMIT: ("1", "2", "3", "5", "10"),
    "share.record.lock.duration.ms": ("100", "1000", "5000", "30000", "60000"),
    "share.partition.max.record.locks": ("1", "3", "10", "2000"),
}
RESETS: Final = ("latest", "earliest", "by_duration:PT1M", "by_duration:PT0.01S")
REFUSED: Final = (
    ErrorCode.NON_EMPTY_GROUP,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST,
)
"""Errors with which nothing was changed."""


class ShareAdministrator:
    """See the module. `line` is given anew for each life of the broker."""

    def __init__(self, known: ShareModel, chance: random.Random, leave: Callable[[str], None]) -> None:
        """`leave` lets the members of a group leave it."""
        self._known = known
        self._chance = chance
        self._leave = leave
        self._shown: dict[tuple[str, str, int], tuple[int, int]] = {}
        """The start offsets and lags of the last answer."""
        self.line: Line

    def operations(self) -> list[tuple[float, Callable[[], None]]]:
        """What may happen, and how often."""
        return [
            (5, self._describe),
            (1.5, self._alter),
            (0.7, self._delete_offsets),
            (0.5, self._delete),
            (2, self._set),
        ]

    def _group(self) -> str:
        return self._chance.choice(sorted(self._known.groups))

    # -- describing ---------------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        self.describe([self._group()])

    def describe(self, groups: Sequence[str], ends: Mapping[tuple[str, int], int] | None = None) -> None:
        """Where groups are; `ends`: where all is quiet, the high watermarks."""
        kind = DescribeShareGroupOffsetsRequest
        asked: dict[tuple[str, str, int], tuple[SharePartitionModel, int, int]] = {}
        for group in groups:
            for topic in self._known.topics():
                for index in range(len(topic.partitions)):
                    one = self._known.partition(group, topic, index)
                    asked[group, topic.name, index] = one, one.generation, one.least_start
        request = kind(
            groups=[
                kind.DescribeShareGroupOffsetsRequestGroup(
                    group_id=group,
                    topics=[
                        kind.DescribeShareGroupOffsetsRequestTopic(
                            topic_name=topic.name, partitions=list(range(len(topic.partitions)))
                        )
                        for topic in self._known.topics()
                    ],
                )
                for group in groups
            ]
        )

        def answered(response: Response) -> None:
            assert isinstance(response, DescribeShareGroupOffsetsResponse)
            self._shown.clear()
            for group in response.groups:
                for topic in group.topics:
                    for answer in topic.partitions:
                        place = (topic.topic_name, answer.partition_index)
                        one, generation, least_start = asked[group.group_id, *place]
                        is_there = self._known.is_there(one) and one.topic.id == topic.topic_id
                        if answer.error_code == ErrorCode.NONE and is_there:
                            self._shown[group.group_id, *place] = answer.start_offset, answer.lag
                            end = None if ends is None else ends.get(place)
                            one.describe(answer.start_offset, answer.lag, generation, least_start, end)

        self.line.send(request, 1, answered)

    def lags_of(self, group: str, settle: Callable[[], None]) -> dict[tuple[str, int], tuple[int, int]]:
        """The start offset and the lag of each partition of a group, as they are now."""
        self._shown.clear()
        self.describe([group])
        settle()
        return {(name, index): shown for (_, name, index), shown in self._shown.items()}

    # -- changing -----------------------------------------------------------------------------------------------------

    def _alter(self) -> None:
        topics = self._known.topics()
        if not topics:
            return
        group, topic = self._group(), self._chance.choice(topics)
        if self._chance.random() < 0.8:
            self._leave(group)
        offsets = {}
        for index, known in enumerate(topic.partitions):
            if self._chance.random() < 0.7:
                end = max(known.promised_end, known.shown_end, *known.promised, 0)
                offsets[index] = self._chance.choice((0, self._chance.randint(0, end + 3), end))
        if not offsets:
            return
        changed = {index: self._known.partition(group, topic, index) for index in offsets}
        for one in changed.values():
            one.change_asked()
        kind = AlterShareGroupOffsetsRequest
        request = kind(
            group_id=group,
            topics=[
                kind.AlterShareGroupOffsetsRequestTopic(
                    topic_name=topic.name,
                    partitions=[
                        kind.AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                        for index, offset in offsets.items()
                    ],
                )
            ],
        )

        def answered(response: Response) -> None:
            assert isinstance(response, AlterShareGroupOffsetsResponse)
            codes = {
                (one.topic_id, answer.partition_index): answer.error_code
                for one in response.responses
                for answer in one.partitions
            }
            for index, one in changed.items():
                self._end(one, response.error_code or codes.get((topic.id, index), -1), offsets[index])

        self.line.send(request, 0, answered)

    @staticmethod
    def _end(one: SharePartitionModel, code: int, start_offset: int | None, *, is_at_once: bool = True) -> None:
        """A change is answered. `is_at_once`: nothing has happened meanwhile, such as that a member has joined."""
        if code == ErrorCode.NONE:
            one.changed(start_offset)
        elif code in REFUSED and is_at_once:
            one.change_refused()
        else:
            one.change_refused()
            one.is_lost = True

    def _delete_offsets(self) -> None:
        topics = self._known.topics()
        if not topics:
            return
        group, topic = self._group(), self._chance.choice(topics)
        if self._chance.random() < 0.8:
            self._leave(group)
        changed = [one for one in self._known.of_group(group) if one.topic is topic]
        for one in changed:
            one.change_asked()
        kind = DeleteShareGroupOffsetsRequest

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteShareGroupOffsetsResponse)
            codes = {one.topic_id: one.error_code for one in response.responses}
            for one in changed:
                self._end(one, response.error_code or codes.get(topic.id, -1), None)

        self.line.send(
            kind(group_id=group, topics=[kind.DeleteShareGroupOffsetsRequestTopic(topic_name=topic.name)]), 0, answered
        )

    def _delete(self) -> None:
        group = self._group()
        if self._chance.random() < 0.8:
            self._leave(group)
        changed = self._known.of_group(group)
        self._known.groups[group].change_asked()
        for one in changed:
            one.change_asked()
        number = self._known.next_number()

        def answered(response: Response) -> None:
            assert isinstance(response, DeleteGroupsResponse)
            self._known.groups[group].change_answered()
            is_at_once = self._known.next_number() == number + 1
            for one in changed:
                self._end(one, response.results[0].error_code, None, is_at_once=is_at_once)

        self.line.send(DeleteGroupsRequest(groups_names=[group]), DELETE_GROUPS_VERSION, answered)

    # -- settings -----------------------------------------------------------------------------------------------------

    def _set(self) -> None:
        group = self._known.groups[self._group()]
        key = self._chance.choice(sorted(CHANGES))
        value = self._chance.choice(CHANGES[key])
        if not group.keeps_reset and self._chance.random() < 0.3:
            key, value = RESET, self._chance.choice(RESETS)
            group.resets.add(value)
        self.set(group.name, {key: value})

    def set(self, group_id: str, values: Mapping[str, str]) -> None:
        """Let a group have these settings."""
        if LIMIT in values:
            self._known.groups[group_id].note_limit(int(values[LIMIT]))
        kind = IncrementalAlterConfigsRequest
        configs = [
            kind.AlterableConfig(name=key, config_operation=SET, value=value) for key, value in sorted(values.items())
        ]
        resource = kind.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group_id, configs=configs)

        def answered(response: Response) -> None:
            assert isinstance(response, IncrementalAlterConfigsResponse)
            answer = response.responses[0]
            if answer.error_code == ErrorCode.INVALID_CONFIG:
                raise Violation(f"share group {group_id} may not have {dict(values)}: {answer.error_message}")

        self.line.send(kind(resources=[resource], validate_only=False), 1, answered)
