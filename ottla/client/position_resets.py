"""Resets of positions: look-ups of the first or the last offset, where a partition will be read (OffsetFetcher).

An answer to a request from before a seek is recognized by the partition's `generation` and dropped. The error of a
failed look-up is stored in the partition's `failure` for the reader to raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from ottla.client.assigned import AssignedPartition
from ottla.client.cluster import Cluster
from ottla.client.consumer_options import ISOLATION_LEVELS, ConsumerOptions
from ottla.client.errors import ClientFailed, KafkaError
from ottla.client.offsets import OffsetAndTimestamp, list_offsets
from ottla.client.structs import TopicPartition
from ottla.protocol.errors import ErrorCode


class PositionResets:
    """See the module. `on_data` is called when a reader should check again, `on_move` when there is more to fetch."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        *,
        on_data: Callable[[], None],
        on_move: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._isolation_level = ISOLATION_LEVELS[options.isolation_level]
        self._timeout_ms = options.default_api_timeout_ms
        self._on_data = on_data
        self._on_move = on_move
        self._tasks: set[asyncio.Task[None]] = set()

    def look_up(self, partitions: list[AssignedPartition]) -> None:
        """Look up where partitions with a `reset_to` begin, and move them there; returns immediately."""
        for assigned in partitions:
            assigned.is_resolving = True
        asked = [(assigned, assigned.generation) for assigned in partitions]
        task = asyncio.create_task(self._look_up(asked), name="ottla-positions")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def end(self) -> list[asyncio.Task[None]]:
        """Cancel the running tasks, and return them to be awaited."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    async def _look_up(self, asked: list[tuple[AssignedPartition, int]]) -> None:
        times = {assigned.partition: assigned.reset_to for assigned, _ in asked if assigned.reset_to is not None}
        waiting = {assigned.partition: (assigned, generation) for assigned, generation in asked}

        def on_found(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> None:
            for partition, place in found.items():
                assigned, generation = waiting.pop(partition)
                if assigned.generation != generation:
                    continue
                if place is None:
                    topic, index = partition
                    reason = f"{topic}-{index}: the broker's answer has no offset"
                    self._fail(assigned, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, reason))
                else:
                    assigned.move(place.offset)
            self._on_data()
            self._on_move()

        try:
            await list_offsets(
                self._cluster,
                times,
                isolation_level=self._isolation_level,
                timeout_ms=self._timeout_ms,
                on_found=on_found,
            )
        except Exception as failed:  # a refusal or a bug: a program that reads must get it
            failure = failed if isinstance(failed, KafkaError) else ClientFailed(failed)
            for assigned, generation in asked if isinstance(failure, ClientFailed) else waiting.values():
                if assigned.generation == generation:
                    self._fail(assigned, failure)

    def _fail(self, assigned: AssignedPartition, error: KafkaError) -> None:
        assigned.is_resolving = False
        assigned.failure = error
        self._on_data()
