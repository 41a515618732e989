"""A Fetch that waits for its answer. The fetcher processes it in the step that has read it."""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from ottla.client.assigned import AssignedPartition
from ottla.client.awaited import AloneInFlight, Awaited
from ottla.client.errors import KafkaError
from ottla.client.structs import TopicPartition
from ottla.client_core.exchange import Answer
from ottla.client_core.fetch_template import Fetched, FetchTemplate
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.types import Buffer


class FetchSender(Protocol):
    """The part of a fetcher that a sent Fetch uses."""

    loop: asyncio.AbstractEventLoop

    def on_answer(self, sent: SentFetch, answer: FetchResponse) -> None:
        """Process the answer to a Fetch."""

    def on_fetched(self, sent: SentFetch, fetched: Fetched) -> None:
        """Process the usual answer to a Fetch of one partition."""

    def on_lost(self, sent: SentFetch, error: KafkaError) -> None:
        """Note that a Fetch was refused, or gets no answer."""


class SentFetch(AloneInFlight):
    """See the module. `place` is the leader and the lane, `names_by_id` for versions without topic names.

    For a request from a template, this object is also the request (`as_request`).
    """

    __slots__ = ("_answer_front", "_fetcher", "_template", "asked", "asked_at", "limit_ms", "names_by_id", "place")

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
        self.asked: dict[TopicPartition, tuple[AssignedPartition, int]] = {}
        """The partitions that it asks for, each with the generation of its position."""
        for assigned in wanted:  # mostly one, for which a comprehension would cost a call
            self.asked[assigned.partition] = (assigned, assigned.generation)
        self.names_by_id = names_by_id
        self.asked_at = fetcher.loop.time()
        self.limit_ms = limit_ms
        self._template: FetchTemplate | None = None

    def as_request(self, template: FetchTemplate) -> SentFetch:
        """Return this object as the request of a template, complete except for its correlation id."""
        self._template = template
        self.api_key = template.api_key
        self.version = template.version
        self.sent_at = self.asked_at
        self.deadline = self.asked_at + self.limit_ms / 1000
        self.has_tagged_answer = True
        self.context = self  # reset at the end, to break the reference cycle
        return self

    def foresee(self) -> None:
        """See `AloneInFlight`; only for a request of a template."""
        assert self._template is not None
        self._answer_front = self._template.answer_front(self.correlation_id)

    def take_received(self, received: Buffer, count: int) -> bool:
        """See `AloneInFlight`. The usual answer has records, or none, and nothing else to say."""
        template = self._template
        fetched = None if template is None else template.fetched_alone(received, count, self._answer_front)
        if fetched is None:
            return False
        self._fetcher.on_fetched(self, fetched)
        self.context = None
        return True

    def take(self, answer: Answer[Awaited]) -> None:
        """Add the fetched batches to the partitions. Raises MalformedMessage."""
        self.context = None
        fetched = None if self._template is None else self._template.fetched(answer.data)
        if fetched is not None:
            self._fetcher.on_fetched(self, fetched)
            return
        self._fetcher.on_answer(self, answer.decode(FetchResponse))

    def fail(self, error: KafkaError) -> None:
        """Let the fetcher handle the partitions, in a later step of the event loop."""
        self.context = None
        self._fetcher.loop.call_soon(self._fetcher.on_lost, self, error)
