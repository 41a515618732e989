"""The template of the Fetch requests of a session (KIP-227), as Java's consumers send them.

A consumer continues its session with the same bytes, except for the correlation id, the epoch, and the partitions whose
offset has changed, which it names (`partitions_template.py`). The session changes exactly as on the slow path
(`api/fetch.py`): its epoch, the time of its last use, what its targets got, their order. If a request takes the slow
path after all, it finds the session unchanged except for the new offsets, which the slow path sets once more.

While a request waits, only partitions in which something has changed are read again.

After two requests in a row for cold records, the third is assumed to be cold, too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ottla.broker.fast.fetch_layout import FIRST_VERSION_WITH_SESSIONS, NO_LOG_START
from ottla.broker.fast.fetch_templates import NO_EPOCH
from ottla.broker.fast.partitions_template import MOST_PARTITIONS, PartitionsTemplate, limits_of, partition_behind
from ottla.broker.fetch.fetch_rights import reading_rights

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices, Context
    from ottla.broker.fetch.fetch_sessions import FetchSession, FetchTarget
    from ottla.broker.runtime.metrics import MeterOf
    from ottla.broker.security.quotas.template_quota import TemplateQuota
    from ottla.protocol.api.fetch import FetchRequest

_ONE_NAMED: Final = struct.Struct(">26sq18s")
"""One topic with one partition, in the versions that name topics by id: the bytes before and after its offset."""


class SessionTemplate(PartitionsTemplate):
    """The template of the session that a connection continues."""

    __slots__ = ("_changes", "_cold_epoch", "_may_read", "_named_alone", "_version")

    session: FetchSession
    _cold_epoch: int
    _named_alone: dict[bytes, FetchTarget]
    """Targets by the bytes of a request that names only this target, without the offset."""

    def __init__(
        self,
        services: ApiServices,
        request: FetchRequest,
        context: Context,
        session: FetchSession,
        meter_of: MeterOf,
        quota: TemplateQuota | None = None,
    ) -> None:
        super().__init__(services, request, context, session, meter_of, quota)
        self._begin(request, context)

    def _begin(self, request: FetchRequest, context: Context) -> None:
        self._version = context.api_version
        self._changes = self._cold_epoch = NO_EPOCH
        self._may_read = reading_rights(request, context.has, self._services.authorizer)

    def expect(self, request: FetchRequest, context: Context, session: FetchSession, meter_of: MeterOf) -> None:
        """Compare frames again: a request took the slow path and found nothing cold, and the next one looks like it."""
        if session is not self.session or self._asked != limits_of(request, context):
            self._remember(request, context, session, meter_of)
            self._begin(request, context)
        else:
            self.least_bytes = self._least_bytes

    def note_cold(self, epoch: int) -> None:
        """The request of this epoch, which is expected, was for cold records."""
        before, self._cold_epoch = self._cold_epoch, epoch
        if epoch == before + 1:
            self.rest()

    def _find_targets(self) -> None:
        """Find the partitions of the session's targets; none of them, if one may not be answered here.

        Nor if the client may not read one: a request that was refused, or another client, may have added it.
        """
        session, may_read = self.session, self._may_read
        self._changes = session.changes
        self._named_alone = {}
        self._forget_targets()
        if session.is_closed or len(session.targets) > MOST_PARTITIONS:
            return
        for target in session.targets.values():
            partition = partition_behind(target, self._version, self._services)
            if partition is None or (may_read is not None and not may_read(partition.topic)):
                self._forget_targets()
                return
            self._add_target(target, partition, NO_LOG_START)

    def take(self, view: memoryview, start: int, end: int) -> tuple[bytes, Collection[FetchTarget]] | None:
        """As in `PartitionsTemplate`."""
        if not self._is_placed(view, start, end):
            return None
        unpack, session = self._unpack_frame, self.session  # as in `FetchTemplate.answer`
        front, correlation_id, middle, epoch, topics, tail = unpack(view, start)
        if epoch != session.epoch or front != self._placed_front or middle != self._middle or tail != self._tail:
            return None
        if session.changes != self._changes:
            self._find_targets()
        if len(topics) == _ONE_NAMED.size:  # as nearly always at a log's end
            before, offset, behind = _ONE_NAMED.unpack(topics)
            target = self._named_alone.get(before + behind)
            if target is not None:
                target.fetch_offset = offset
                return correlation_id, session.targets.values()
        return (correlation_id, session.targets.values()) if self._go_on(topics) else None

    def _go_on(self, topics: bytes) -> bool:
        """Set the offsets of the targets that are named; False when anything else about them is new."""
        named = self._layout.named(topics, self._known)
        if named is None:
            return False
        for target, offset in named:
            target.fetch_offset = offset
        if len(named) == 1 and len(topics) == _ONE_NAMED.size and self.session.uses_topic_ids:
            before, _, behind = _ONE_NAMED.unpack(topics)
            self._named_alone[before + behind] = named[0][0]
        return True


def learnable_session(request: FetchRequest, version: int, services: ApiServices) -> FetchSession | None:
    """The session that a request continued on the slow path, where the fast path may follow; else None."""
    if version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch <= 0:
        return None
    return services.fetch_sessions.find(request.session_id)
