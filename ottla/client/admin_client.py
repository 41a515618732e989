"""The base of every part of an Admin: start and close, requests to the controller, and refusals by name.

A method that handles several things does all it can, then raises `AdminError` with the refusals by name. Changes are
sent to the controller if the broker names one, and again to the new one after NOT_CONTROLLER; transient errors are
retried for `default_api_timeout_ms`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

from ottla.client.admin_results import AdminError
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ClientClosed, KafkaError, UnsupportedByBroker, not_started
from ottla.client.options import AdminKeywords, AdminOptions, Servers, read_options
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request


class AdminClient:
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `AdminOptions` and `ClientOptions` describe
    them. Raises ValueError for an option that does not exist or is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        **options: Unpack[AdminKeywords],
    ) -> None:
        self._servers, self._options = read_options(AdminOptions, bootstrap_servers, options)
        self._timeout_ms = self._options.default_api_timeout_ms
        self._cluster: Cluster | None = None
        self._is_closed = False

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable, ClientClosed after `close`. A second call does nothing."""
        if self._is_closed:
            raise ClientClosed("the admin is closed")
        if self._cluster is not None:
            return
        cluster = Cluster(self._servers, self._options, retries=self._options.retries)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster = cluster

    async def close(self) -> None:
        """End the connections."""
        self._is_closed = True
        if self._cluster is not None:
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the admin's connections, by Kafka's metric names; NaN for those without any event."""
        return self._started().metrics.snapshot(asyncio.get_running_loop().time())

    # Inside -----------------------------------------------------------------------------------------------------

    def _started(self) -> Cluster:
        if self._is_closed or self._cluster is None:
            raise ClientClosed("the admin is closed") if self._is_closed else not_started("the admin")
        return self._cluster

    async def _controller(self, request: type[Request], lowest: int = 0) -> tuple[Connection, int]:
        """Return a connection to the controller, or to any broker if none is known, and the version to use."""
        cluster = self._started()
        is_known = cluster.controller_id in cluster.brokers
        connection = await (cluster.connection(cluster.controller_id) if is_known else cluster.any_connection())
        version = connection.version_for(request)
        if version < lowest:
            raise UnsupportedByBroker(
                f"the broker at {connection.address} is too old to choose partitions and replicas"
            )
        return connection, version

    async def _change(self, attempt: Callable[[], Awaitable[dict[str, KafkaError]]]) -> None:
        """Retry a change until the controller has processed it; raise AdminError with its refusals."""
        cluster = self._started()

        async def until_controller() -> dict[str, KafkaError]:
            refused = await attempt()
            for error in refused.values():
                if error.code == ErrorCode.NOT_CONTROLLER:
                    await cluster.refresh()
                    raise error
            return refused

        refused = await cluster.retry(until_controller, self._timeout_ms)
        if refused:
            raise AdminError(refused)


def refusals(entries: Iterable[tuple[str, int, str | None]]) -> dict[str, KafkaError]:
    """Return the errors among (name, error code, message)."""
    return {name: KafkaError(ErrorCode.of(code), message) for name, code, message in entries if code}
