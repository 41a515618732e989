"""The connections of the console to the cluster: made when they are first needed, and again after they failed.

One Admin and one Producer for all requests. A consumer belongs to one reading: a few may run at the same time, others
wait. Errors are one line for people (`line_of`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from ottla.client import Admin, Consumer, NoBrokersAvailable, Producer
from ottla.client.errors import AuthenticationFailed, KafkaError, is_worth_retrying
from ottla.protocol.errors import ErrorCode

MOST_READINGS = 4
"""Readings of records at the same time; a page asks for one."""
MOST_TAILS = 8
"""Live tails at the same time."""
ADMIN_TIMEOUT_MS = 8_000
"""Shorter than that of commands: the page says that no broker answers, and asks again by itself."""
FETCH_BYTES = 4 * 1024 * 1024
PARTITION_FETCH_BYTES = 256 * 1024
"""Small: a reading wants few records of each partition. A larger record is fetched nevertheless (KIP-74)."""

MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND})
"""The codes for what does not exist."""

ADMIN_DEFAULTS: Mapping[str, object] = {
    "client_id": "ottla-console",
    "default_api_timeout_ms": ADMIN_TIMEOUT_MS,
    "request_timeout_ms": ADMIN_TIMEOUT_MS,
    "socket_connection_setup_timeout_ms": 3_000,
}
CONSUMER_DEFAULTS: Mapping[str, object] = {
    **ADMIN_DEFAULTS,
    "auto_offset_reset": "earliest",
    "fetch_max_bytes": FETCH_BYTES,
    "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
    "max_poll_records": 500,
}
OF_NO_GROUP: Mapping[str, object] = {"group_id": None, "group_instance_id": None, "enable_auto_commit": False}
"""Of all consumers, whatever the user's file says: it may be the file of an application, and a reading of the console
would commit offsets for the application's group.
"""
OF_NO_TRANSACTION: Mapping[str, object] = {"transactional_id": None}
"""Of the producer, for the same reason: one with the application's transactional.id would fence the application."""
PRODUCER_DEFAULTS: Mapping[str, object] = {
    "client_id": "ottla-console",
    "max_block_ms": ADMIN_TIMEOUT_MS,
    "linger_ms": 0,
}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The addresses, and the options of each kind of client as keyword arguments, checked before."""

    servers: str
    admin: Mapping[str, Any]
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]


class Clients:
    """The clients of a cluster. Close them when the console ends."""

    def __init__(self, settings: ClientSettings) -> None:
        self.servers = settings.servers
        self._settings = settings
        self._admin: Admin | None = None
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        self._readings = asyncio.Semaphore(MOST_READINGS)
        self._tails = 0

    async def admin(self) -> Admin:
        """The Admin. Raises NoBrokersAvailable, AuthenticationFailed; the next call tries again."""
        async with self._starting:
            if self._admin is None:
                admin = Admin(self.servers, **self._settings.admin)
                await admin.start()
                self._admin = admin
            return self._admin

    async def producer(self) -> Producer:
        """The Producer. Raises as `admin`."""
        async with self._starting:
            if self._producer is None:
                producer = Producer(self.servers, **{**self._settings.producer, **OF_NO_TRANSACTION})
                await producer.start()
                self._producer = producer
            return self._producer

    async def drop_producer(self) -> None:
        """Forget the Producer after an error: a failed one refuses all further records."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=0)

    @asynccontextmanager
    async def reading(self, isolation_level: str) -> AsyncIterator[Consumer]:
        """A consumer for one reading; waits for its turn."""
        async with self._readings, Consumer(self.servers, **self._options(isolation_level)) as consumer:
            yield consumer

    @asynccontextmanager
    async def tailing(self, isolation_level: str) -> AsyncIterator[Consumer]:
        """A consumer for a live tail. Raises TooManyTails."""
        if self._tails >= MOST_TAILS:
            raise TooManyTails(f"{MOST_TAILS} live tails run already: close one of them")
        self._tails += 1
        try:
            async with Consumer(self.servers, **self._options(isolation_level)) as consumer:
                yield consumer
        finally:
            self._tails -= 1

    async def close(self) -> None:
        """Close the connections."""
        await self.drop_producer()
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    def _options(self, isolation_level: str) -> dict[str, Any]:
        return {**self._settings.consumer, **OF_NO_GROUP, "isolation_level": isolation_level}


class TooManyTails(Exception):
    """No further live tail is started; the message is one line for people."""


def is_final(error: KafkaError) -> bool:
    """Whether the same request will be refused again: the topic or group is missing, a right, a valid login."""
    return error.code in MISSING or not is_worth_retrying(error)


def line_of(error: KafkaError) -> str:
    """An error of the client in one line."""
    if isinstance(error, AuthenticationFailed):  # its line is complete
        return error.message
    if isinstance(error, NoBrokersAvailable):
        return f"no broker answers: {error.message}"
    return f"{error.message} ({error.code.name})"
