"""The start positions: the group's committed offset, else by `auto_offset_reset`, unless the program calls `seek`.

A partition that awaits its committed offset is not fetched. A seek meanwhile wins: the answer is dropped then. A failed
look-up becomes the partition's failure, which a read raises; the next poll tries again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ottla.client.assigned import AssignedPartition
from ottla.client.cluster import Cluster
from ottla.client.coordinator import Coordinator
from ottla.client.errors import ClientFailed, KafkaError
from ottla.client.groups.commits import MemberIdentity, fetch_committed


class StartPositions:
    """See the module. `on_missing` is called with a partition for which no offset is committed."""

    def __init__(
        self,
        cluster: Cluster,
        coordinator: Coordinator,
        identity: Callable[[], MemberIdentity],
        timeout_ms: int,
        *,
        on_missing: Callable[[AssignedPartition], None],
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._identity = identity
        self._timeout_ms = timeout_ms
        self._on_missing = on_missing
        self._on_change = on_change
        self._running: set[asyncio.Task[None]] = set()

    def look_up(self, partitions: Iterable[AssignedPartition]) -> None:
        """Request the committed offsets of partitions that await them, if that is not in progress."""
        asked = [
            (assigned, assigned.generation)
            for assigned in partitions
            if assigned.awaits_committed and not assigned.is_resolving and assigned.failure is None
        ]
        if not asked:
            return
        for assigned, _ in asked:
            assigned.is_resolving = True
        task = asyncio.create_task(self._ask(asked), name="ottla-committed")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancel the running tasks, and return them."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        return tasks

    async def _ask(self, asked: list[tuple[AssignedPartition, int]]) -> None:
        failure: KafkaError | None = None
        try:
            found = await fetch_committed(
                self._cluster,
                self._coordinator,
                self._identity,
                [assigned.partition for assigned, _ in asked],
                self._timeout_ms,
            )
        except Exception as failed:  # a refusal or a bug: a program that reads must get it
            failure, found = failed if isinstance(failed, KafkaError) else ClientFailed(failed), {}
        for assigned, generation in asked:
            if assigned.generation != generation:
                continue
            committed = found.get(assigned.partition)
            assigned.is_resolving = False
            if failure is not None:
                assigned.failure = failure
            elif committed is not None:
                assigned.move(committed.offset, epoch=committed.leader_epoch)
            else:
                self._on_missing(assigned)
        self._on_change()
