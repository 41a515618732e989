"""A client's view of the cluster, which is kept up to date, and its open connections.

One `Cluster` belongs to one Producer, Consumer or Admin. It requests metadata when it is missing, when a broker's
answer shows that it is wrong (`mark_stale`), and when it is old; concurrent callers share one request.
The caller sets the deadline of every wait; after each failure the pause before the next attempt is longer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar
from uuid import UUID

from ottla.client.connection import Connection
from ottla.client.connections import Connections
from ottla.client.errors import ClientClosed, ClientTimeout, UnsupportedByBroker, WrongBroker, is_worth_retrying
from ottla.client.metrics import ConnectionMetrics
from ottla.client.options import ClientOptions
from ottla.client.outages import METADATA
from ottla.client.shared_tasks import outcome_of
from ottla.client_core.cluster_view import FIRST_VERSION_THAT_FINDS_IDS, ClusterView
from ottla.client_core.retries import Attempts
from ottla.client_core.topic_metadata import TopicMetadata
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)
T = TypeVar("T")


class Cluster(ClusterView):
    """See the module. `start` before use, `close` after."""

    def __init__(
        self,
        servers: list[tuple[str, int]],
        options: ClientOptions,
        *,
        allow_auto_create_topics: bool = False,
        retries: int = 2**31 - 1,
    ) -> None:
        super().__init__()
        self.options = options
        self.on_update: Callable[[], None] | None = None
        self._allow_auto_create_topics = allow_auto_create_topics
        self._servers = servers
        self._retries = retries
        self.metrics = ConnectionMetrics(asyncio.get_running_loop().time())
        self.asked_at = 0.0
        """The time of the last metadata, by the loop's clock."""
        self._connections = Connections(options, self.metrics, lambda: self.cluster_id, self._begin_again)
        self.outages = self._connections.outages
        self._is_closed = False
        self._refreshing: asyncio.Task[None] | None = None
        self._stale_refresh: asyncio.Task[None] | None = None
        self._ageing: asyncio.TimerHandle | None = None

    # Start and close --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable with the reason of each bootstrap server."""
        await self.refresh()

    async def close(self) -> None:
        """End every connection and every connection attempt immediately."""
        self._is_closed = True
        if self._ageing is not None:
            self._ageing.cancel()
        tasks = [task for task in (self._refreshing, self._stale_refresh) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._connections.end(), return_exceptions=True)

    async def finish_requests(self, limit_s: float) -> None:
        """Wait before `close` until requests without an answer are sent, for at most this time."""
        await self._connections.finish(limit_s)

    # Metadata ---------------------------------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Request the metadata of the topics in use and of `topics`, or join a request that is in flight.

        Raises NoBrokersAvailable when no broker answers.
        """
        try:
            has_new = self.ask_about(topics)
        except ValueError as wrong:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, str(wrong)) from None
        if self._refreshing is not None and has_new:
            await asyncio.wait([self._refreshing])  # that request does not contain the new topics
        if self._refreshing is None or self._refreshing.done():
            if self._is_closed:
                raise ClientClosed("the client is closed")
            self._refreshing = asyncio.create_task(self._ask_metadata(), name="ottla-metadata")
        await outcome_of(self._refreshing)

    def want(self, topics: Iterable[str]) -> None:
        """Ask for topics from now on, and immediately for those that are not known."""
        self.use(topics)
        if self.lacks_topics:
            self._refresh_in_background(is_urgent=True)

    def want_all(self, is_wanted: bool) -> None:
        """Ask for all topics from now on, or again only for the wanted ones."""
        if self.use_all(is_wanted) and is_wanted:
            self._refresh_in_background(is_urgent=True)

    async def know_all(self, timeout_ms: int) -> None:
        """Wait until all topics are known, after `want_all`; raises KafkaError after `timeout_ms`."""

        async def look() -> None:
            while self.lacks_all:
                await self.refresh()

        await self.retry(look, timeout_ms)

    async def learn_names(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of topics by their ids, and ask for these topics from now on; unknown ids are left out."""
        known = self.names_by_id()
        missing = [topic_id for topic_id in topic_ids if topic_id not in known]
        if missing:
            connection = await self.any_connection()
            version = connection.version_for(MetadataRequest)
            if version < FIRST_VERSION_THAT_FINDS_IDS:
                raise UnsupportedByBroker(f"the broker at {connection.address} finds no topics by their ids")
            topics = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            answer = await connection.send(request, MetadataResponse, version)
            found = {topic.topic_id: topic.name for topic in answer.topics if topic.name and not topic.error_code}
            known.update(found)
            if found:
                await self.refresh(found.values())
        return {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}

    def mark_stale(self) -> None:
        """Request metadata soon, because an answer showed that it is wrong; any number of calls cause one request."""
        self._refresh_in_background(is_urgent=False)

    def _refresh_in_background(self, *, is_urgent: bool) -> None:
        self.is_stale = True  # even during a refresh, which may have been sent too early
        if self._is_closed or (self._stale_refresh is not None and not self._stale_refresh.done()):
            return
        self._stale_refresh = asyncio.create_task(self._refresh_until_answered(is_urgent), name="ottla-metadata-stale")

    async def _refresh_until_answered(self, is_urgent: bool) -> None:
        attempts = 0
        while not self._is_closed:
            attempts += 1
            if not is_urgent or attempts > 1:
                await asyncio.sleep(self.options.retry_pause_s(attempts))
            self.is_stale = False
            try:
                await self.refresh()
            except KafkaError as failed:
                self.outages.failed(logger, METADATA, str(failed))
                continue
            if not self.is_stale:
                return

    async def topic(self, name: str, timeout_ms: int) -> TopicMetadata:
        """Return a topic that can be used, waiting until it exists and its partitions are known.

        Raises the broker's KafkaError if waiting cannot help, or after `timeout_ms`.
        """
        known = self.topics.get(name)
        if known is not None and known.is_usable:
            return known

        async def look() -> TopicMetadata:
            await self.refresh([name])
            found = self.topics.get(name)
            if found is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}: the broker's answer lacks this topic")
            if found.error:
                raise KafkaError(found.error, f"{name}: {found.error.message}")
            if not found.is_usable:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}: its partitions are not known yet")
            return found

        try:
            return await self.retry(look, timeout_ms)
        except BaseException:
            self.let_go(name)  # otherwise every later request asks for it again, and perhaps creates it
            raise

    async def _ask_metadata(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await self.any_connection()
        version = connection.version_for(MetadataRequest)
        request = self.metadata_request(version, may_create=self._allow_auto_create_topics)
        answer = await connection.send(request, MetadataResponse, version)
        self.take(request, version, answer)
        self._connections.drop_moved(self.brokers)
        self.asked_at = loop.time()
        if self._ageing is not None:
            self._ageing.cancel()
        if not self._is_closed:
            self._ageing = loop.call_later(self.options.metadata_max_age_ms / 1000, self.mark_stale)
        if self.on_update is not None:
            self.on_update()

    def _begin_again(self, wrong: WrongBroker) -> None:
        """Look for the cluster at its bootstrap servers: its brokers have moved, so no known address can be trusted."""
        logger.warning("%s; asking the bootstrap servers", wrong.message)
        self.forget_brokers()
        self._connections.drop_moved(self.brokers)
        self.mark_stale()

    # Connections ------------------------------------------------------------------------------------------------

    def open_connection(self, node_id: int, lane: int = 0) -> Connection | None:
        """Return the connection to a broker if one is open."""
        return self._connections.open_to(node_id, lane)

    async def connection(self, node_id: int, lane: int = 0) -> Connection:
        """Return an open connection to a broker, which is made now if needed.

        Each `lane` is a separate connection: requests on one do not wait for a Fetch that waits on another. Raises
        ConnectionLost or ClientTimeout when it cannot be made, also during the pause after the broker's last failure.
        """
        return await self._connections.to(self.brokers.get(node_id), node_id, lane)

    async def require_broker(self, node_id: int | None) -> None:
        """Raise KafkaError BROKER_NOT_AVAILABLE, which is not retried, for a broker that a program has named and that
        is not in the current metadata. None means any broker.
        """
        if node_id is None or node_id in self.brokers:
            return
        await self.refresh()
        if node_id not in self.brokers:
            known = ", ".join(map(str, sorted(self.brokers))) or "none"
            reason = f"the cluster has no broker {node_id} at the moment; it has {known}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, reason)

    async def any_connection(self) -> Connection:
        """Return an open connection to the first broker that answers; raises NoBrokersAvailable if none does."""
        return await self._connections.to_any(self.brokers.values(), self._servers)

    # Requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int | None,
        request: Request,
        response: type[R],
        *,
        at_most: int = ANY_VERSION,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request to a broker, or to any (None), at the highest common version, and return the answer."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        version = connection.version_for(type(request), at_most)
        return await connection.send(request, response, version, timeout_ms)

    async def retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int,
        gives_up: Callable[[KafkaError, float], bool] = lambda error, elapsed_s: False,
    ) -> T:
        """Call `attempt` until it succeeds, with growing pauses, for at most `timeout_ms`.

        Errors that are not worth a retry are raised immediately, and so is one with which `gives_up(error, elapsed_s)`
        is true. After `timeout_ms` the last error is raised, or
        ClientTimeout.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + timeout_ms / 1000
        attempts = Attempts(self.options.retry_backoff, most_retries=self._retries, give_up_at=deadline)
        last: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                raise last or ClientTimeout(f"the operation did not succeed within {timeout_ms} ms") from None
            except KafkaError as failed:
                if not is_worth_retrying(failed) or gives_up(failed, loop.time() - began):
                    raise
                last = failed
            logger.info("%s; asking again", last)
            pause_s = attempts.failed(loop.time(), random.random())
            if pause_s is None:
                raise last
            await asyncio.sleep(pause_s)
