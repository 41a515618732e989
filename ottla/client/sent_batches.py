"""The batches of a Produce request that wait for its answer. The sender processes it in the step that has read it."""

from __future__ import annotations

import asyncio
from typing import Protocol
from uuid import UUID

from ottla.client.accumulator import Batch
from ottla.client.awaited import AloneInFlight, Awaited
from ottla.client.errors import KafkaError
from ottla.client_core.exchange import Answer
from ottla.client_core.produce_template import ProduceTemplate
from ottla.client_core.send_queues import LAST_VERSION_WITH_TOPIC_NAMES
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.types import Buffer


class BatchSender(Protocol):
    """The part of a sender that sent batches use."""

    loop: asyncio.AbstractEventLoop
    request_timeout_ms: int

    def on_appended(self, leader_id: int, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """Process the usual answer to a request with one batch: the broker has appended it."""

    def on_answer(
        self, leader_id: int, batches: list[Batch], names_by_id: dict[UUID, str] | None, response: ProduceResponse
    ) -> None:
        """Process the answer to a request; `names_by_id` if it has no topic names."""

    def on_lost(self, leader_id: int, batches: list[Batch], error: KafkaError) -> None:
        """Note that a request gets no answer."""


class SentBatch(AloneInFlight):
    """The batch of a request from a template: the request and the receiver of its answer in one object."""

    __slots__ = ("_answer_front", "_batch", "_leader_id", "_sender", "_template", "limit_ms")

    def __init__(
        self, sender: BatchSender, leader_id: int, batch: Batch, template: ProduceTemplate, now: float
    ) -> None:
        self.api_key = 0
        self.version = template.version
        self.sent_at = now
        self.limit_ms = limit_ms = sender.request_timeout_ms
        self.deadline = now + limit_ms / 1000
        self.has_tagged_answer = True
        self.context = self  # reset at the end, to break the reference cycle
        self._sender = sender
        self._leader_id = leader_id
        self._batch = batch
        self._template = template

    def foresee(self) -> None:
        """See `AloneInFlight`."""
        self._answer_front = self._template.answer_front(self.correlation_id)

    def take_received(self, received: Buffer, count: int) -> bool:
        """See `AloneInFlight`. The usual answer is that the batch was appended."""
        appended = self._template.appended_alone(received, count, self._answer_front)
        if appended is None:
            return False
        self._sender.on_appended(self._leader_id, self._batch, appended[0], appended[1])
        self.context = None
        return True

    def take(self, answer: Answer[Awaited]) -> None:
        """Complete the batch from the answer. Raises MalformedMessage."""
        self.context = None
        appended = self._template.appended(answer[1])
        if appended is not None:
            self._sender.on_appended(self._leader_id, self._batch, appended[0], appended[1])
            return
        template, names_by_id = self._template, None
        if template.version > LAST_VERSION_WITH_TOPIC_NAMES:
            names_by_id = {template.topic_id: self._batch.queue.topic}
        self._sender.on_answer(self._leader_id, [self._batch], names_by_id, answer.decode(ProduceResponse))

    def fail(self, error: KafkaError) -> None:
        """Let the sender handle the batch, in a later step of the event loop."""
        self.context = None
        self._sender.loop.call_soon(self._sender.on_lost, self._leader_id, [self._batch], error)


class SentBatches:
    """The batches of any other request; `names_by_id` if an answer has no topic names."""

    __slots__ = ("_batches", "_leader_id", "_names_by_id", "_sender", "limit_ms")

    def __init__(
        self,
        sender: BatchSender,
        leader_id: int,
        batches: list[Batch],
        names_by_id: dict[UUID, str] | None,
    ) -> None:
        self.limit_ms = sender.request_timeout_ms
        self._sender = sender
        self._leader_id = leader_id
        self._batches = batches
        self._names_by_id = names_by_id

    def take(self, answer: Answer[Awaited]) -> None:
        """Complete the batches from the answer. Raises MalformedMessage."""
        response = answer.decode(ProduceResponse)
        self._sender.on_answer(self._leader_id, self._batches, self._names_by_id, response)

    def fail(self, error: KafkaError) -> None:
        """Let the sender handle the batches, in a later step of the event loop."""
        self._sender.loop.call_soon(self._sender.on_lost, self._leader_id, self._batches, error)
