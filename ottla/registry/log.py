"""The topic `_schemas`: read from its beginning into a `State`, and written, each write read back before it counts.

One task reads. When reading fails, it begins again with a new connection and an empty state, which takes the place of
the old one when it has reached the end: so a topic that was deleted, or a broker that lost it, is noticed. Until the
first reading has reached the end there is no state, and requests wait for it for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ottla.client import Admin, Consumer, KafkaError, Producer, TopicPartition
from ottla.client.admin_results import AdminError, ConfigResource
from ottla.client.errors import AuthenticationFailed, NoBrokersAvailable
from ottla.protocol.errors import ErrorCode
from ottla.registry.errors import INVALID_SCHEMA, STORE_FAILED, TIMED_OUT, RegistryError
from ottla.registry.state import State

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 10.0
"""How long a request waits for the topic."""
PAUSE_S: Final = 0.5
"""Before a reading that failed begins again."""
_POLL_MS: Final = 60_000
_CLIENT_ID: Final = "ottla-registry"
ADMIN_DEFAULTS: Final[Mapping[str, object]] = {
    "client_id": _CLIENT_ID,
    "default_api_timeout_ms": 8_000,
    "request_timeout_ms": 8_000,
    "socket_connection_setup_timeout_ms": 3_000,
}
CONSUMER_DEFAULTS: Final[Mapping[str, object]] = {**ADMIN_DEFAULTS, "auto_offset_reset": "none"}
"""`none`: a log that begins later than what was read, or ends before, is not the one that was read."""
PRODUCER_DEFAULTS: Final[Mapping[str, object]] = {"client_id": _CLIENT_ID, "max_block_ms": 8_000, "linger_ms": 0}


@dataclass(frozen=True, slots=True)
class LogSettings:
    """The addresses, the topic, and the options of each kind of client as keyword arguments, checked before."""

    servers: str
    topic: str
    admin: Mapping[str, Any]
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]


class SchemaLog:
    """See the module. `start` and `close` it. `state` is what the topic says; it is replaced as a whole at times."""

    def __init__(self, settings: LogSettings, *, timeout_s: float = TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._partition = TopicPartition(settings.topic, 0)
        self._state: State | None = None
        self._applied = 0
        """The offset after the last record that is in the state."""
        self._consumer: Consumer[bytes, bytes] | None = None
        self._producer: Producer | None = None
        self._changed = asyncio.Condition()
        self._failure = "no broker has answered yet"
        self._reader: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read."""
        self._reader = asyncio.create_task(self._keep_reading())

    async def close(self) -> None:
        """End the reading, and close the connections."""
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._drop_producer()

    async def state(self) -> State:
        """What the topic says, as far as it was read. Raises RegistryError 50001 if it was never read to its end."""
        if self._state is None:
            await self._wait(lambda: self._state is not None)
        assert self._state is not None
        return self._state

    async def caught_up(self) -> State:
        """What the topic says, with everything that is in it now. Raises RegistryError."""
        await self.state()
        consumer = self._consumer
        if consumer is None:
            raise self._unavailable()
        try:
            async with asyncio.timeout(self._timeout_s):
                end = (await consumer.end_offsets([self._partition]))[self._partition]
                while not await consumer.has_reached(self._partition, end):  # what is taken is in the state at once
                    await self._wait_for_change()
        except (KafkaError, ValueError) as error:  # ValueError: the reading has just ended
            raise RegistryError(STORE_FAILED, f"Error in the backend data store: {line_of(error)}") from None
        except TimeoutError:
            raise self._unavailable() from None
        return await self.state()

    async def write(self, key: bytes, value: bytes | None) -> State:
        """Write a record, and return when it is in the state. Raises RegistryError; it may be written nevertheless."""
        try:
            async with asyncio.timeout(self._timeout_s):
                producer = await self._connected_producer()
                placed = await producer.send_and_wait(self._settings.topic, value, key=key, partition=0)
        except TimeoutError:
            await self._drop_producer()
            raise RegistryError(TIMED_OUT, f"Operation timed out: no answer within {self._timeout_s:g} s") from None
        except KafkaError as error:
            await self._drop_producer()
            if error.code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
                line = f"Invalid schema: it is too large for a record of {self._settings.topic}: {line_of(error)}"
                raise RegistryError(INVALID_SCHEMA, line) from None
            raise RegistryError(STORE_FAILED, f"Error in the backend data store: {line_of(error)}") from None
        await self._wait(lambda: self._state is not None and self._applied > placed.offset)
        return await self.state()

    # -- the reader

    async def _keep_reading(self) -> None:
        while True:
            try:
                await self._ensure_topic()
                await self._read()
            except KafkaError as error:
                self._note(line_of(error))
            except RegistryError as error:
                self._note(error.message)
            await asyncio.sleep(PAUSE_S)

    def _note(self, failure: str) -> None:
        """Remember why it cannot be read, for the answers; log it once."""
        if failure != self._failure:
            state = "cannot be read yet" if self._state is None else "is read again"
            logger.warning("%s %s: %s", self._settings.topic, state, failure)
        self._failure = failure

    async def _read(self) -> None:
        """Read until it fails; the state is replaced when the end of now is reached."""
        state = State()
        async with Consumer(self._settings.servers, **self._settings.consumer) as consumer:
            consumer.assign([self._partition])
            consumer.seek_to_beginning(self._partition)
            end = (await consumer.end_offsets([self._partition]))[self._partition]
            while not await consumer.has_reached(self._partition, end):
                await self._take(consumer, state, timeout_ms=200)
            self._state, self._consumer = state, consumer
            try:
                while True:
                    self._applied = await consumer.position(self._partition)
                    await self._tell()
                    await self._take(consumer, state, timeout_ms=_POLL_MS)
            finally:
                self._consumer = None

    async def _take(self, consumer: Consumer[bytes, bytes], state: State, timeout_ms: int) -> None:
        for records in (await consumer.getmany(timeout_ms=timeout_ms)).values():
            for record in records:
                state.replay(record.key, record.value)

    async def _ensure_topic(self) -> None:
        """Create the topic, or check the one that is there: without compaction its schemas would be deleted."""
        topic = self._settings.topic
        async with Admin(self._settings.servers, **self._settings.admin) as admin:
            if topic not in await admin.list_topics(include_internal=True):
                try:
                    await admin.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
                except KafkaError as error:
                    if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry has just created it
                        raise
            resource = ConfigResource.topic(topic)
            try:
                entries = (await admin.describe_configs([resource], keys=["cleanup.policy"]))[resource]
            except AdminError as error:
                if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:  # a user who may only read and write
                    raise
                return
        policy = entries["cleanup.policy"].value if "cleanup.policy" in entries else "compact"
        if policy != "compact":
            raise RegistryError(
                STORE_FAILED,
                f"the topic {topic} has cleanup.policy={policy}, by which schemas would be deleted: "
                f"`ottla configs alter --topic {topic} --set cleanup.policy=compact` changes that",
            )

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    # -- waiting

    async def _wait(self, is_done: Any) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                while not is_done():
                    await self._wait_for_change()
        except TimeoutError:
            raise self._unavailable() from None

    async def _wait_for_change(self) -> None:
        async with self._changed:
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S):  # the reader may have begun again in between
                    await self._changed.wait()

    def _unavailable(self) -> RegistryError:
        line = f"{self._settings.topic} cannot be read: {self._failure}"
        if self._consumer is not None:
            line = f"{self._settings.topic} was not read to its end within {self._timeout_s:g} s"
        return RegistryError(STORE_FAILED, f"Error in the backend data store: {line}")

    async def _connected_producer(self) -> Producer:
        if self._producer is None:
            producer = Producer(self._settings.servers, **self._settings.producer)
            await producer.start()
            self._producer = producer
        return self._producer

    async def _drop_producer(self) -> None:
        """Forget the producer after an error: a failed one refuses all further records."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close(timeout_ms=0)


def line_of(error: Exception) -> str:
    """An error of the client in one line."""
    if isinstance(error, AuthenticationFailed) or not isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, NoBrokersAvailable):
        return f"no broker answers: {error.message}"
    return f"{error.message} ({error.code.name})"
