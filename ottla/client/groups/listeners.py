"""Rebalance listeners: a program's own code, called when its consumer gets partitions or has to give them up.

They are like Kafka's `ConsumerRebalanceListener`: called inside a poll, revoked before assigned, each with the affected
partitions: all of them if members give up everything for a rebalance, else those that are added or removed. An
exception of a callback does not stop the rebalance; the poll raises it afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence

from ottla.client.errors import KafkaError, RebalanceListenerFailed
from ottla.client.metrics import GroupMetrics
from ottla.client.structs import TopicPartition

logger = logging.getLogger(__name__)


class RebalanceListener:
    """Override what you need; the methods may be `async`.

    They may `seek`, `pause`, `commit` and ask for positions; they must not read records.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with added partitions, before a record of them is read. A `seek` here overrides committed offsets."""

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that will be given up; they are still owned, so that offsets can be committed."""

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with partitions that are lost already, and may have another owner: the group has removed this member.

        No offsets can be committed for them. By default it calls `on_revoked`.
        """
        return self.on_revoked(partitions)


class ListenerCalls:
    """Calls the current listener; its exceptions are passed to `on_failure`, for the next poll."""

    def __init__(
        self, on_failure: Callable[[KafkaError], None], metrics: GroupMetrics, now: Callable[[], float]
    ) -> None:
        self.listener: RebalanceListener | None = None
        self._on_failure = on_failure
        self._metrics = metrics
        self._now = now

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Report added partitions; an empty list is reported, too, as the end of a rebalance."""
        self._metrics.rebalances.add(1, self._now())
        if self.listener is not None:
            await self._call("on_assigned", self.listener.on_assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Report partitions that will be given up, if there are any."""
        self._metrics.revoked.add(len(partitions), self._now())
        if self.listener is not None and partitions:
            await self._call("on_revoked", self.listener.on_revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Report lost partitions, if there are any."""
        self._metrics.lost.add(len(partitions), self._now())
        if self.listener is not None and partitions:
            await self._call("on_lost", self.listener.on_lost, partitions)

    async def _call(
        self,
        name: str,
        method: Callable[[list[TopicPartition]], Awaitable[None] | None],
        partitions: Sequence[TopicPartition],
    ) -> None:
        try:
            result = method(list(partitions))
            if inspect.isawaitable(result):
                await result
        except (Exception, asyncio.CancelledError) as raised:  # whatever a program's own code raises
            own = asyncio.current_task()
            if isinstance(raised, asyncio.CancelledError) and own is not None and own.cancelling():
                raise  # this task itself was cancelled, not by the listener
            logger.exception("the rebalance listener's %s failed", name)
            failure = RebalanceListenerFailed(
                f"the rebalance listener's {name} raised {type(raised).__name__}: {raised}"
            )
            failure.__cause__ = raised
            self._on_failure(failure)
