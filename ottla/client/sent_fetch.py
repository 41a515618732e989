"""A Fetch that waits for its answer, which the fetcher takes in the step that has read it."""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from ottla.client.assigned import AssignedPartition
from ottla.client.awaited import Awaited
from ottla.client.errors import KafkaError
from ottla.client_core.exchange import Answer, InFlight
from ottla.client_core.fetch_template import Fetched, FetchTemplate
from ottla.protocol.api.fetch import FetchResponse


class FetchSender(Protocol):
    """What a Fetch asks of its fetcher."""

    loop: asyncio.AbstractEventLoop

    def on_answer(self, sent: SentFetch, answer: FetchResponse) -> None:
        """Take the answer to a Fetch."""

    def on_fetched(self, sent: SentFetch, fetched: Fetched) -> None:
        """Take the usual answer to a Fetch of one partition."""

    def on_lost(self, sent: SentFetch, error: KafkaError) -> None:
        """Take note that a Fetch was refused, or gets no answer."""


class SentFetch(InFlight[Awaited]):
    """See the module. `place` is the leader and the lane, `names_by_id` for versions without names of topics.

    One that a template makes is its request, too (`as_request`).
    """

    __slots__ = ("_fetcher", "_template", "asked", "asked_at", "limit_ms", "names_by_id", "place")

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
        self._template: FetchTemplate | None = None

    def as_request(self, template: FetchTemplate) -> SentFetch:
        """Return this as the request that a template makes, complete but for its correlation id."""
        self._template = template
        self.api_key = template.api_key
        self.version = template.version
        self.sent_at = self.asked_at
        self.deadline = self.asked_at + self.limit_ms / 1000
        self.has_tagged_answer = True
        self.context = self  # until the end, or the two would keep each other
        return self

    def take(self, answer: Answer[Awaited]) -> None:
        """Put what came into the partitions. Raises MalformedMessage."""
        self.context = None
        fetched = None if self._template is None else self._template.fetched(answer.data)
        if fetched is not None:
            self._fetcher.on_fetched(self, fetched)
            return
        self._fetcher.on_answer(self, answer.decode(FetchResponse))

    def fail(self, error: KafkaError) -> None:
        """Have the fetcher decide what becomes of the partitions, in a step of its own."""
        self.context = None
        self._fetcher.loop.call_soon(self._fetcher.on_lost, self, error)
