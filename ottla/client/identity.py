"""The producer id and epoch by which brokers know an idempotent producer (KIP-98), and how they change (KIP-360)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.accumulator import NO_IDENTITY, PartitionQueue, ProducerIdentity
from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

_LARGEST_EPOCH = 2**15 - 1


class IdentityKeeper:
    """The identity of now, and the request for another; `on_renewed` is called when that has come."""

    def __init__(self, cluster: Cluster, on_renewed: Callable[[], None]) -> None:
        self.current = NO_IDENTITY
        self._cluster = cluster
        self._on_renewed = on_renewed
        self._renewing: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_renewing(self) -> bool:
        """Whether a new id is on its way, which queues without one have to wait for."""
        return self._renewing is not None

    async def start(self, timeout_ms: int) -> None:
        """Get the first id."""
        self.current = await self._cluster.retry(self._ask, timeout_ms)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop asking; return what was under way."""
        self._is_closed = True
        if self._renewing is None:
            return []
        self._renewing.cancel()
        return [self._renewing]

    def change(self, queue: PartitionQueue, *, by_epoch: bool) -> None:
        """Let a queue go on under another identity, once nothing of it is in flight.

        Raising the epoch needs no broker (KIP-360); an id that was fenced, or ran out of epochs, is asked for anew.
        """
        if queue.wants_new_identity:
            return
        queue.wants_new_identity = True
        current = self.current
        if queue.identity not in (current, NO_IDENTITY):
            return  # the producer has moved on already, this queue has not
        if by_epoch and current.epoch < _LARGEST_EPOCH:
            self.current = ProducerIdentity(current.producer_id, current.epoch + 1)
        elif self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(), name="ottla-producer-id")

    async def _renew(self) -> None:
        while not self._is_closed:
            try:
                self.current = await self._cluster.retry(self._ask, self._cluster.options.request_timeout_ms)
                break
            except KafkaError as failed:
                logger.warning("no new producer id: %s", failed)
                await asyncio.sleep(self._cluster.options.retry_backoff_max_ms / 1000)
        self._renewing = None
        self._on_renewed()

    async def _ask(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await self._cluster.ask(None, request, InitProducerIdResponse)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise KafkaError(code, f"no producer id: {code.message}")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)
