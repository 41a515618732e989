"""A Fetch that waits for its answer, which the fetcher takes in the step that has read it."""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from ottla.client.assigned import AssignedPartition
from ottla.client.awaited import Awaited
from ottla.client.errors import KafkaError
from ottla.client_core.exchange import Answer
from ottla.protocol.api.fetch import FetchResponse


class FetchSender(Protocol):
    """What a Fetch asks of its fetcher."""

    loop: asyncio.AbstractEventLoop

    def on_answer(self, sent: SentFetch, answer: FetchResponse) -> None:
        """Take the answer to a Fetch."""

    def on_lost(self, sent: SentFetch, error: KafkaError) -> None:
        """Take note that a Fetch was refused, or gets no answer."""


class SentFetch:
    """See the module. `place` is the leader and the lane, `names_by_id` for versions without names of topics."""

    __slots__ = ("_fetcher", "asked", "asked_at", "limit_ms", "names_by_id", "place")

    def __init__(
        self,
        fetcher: FetchSender,
        place: tuple[int, int],
        wanted: list[AssignedPartition],
        names_by_id: dict[UUID, str] | None,
        limit_ms: int,
    ) -> None:
        self._fetcher = fetcher
        self.place = place
        self.asked = {assigned.partition: (assigned, assigned.generation) for assigned in wanted}
        """What it asks for, and in which generation of the position."""
        self.names_by_id = names_by_id
        self.asked_at = fetcher.loop.time()
        self.limit_ms = limit_ms

    def take(self, answer: Answer[Awaited]) -> None:
        """Put what came into the partitions. Raises MalformedMessage."""
        self._fetcher.on_answer(self, answer.decode(FetchResponse))

    def fail(self, error: KafkaError) -> None:
        """Have the fetcher decide what becomes of the partitions, in a step of its own."""
        self._fetcher.loop.call_soon(self._fetcher.on_lost, self, error)
