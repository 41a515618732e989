"""The request for a producer id, by which brokers know an idempotent producer (KIP-98), repeated until it succeeds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError
from ottla.client_core.partition_queue import ProducerIdentity
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)


class IdentityKeeper:
    """Requests an identity when `renew` is called; `on_renewed` gets it."""

    def __init__(self, cluster: Cluster, on_renewed: Callable[[ProducerIdentity], None]) -> None:
        self._cluster = cluster
        self._on_renewed = on_renewed
        self._renewing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def first(self, timeout_ms: int) -> ProducerIdentity:
        """Return the first identity; raises KafkaError if there is none within `timeout_ms`."""
        return await self._cluster.retry(self._ask, timeout_ms)

    def stop(self) -> list[asyncio.Task[None]]:
        """Stop; return the task that was running."""
        self._is_closed = True
        if self._renewing is None:
            return []
        self._renewing.cancel()
        return [self._renewing]

    def renew(self) -> None:
        """Request another identity, unless a request is in progress."""
        if self._renewing is None and not self._is_closed:
            self._renewing = asyncio.create_task(self._renew(), name="ottla-producer-id")

    async def _renew(self) -> None:
        while not self._is_closed:
            try:
                renewed = await self._cluster.retry(self._ask, self._cluster.options.request_timeout_ms)
            except Exception as failed:  # a refusal or a bug, logged: producers wait for an id
                if isinstance(failed, KafkaError):
                    logger.warning("no new producer id: %s", failed)
                else:
                    logger.exception("no new producer id: the client failed")
                await asyncio.sleep(self._cluster.options.retry_backoff_max_ms / 1000)
                continue
            self._renewing = None
            self._on_renewed(renewed)
            return

    async def _ask(self) -> ProducerIdentity:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        answer = await self._cluster.ask(None, request, InitProducerIdResponse)
        if answer.error_code:
            code = ErrorCode.of(answer.error_code)
            raise KafkaError(code, f"no producer id: {code.message}")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)
