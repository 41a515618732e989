"""The connections of one client: one per broker and lane, made when needed, closed when the broker moves.

Concurrent callers share one connection attempt. After a failure the broker is not dialled again for a pause, which
grows with each failure; a caller during the pause gets the error of the last attempt immediately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.address import host_and_port
from ottla.client.connecting import connect
from ottla.client.connection import Connection
from ottla.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionLost,
    KafkaError,
    NoBrokersAvailable,
    WrongBroker,
)
from ottla.client.metrics import ConnectionMetrics
from ottla.client.options import ClientOptions
from ottla.client.outages import METADATA, Outages, of_broker
from ottla.client.secured import Secured
from ottla.client.shared_tasks import outcome_of
from ottla.client.structs import BrokerAddress
from ottla.client_core.handshake import FIRST_WITH_PLACE, Place
from ottla.protocol.api import ApiKey

_NodeKey = tuple[int, int] | tuple[str, int]
"""A broker by (node id, lane), or a bootstrap server by (host, port)."""


@dataclass(slots=True)
class _Node:
    """A broker's connection, or the attempt to make one."""

    connection: Connection | None = None
    dialling: asyncio.Task[Connection] | None = None
    failures: int = 0
    not_before: float = 0.0
    failure: BaseException | None = None
    """The error of the last attempt."""


class Connections:
    """See the module."""

    def __init__(
        self,
        options: ClientOptions,
        metrics: ConnectionMetrics,
        cluster_id: Callable[[], str | None],
        on_wrong_broker: Callable[[WrongBroker], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._on_wrong_broker = on_wrong_broker
        self._checks_places = False
        """Whether a broker of the cluster checks whether it is the expected one."""
        self._options = options
        self._metrics = metrics
        self._secured = Secured(options)
        self._nodes: dict[_NodeKey, _Node] = {}
        self._is_closed = False
        self.outages = Outages()

    def end(self) -> list[asyncio.Future[Any]]:
        """End every connection and every attempt now; return futures that are done when they have ended."""
        self._is_closed = True
        dialling = [node.dialling for node in self._nodes.values() if node.dialling is not None]
        for task in dialling:
            task.cancel()
        open_connections = [node.connection for node in self._nodes.values() if node.connection is not None]
        for connection in open_connections:
            connection.close()
        return [*dialling, *(connection.closed for connection in open_connections)]

    async def finish(self, limit_s: float) -> None:
        """Wait until the written bytes of every connection are sent, for at most this time; use none afterwards."""
        open_connections = [node.connection for node in self._nodes.values() if node.connection is not None]
        for connection in open_connections:
            connection.finish()
        if open_connections:
            await asyncio.wait([connection.closed for connection in open_connections], timeout=limit_s)

    def open_to(self, node_id: int, lane: int) -> Connection | None:
        """Return the connection to a broker if one is open."""
        node = self._nodes.get((node_id, lane))
        if node is None or node.connection is None or not node.connection.is_open:
            return None
        return node.connection

    async def to(self, address: BrokerAddress | None, node_id: int, lane: int) -> Connection:
        """Return an open connection to a broker, made now if needed; raises ConnectionLost or ClientTimeout."""
        found = self.open_to(node_id, lane)
        if found is not None:
            return found
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not known")
        return await self._dial((node_id, lane), address.host, address.port)

    async def to_any(self, brokers: Iterable[BrokerAddress], servers: Sequence[tuple[str, int]]) -> Connection:
        """Return an open connection to a broker, or to a bootstrap server. Raises NoBrokersAvailable with the reasons;
        raises AuthenticationFailed immediately.
        """
        for key in self._nodes:
            if isinstance(key[0], int) and key[1] == 0 and (found := self.open_to(key[0], 0)) is not None:
                return found
        reasons: list[str] = []
        candidates: list[tuple[_NodeKey, str, int]] = [
            ((address.node_id, 0), address.host, address.port) for address in brokers
        ]
        candidates += [((host, port), host, port) for host, port in servers]
        for key, host, port in candidates:
            try:
                return await self._dial(key, host, port)
            except AuthenticationFailed:  # the other brokers of the cluster would not accept the login either
                raise
            except KafkaError as failed:
                reasons.append(failed.message)
        raise NoBrokersAvailable("; ".join(dict.fromkeys(reasons)))

    def drop_moved(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Close the connections of brokers that have left the cluster or have another address now."""
        for key, node in list(self._nodes.items()):
            if isinstance(key[0], str) or node.connection is None:
                continue
            address = brokers.get(key[0])
            if address is None or node.connection.address != host_and_port(address.host, address.port):
                node.connection.close("the broker has moved or left the cluster")
                if node.dialling is None:  # otherwise the connection that is being made would be lost
                    del self._nodes[key]

    async def _dial(self, key: _NodeKey, host: str, port: int) -> Connection:
        if self._is_closed:
            raise ClientClosed("the client is closed")
        loop = asyncio.get_running_loop()
        node = self._nodes.setdefault(key, _Node())
        if node.connection is not None and node.connection.is_open:
            return node.connection
        if node.dialling is None:
            if loop.time() < node.not_before:
                if isinstance(node.failure, AuthenticationFailed):
                    raise AuthenticationFailed(node.failure.message, node.failure.code)
                message = node.failure.message if isinstance(node.failure, KafkaError) else str(node.failure)
                raise ConnectionLost(message)
            attempt = connect(host, port, self._options, self._metrics, self._secured, self._place(key))
            node.dialling = asyncio.create_task(attempt, name=f"ottla-dial-{host_and_port(host, port)}")
            node.dialling.add_done_callback(lambda task: self._on_dialled(key, node, task))
        return await outcome_of(node.dialling)

    def _place(self, key: _NodeKey) -> Place | None:
        """The broker that is expected; None for a bootstrap server, and in clusters before Kafka 4.4."""
        cluster_id = self._cluster_id()
        is_checked = self._checks_places and self._options.metadata_cluster_check_enable
        return Place(cluster_id, key[0]) if is_checked and cluster_id and isinstance(key[0], int) else None

    def _on_dialled(self, key: _NodeKey, node: _Node, task: asyncio.Task[Connection]) -> None:
        node.dialling = None
        if task.cancelled():
            return
        failure = node.failure = task.exception()
        if failure is None:
            node.connection = task.result()
            _, newest = node.connection.versions.get(ApiKey.API_VERSIONS, (0, 0))
            self._checks_places = self._checks_places or newest >= FIRST_WITH_PLACE
            node.failures = 0
            if isinstance(key[0], int):
                self.outages.over(of_broker(key[0]))
            self.outages.over(METADATA)
            if self._is_closed:
                node.connection.close()
            return
        node.failures += 1
        loop = asyncio.get_running_loop()
        node.not_before = loop.time() + self._options.reconnect_pause_s(node.failures)
        if isinstance(failure, WrongBroker) and not self._is_closed:
            self._on_wrong_broker(failure)
