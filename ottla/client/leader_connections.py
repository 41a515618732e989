"""The connections to leaders for the sender: made, and waited for, in the background while the sender continues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.cluster import Cluster
from ottla.client.errors import KafkaError
from ottla.client.outages import of_broker

logger = logging.getLogger(__name__)


class LeaderConnections:
    """See the module. `on_change` is called when a leader may take requests again, and after a failed attempt."""

    def __init__(self, cluster: Cluster, on_change: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_change = on_change
        self._connecting: dict[int, asyncio.Task[None]] = {}

    def may_write(self, leader_id: int) -> bool:
        """Whether the leader's connection accepts bytes now; if not, it is made or waited for."""
        connection = self._cluster.open_connection(leader_id)
        if connection is None:
            self._connect(leader_id)
            return False
        if not connection.is_writable:
            connection.on_writable = self._on_change
            return False
        return True

    def stop(self) -> list[asyncio.Task[None]]:
        """Make no more connections; return the tasks that were running."""
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        return tasks

    def _connect(self, leader_id: int) -> None:
        if leader_id not in self._connecting:
            self._connecting[leader_id] = asyncio.create_task(self._dial(leader_id), name=f"ottla-dial-{leader_id}")

    async def _dial(self, leader_id: int) -> None:
        try:
            await self._cluster.connection(leader_id)
        except Exception as failed:  # a refusal or a bug, logged: batches wait for the connection
            if isinstance(failed, KafkaError):
                self._cluster.outages.failed(logger, of_broker(leader_id), failed.message)
            else:
                logger.exception("broker %d: the client failed", leader_id)
            self._cluster.mark_stale()
            await asyncio.sleep(self._cluster.options.reconnect_pause_s(1))
        finally:
            del self._connecting[leader_id]
        self._on_change()
