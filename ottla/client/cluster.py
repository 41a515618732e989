"""What the client knows of the cluster: its brokers, who leads which partition, and the open connections.

One `Cluster` belongs to one Producer, Consumer or Admin. Metadata is asked for when it is missing, when a broker's
answer shows it to be wrong (`mark_stale`), and when it is old; several who ask at once share one request.
Every wait has a deadline of the caller's, and failures wait longer each time before the next try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from ottla.client.connection import Connection
from ottla.client.connections import Connections
from ottla.client.errors import ClientClosed, ClientTimeout, ConnectionLost, NoBrokersAvailable, UnsupportedByBroker
from ottla.client.metrics import ConnectionMetrics
from ottla.client.options import ClientOptions
from ottla.client.shared_tasks import outcome_of
from ottla.client.structs import BrokerAddress
from ottla.client.topic_metadata import TopicMetadata
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.message import Request, Response
from ottla.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)
T = TypeVar("T")

MAX_TOPIC_NAME_CHARACTERS = 249
"""Kafka's limit, which keeps a name with its partition within a file name."""
_FIRST_VERSION_WITH_AUTO_CREATION_SWITCH = 4
_FIRST_VERSION_THAT_FINDS_IDS = 12


@dataclass(slots=True)
class _Snapshot:
    """The last answer about the cluster itself."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerAddress] = field(default_factory=dict)


class Cluster:
    """See the module. `start` before use, `close` after."""

    def __init__(
        self,
        servers: list[tuple[str, int]],
        options: ClientOptions,
        *,
        allow_auto_create_topics: bool = False,
        retries: int = 2**31 - 1,
    ) -> None:
        self.options = options
        self.topics: dict[str, TopicMetadata] = {}
        self.on_update: Callable[[], None] | None = None
        self._allow_auto_create_topics = allow_auto_create_topics
        self._servers = servers
        self._retries = retries
        self.metrics = ConnectionMetrics(asyncio.get_running_loop().time())
        self.asked_at = 0.0
        """When the metadata that is known was told, by the loop's clock."""
        self._connections = Connections(options, self.metrics)
        self._known = _Snapshot()
        self._wanted: set[str] = set()
        """What is asked for; `_in_use` of that lasts until `forget`, the rest was only asked about."""
        self._in_use: set[str] = set()
        self._wants_all = False
        self._knows_all = False
        self._is_stale = False
        self._is_closed = False
        self._refreshing: asyncio.Task[None] | None = None
        self._stale_refresh: asyncio.Task[None] | None = None
        self._ageing: asyncio.TimerHandle | None = None

    # The cluster ------------------------------------------------------------------------------------------------

    @property
    def brokers(self) -> dict[int, BrokerAddress]:
        """The brokers by node id."""
        return self._known.brokers

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, where the broker tells it."""
        return self._known.cluster_id

    @property
    def controller_id(self) -> int:
        """The broker to ask for changes; -1 when none is known."""
        return self._known.controller_id

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable with the reason of each bootstrap server."""
        await self.refresh()

    async def close(self) -> None:
        """End every connection and every attempt at once."""
        self._is_closed = True
        if self._ageing is not None:
            self._ageing.cancel()
        tasks = [task for task in (self._refreshing, self._stale_refresh) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._connections.end(), return_exceptions=True)

    async def finish_requests(self, limit_s: float) -> None:
        """Before `close`: let requests that have no answer leave, for so long at most."""
        await self._connections.finish(limit_s)

    # Metadata ---------------------------------------------------------------------------------------------------

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader as far as it is known, else -1."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        return found.leader_id if found is not None and found.leader_id in self._known.brokers else -1

    def epoch_of(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, -1 when it is not known."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        return found.leader_epoch if found is not None else -1

    def topic_id(self, topic: str) -> UUID:
        """Return a topic's id, zero when it is not known."""
        known = self.topics.get(topic)
        return known.topic_id if known is not None else ZERO_UUID

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic and stop asking for it."""
        self._wanted.discard(topic)
        self._in_use.discard(topic)
        self.topics.pop(topic, None)

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Ask for the metadata of the topics in use and of `topics`; shares a request that is on its way.

        Raises NoBrokersAvailable when no broker answers.
        """
        new = [topic for topic in topics if topic not in self._wanted]
        for topic in new:
            if not 0 < len(topic) <= MAX_TOPIC_NAME_CHARACTERS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic[:30]!r} cannot be the name of a topic")
        self._wanted.update(new)
        if self._refreshing is not None and new:
            await asyncio.wait([self._refreshing])  # it was asked before the new topics were wanted
        if self._refreshing is None or self._refreshing.done():
            if self._is_closed:
                raise ClientClosed("the client is closed")
            self._refreshing = asyncio.create_task(self._ask_metadata(), name="ottla-metadata")
        await outcome_of(self._refreshing)

    def want(self, topics: Iterable[str]) -> None:
        """Ask for topics from now on, and at once for those that are not known."""
        topics = set(topics)
        self._in_use |= topics
        self._wanted |= topics
        if not self._wanted <= self.topics.keys():
            self._refresh_in_background(is_urgent=True)

    def want_all(self, is_wanted: bool) -> None:
        """Ask for every topic there is from now on, or only for those in use again."""
        if is_wanted == self._wants_all:
            return
        self._wants_all = is_wanted
        self._knows_all = False
        if is_wanted:
            self._refresh_in_background(is_urgent=True)
        else:
            for name in self.topics.keys() - self._wanted:
                del self.topics[name]

    async def know_all(self, timeout_ms: int) -> None:
        """Wait until every topic is known, as `want_all` asked for; raises KafkaError after `timeout_ms`."""

        async def look() -> None:
            while self._wants_all and not self._knows_all:
                await self.refresh()

        await self.retry(look, timeout_ms)

    async def learn_names(self, topic_ids: Iterable[UUID]) -> dict[UUID, str]:
        """Return the names of topics by their ids, and want these topics; ids that no topic has are left out."""
        known = {topic.topic_id: name for name, topic in self.topics.items()}
        missing = [topic_id for topic_id in topic_ids if topic_id not in known]
        if missing:
            connection = await self.any_connection()
            version = connection.version_for(MetadataRequest)
            if version < _FIRST_VERSION_THAT_FINDS_IDS:
                raise UnsupportedByBroker(f"the broker at {connection.address} finds no topics by their ids")
            topics = [MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in missing]
            request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
            answer = await connection.send(request, MetadataResponse, version)
            found = {told.topic_id: told.name for told in answer.topics if told.name and not told.error_code}
            known.update(found)
            if found:
                await self.refresh(found.values())
        return {topic_id: known[topic_id] for topic_id in topic_ids if topic_id in known}

    def mark_stale(self) -> None:
        """Ask for metadata soon, because an answer showed that it is wrong; any number of calls make one request."""
        self._refresh_in_background(is_urgent=False)

    def _refresh_in_background(self, *, is_urgent: bool) -> None:
        self._is_stale = True  # also for a refresh that is on its way: it may have been asked too early
        if self._is_closed or (self._stale_refresh is not None and not self._stale_refresh.done()):
            return
        self._stale_refresh = asyncio.create_task(self._refresh_until_answered(is_urgent), name="ottla-metadata-stale")

    async def _refresh_until_answered(self, is_urgent: bool) -> None:
        attempts = 0
        while not self._is_closed:
            attempts += 1
            if not is_urgent or attempts > 1:
                await asyncio.sleep(self.options.retry_pause_s(attempts))
            self._is_stale = False
            try:
                await self.refresh()
            except KafkaError as failed:
                logger.warning("metadata: %s", failed)
                continue
            if not self._is_stale:
                return

    async def topic(self, name: str, timeout_ms: int) -> TopicMetadata:
        """Return a topic that can be used, waiting until it exists and its partitions are known.

        Raises the broker's KafkaError when that cannot be mended by waiting, or when `timeout_ms` is over.
        """
        known = self.topics.get(name)
        if known is not None and known.is_usable:
            return known

        async def look() -> TopicMetadata:
            await self.refresh([name])
            found = self.topics.get(name)
            if found is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}: the broker said nothing of this topic")
            if found.error:
                raise KafkaError(found.error, f"{name}: {found.error.message}")
            if not found.is_usable:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}: its partitions are not known yet")
            return found

        try:
            return await self.retry(look, timeout_ms)
        except BaseException:
            if name not in self._in_use:
                self.forget(name)  # or every later request would ask for it again, and perhaps create it
            raise

    async def _ask_metadata(self) -> None:
        loop = asyncio.get_running_loop()
        connection = await self.any_connection()
        version = connection.version_for(MetadataRequest)
        wanted = sorted(self._wanted)
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in wanted]
        wants_all = self._wants_all
        if wants_all and version == 0:
            named = []  # version 0 has no null for everything
        request = MetadataRequest(
            topics=None if wants_all and version else named,
            allow_auto_topic_creation=self._allow_auto_create_topics
            or version < _FIRST_VERSION_WITH_AUTO_CREATION_SWITCH,
        )
        answer = await connection.send(request, MetadataResponse, version)
        self._take(answer, is_everything=wants_all)
        self.asked_at = loop.time()
        if self._ageing is not None:
            self._ageing.cancel()
        if not self._is_closed:
            self._ageing = loop.call_later(self.options.metadata_max_age_ms / 1000, self.mark_stale)
        if self.on_update is not None:
            self.on_update()

    def _take(self, answer: MetadataResponse, *, is_everything: bool) -> None:
        """Replace what is known by what the broker said; what it did not name is gone if it told everything."""
        if answer.brokers:
            self._known = _Snapshot(
                cluster_id=answer.cluster_id,
                controller_id=answer.controller_id,
                brokers={b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in answer.brokers},
            )
        self._connections.drop_moved(self._known.brokers)
        for told in answer.topics:
            if told.name is None or not (is_everything or told.name in self._wanted):
                continue
            found = TopicMetadata.of(told.name, told)
            before = self.topics.get(told.name)
            if before is not None:
                found.keep_newer_leaders(before)
            self.topics[told.name] = found
        if is_everything:
            self._knows_all = self._wants_all
            for name in self.topics.keys() - {told.name for told in answer.topics}:
                del self.topics[name]

    # Connections ------------------------------------------------------------------------------------------------

    def open_connection(self, node_id: int, lane: int = 0) -> Connection | None:
        """Return the connection to a broker if one is open."""
        return self._connections.open_to(node_id, lane)

    async def connection(self, node_id: int, lane: int = 0) -> Connection:
        """Return an open connection to a broker, made now if need be.

        Each `lane` is a connection of its own: what is asked on one does not wait behind a Fetch parked on another.
        Raises ConnectionLost or ClientTimeout when it cannot be made, also while the broker's last failure is so recent
        that it is not dialled again.
        """
        return await self._connections.to(self._known.brokers.get(node_id), node_id, lane)

    async def require_broker(self, node_id: int | None) -> None:
        """Raise KafkaError BROKER_NOT_AVAILABLE, which no retry mends, for a broker that a program has named and that
        the metadata of now does not have. None is any broker.
        """
        if node_id is None or node_id in self.brokers:
            return
        await self.refresh()
        if node_id not in self.brokers:
            known = ", ".join(map(str, sorted(self.brokers))) or "none"
            reason = f"the cluster has no broker {node_id} at the moment; it has {known}"
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, reason)

    async def any_connection(self) -> Connection:
        """Return an open connection to whichever broker answers; raises NoBrokersAvailable when none does."""
        return await self._connections.to_any(self._known.brokers.values(), self._servers)

    # Requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self,
        node_id: int | None,
        request: Request,
        response: type[R],
        *,
        at_most: int = 2**15 - 1,
        timeout_ms: int | None = None,
    ) -> R:
        """Send a request to a broker, or to any (None), at the highest common version, and return the answer."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        version = connection.version_for(type(request), at_most)
        return await connection.send(request, response, version, timeout_ms)

    async def retry(self, attempt: Callable[[], Awaitable[T]], timeout_ms: int) -> T:
        """Call `attempt` until it succeeds, with growing pauses, for at most `timeout_ms`.

        Errors that a retry cannot mend come out at once; when the time is over, the last error does, or ClientTimeout.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        last: KafkaError | None = None
        attempts = 0
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    return await attempt()
            except TimeoutError:
                raise last or ClientTimeout(f"nothing came of it within {timeout_ms} ms") from None
            except KafkaError as failed:
                if not is_worth_retrying(failed):
                    raise
                last = failed
            logger.info("%s; asking again", last)
            attempts += 1
            pause_s = self.options.retry_pause_s(attempts)
            if attempts > self._retries or loop.time() + pause_s >= deadline:
                raise last
            await asyncio.sleep(pause_s)


def is_worth_retrying(error: KafkaError) -> bool:
    """Whether the same request may succeed later: what Kafka calls retriable, and brokers that cannot be reached."""
    return error.code.retriable or isinstance(error, (ConnectionLost, NoBrokersAvailable))
