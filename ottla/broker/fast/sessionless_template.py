"""The template of Fetch requests of several partitions without a session, as librdkafka and others send them.

Such a request names all partitions that it wants, each time (`partitions_template.py`), and its answer reports all of
them. Clients that send it: librdkafka and libraries built on it, Sarama, aiokafka.

After two requests in a row for cold records, the third is assumed to be cold, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ottla.broker.fast.fetch_layout import FIRST_VERSION_WITH_TOPIC_IDS
from ottla.broker.fast.fetch_templates import NO_SESSION_EPOCH
from ottla.broker.fast.partitions_template import MOST_PARTITIONS, PartitionsTemplate, limits_of, partition_behind
from ottla.broker.fetch.fetch_sessions import FetchTarget
from ottla.broker.formats.conversion import FIRST_FETCH_VERSION_WITH_BATCHES

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.broker.services import Services
    from ottla.protocol.api.fetch import FetchRequest

Wanted = list[tuple[FetchTarget, "Partition", int]]
"""What a request names: its targets, their partitions, and the log start offset that it has for each."""

MOST_COLD: Final = 2


class SessionlessTemplate(PartitionsTemplate):
    """See the module."""

    __slots__ = ("_cold",)

    session: None

    def __init__(
        self,
        services: ApiServices,
        request: FetchRequest,
        context: Context,
        wanted: Wanted,
        meter_of: MeterOf,
        quota: TemplateQuota | None = None,
    ) -> None:
        super().__init__(services, request, context, None, meter_of, quota)
        self._cold = 0
        """The number of requests in a row that took the slow path for cold records."""
        self._add(wanted)

    def expect(
        self, request: FetchRequest, context: Context, wanted: Wanted, meter_of: MeterOf, *, is_cold: bool
    ) -> None:
        """Compare frames again: a request took the slow path, and the next one looks like it."""
        if self._asked != limits_of(request, context):
            self._forget_targets()
            self._remember(request, context, None, meter_of)
        self._cold = self._cold + 1 if is_cold else 0
        if self._cold >= MOST_COLD:
            self.rest()
        else:
            self.least_bytes = self._least_bytes
        self._add(wanted)

    def _add(self, wanted: Wanted) -> None:
        if len(self._found) + len(wanted) > MOST_PARTITIONS:
            self._forget_targets()
        known = self._known
        for target, partition, log_start_offset in wanted:
            before = known.get(self._layout.topic_key(target.topic), {}).get(target.partition)
            if before is not None:
                del self._found[before[0]], self.tails[before[0]]
            target.topic_name = partition.topic  # it was found once
            self._add_target(target, partition, log_start_offset)

    def take(self, view: memoryview, start: int, end: int) -> tuple[bytes, Collection[FetchTarget]] | None:
        """As in `PartitionsTemplate`."""
        if not self._is_placed(view, start, end):
            return None
        unpack = self._unpack_frame
        front, correlation_id, middle, topics, tail = unpack(view, start)
        if front != self._placed_front or middle != self._middle or tail != self._tail:
            return None
        named = self._layout.named(topics, self._known)
        if not named:
            return None
        targets: dict[FetchTarget, None] = {}
        for target, offset in named:
            target.fetch_offset = offset
            targets[target] = None
        if len(targets) != len(named):
            return None  # one is named twice
        return correlation_id, targets


def learnable_partitions(request: FetchRequest, version: int, services: Services) -> Wanted | None:
    """The partitions that a request named on the slow path, where the fast path may answer it; else None."""
    if (
        version < FIRST_FETCH_VERSION_WITH_BATCHES
        or request.session_id
        or request.session_epoch != NO_SESSION_EPOCH
        or request.forgotten_topics_data
        or not 0 < sum(len(topic.partitions) for topic in request.topics) <= MOST_PARTITIONS
    ):
        return None
    wanted: Wanted = []
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for asked in topic.partitions:
            target = FetchTarget(key, asked)
            partition = partition_behind(target, version, services)
            if partition is None:
                return None
            wanted.append((target, partition, asked.log_start_offset))
    return wanted
