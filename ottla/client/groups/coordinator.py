"""The broker that coordinates a group: found by FindCoordinator, asked over two connections, found again when lost.

Joining, syncing and heartbeats go over one connection (a JoinGroup parks it until all members have joined), commits
over another, so that offsets can be committed while the group rebalances. Answers with a code that means "not I" make
the coordinator unknown; the next request looks for it again.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ClientTimeout, ConnectionLost, KafkaError
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

MEMBERSHIP_LANE = 3
"""The connection of JoinGroup, SyncGroup and heartbeats."""
OFFSETS_LANE = 0
"""That of commits; shared with questions about metadata."""
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""What a broker says that does not, or no longer, coordinate the group."""
GROUP_KEY_TYPE = 0
_FIRST_VERSION_WITH_KEYS = 4
_FIRST_VERSION_WITH_KEY_TYPE = 1


async def find_coordinator(cluster: Cluster, group_id: str) -> int:
    """Return the node id of a group's coordinator; raises KafkaError when the broker names none or refuses."""
    connection = await cluster.any_connection()
    version = connection.version_for(FindCoordinatorRequest)
    if version >= _FIRST_VERSION_WITH_KEYS:
        request = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[group_id])
    else:
        request = FindCoordinatorRequest(key=group_id)
    answer = await connection.send(request, FindCoordinatorResponse, version)
    found = next((one for one in answer.coordinators if one.key == group_id), None)
    if found is None and version >= _FIRST_VERSION_WITH_KEYS and not answer.error_code:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}: the broker said nothing of it")
    code = ErrorCode.of(answer.error_code if found is None else found.error_code)
    node_id = answer.node_id if found is None else found.node_id
    if code:
        message = answer.error_message if found is None else found.error_message
        raise KafkaError(code, f"group {group_id}: {message or code.message}")
    if node_id not in cluster.brokers:
        await cluster.refresh()
        if node_id not in cluster.brokers:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {group_id}: broker {node_id} is not known")
    return node_id


class Coordinator:
    """See the module."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._node_id: int | None = None

    async def connection(self, lane: int) -> Connection:
        """Return a connection to the coordinator; raises KafkaError when it cannot be found or reached."""
        if self._node_id is None:
            self._node_id = await find_coordinator(self._cluster, self.group_id)
        try:
            return await self._cluster.connection(self._node_id, lane)
        except KafkaError as failed:
            self.lose(failed.message)
            raise

    async def ask(
        self, request: Request, response: type[R], *, lane: int, at_most: int = 2**15 - 1, timeout_ms: int | None = None
    ) -> R:
        """Send a request at the highest common version and return the answer, whatever codes it has."""
        connection = await self.connection(lane)
        version = connection.version_for(type(request), at_most)
        return await self.send(connection, request, response, version, timeout_ms)

    async def send(
        self, connection: Connection, request: Request, response: type[R], version: int, timeout_ms: int | None = None
    ) -> R:
        """Send a request over a connection of `connection()`; a connection that fails loses the coordinator."""
        try:
            return await connection.send(request, response, version, timeout_ms)
        except (ConnectionLost, ClientTimeout) as failed:
            self.lose(failed.message)
            raise

    def lose(self, reason: str) -> None:
        """Look for the coordinator again the next time."""
        if self._node_id is not None:
            logger.info("group %s: coordinator %d is lost: %s", self.group_id, self._node_id, reason)
            self._node_id = None

    def hear(self, code: ErrorCode) -> None:
        """Note a code of an answer: some say that the coordinator is another."""
        if code in MOVED:
            self.lose(code.message)
