"""The broker that coordinates a group or a transactional id. It is found by FindCoordinator, and again when it moves.

A group's JoinGroup, SyncGroup and heartbeats use one connection (a JoinGroup blocks it until all members have joined),
commits another one, so that offsets can be committed while the group rebalances. After a code such as NOT_COORDINATOR
the coordinator is unknown; the next request finds it again.
"""

from __future__ import annotations

import logging
from enum import IntEnum
from typing import TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ClientTimeout, ConnectionLost, KafkaError, UnsupportedByBroker
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

MEMBERSHIP_LANE = 3
"""The connection of JoinGroup, SyncGroup and heartbeats."""
OFFSETS_LANE = 0
"""The connection of commits and of transactions; it is shared with metadata requests."""
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""The codes of a broker that does not, or no longer, coordinate the group."""
_FIRST_VERSION_WITH_KEYS = 4
_FIRST_VERSION_WITH_KEY_TYPE = 1


class KeyType(IntEnum):
    """The kinds of keys that have a coordinator."""

    GROUP = 0
    TRANSACTION = 1

    def of(self, key: str) -> str:
        """Return the name of a key in errors."""
        return f"group {key}" if self is KeyType.GROUP else f"transactional id {key}"


async def find_coordinator(cluster: Cluster, key: str, kind: KeyType = KeyType.GROUP) -> int:
    """Return the node id of the coordinator of a group or a transactional id.

    Raises KafkaError when the broker names none or refuses, UnsupportedByBroker for a transactional id if the broker
    has no transactions.
    """
    connection = await cluster.any_connection()
    version = connection.version_for(FindCoordinatorRequest)
    if version >= _FIRST_VERSION_WITH_KEYS:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    elif version < _FIRST_VERSION_WITH_KEY_TYPE and kind is not KeyType.GROUP:
        raise UnsupportedByBroker(f"the broker at {connection.address} has no transactions")
    else:
        request = FindCoordinatorRequest(key=key, key_type=kind)
    answer = await connection.send(request, FindCoordinatorResponse, version)
    found = next((one for one in answer.coordinators if one.key == key), None)
    if found is None and version >= _FIRST_VERSION_WITH_KEYS and not answer.error_code:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{kind.of(key)}: the broker's answer lacks it")
    code = ErrorCode.of(answer.error_code if found is None else found.error_code)
    node_id = answer.node_id if found is None else found.node_id
    if code:
        message = answer.error_message if found is None else found.error_message
        raise KafkaError(code, f"{kind.of(key)}: {message or code.message}")
    if node_id not in cluster.brokers:
        await cluster.refresh()
        if node_id not in cluster.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{kind.of(key)}: broker {node_id} is not known")
    return node_id


class Coordinator:
    """See the module."""

    def __init__(self, cluster: Cluster, key: str, kind: KeyType = KeyType.GROUP) -> None:
        self.key = key
        """The key: a group's id, or a transactional id."""
        self._kind = kind
        self._cluster = cluster
        self._node_id: int | None = None

    async def connection(self, lane: int) -> Connection:
        """Return a connection to the coordinator; raises KafkaError when it cannot be found or reached."""
        if self._node_id is None:
            self._node_id = await find_coordinator(self._cluster, self.key, self._kind)
        try:
            return await self._cluster.connection(self._node_id, lane)
        except KafkaError as failed:
            self.lose(failed.message)
            raise

    async def ask(
        self, request: Request, response: type[R], *, lane: int, at_most: int = 2**15 - 1, timeout_ms: int | None = None
    ) -> R:
        """Send a request at the highest common version and return the answer, without checking its codes."""
        connection = await self.connection(lane)
        version = connection.version_for(type(request), at_most)
        return await self.send(connection, request, response, version, timeout_ms)

    async def send(
        self, connection: Connection, request: Request, response: type[R], version: int, timeout_ms: int | None = None
    ) -> R:
        """Send a request over a connection of `connection()`; if that fails, the coordinator becomes unknown."""
        try:
            return await connection.send(request, response, version, timeout_ms)
        except (ConnectionLost, ClientTimeout) as failed:
            self.lose(failed.message)
            raise

    def lose(self, reason: str) -> None:
        """Find the coordinator again before the next request."""
        if self._node_id is not None:
            logger.info("%s: coordinator %d is lost: %s", self._kind.of(self.key), self._node_id, reason)
            self._node_id = None

    def hear(self, code: ErrorCode) -> None:
        """Note a code of an answer: some mean that the coordinator has changed."""
        if code in MOVED:
            self.lose(code.message)
