"""The `with` block of a blocking producer's transaction: what it has sent is handed over before the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ottla.client.blocking.consumer import Consumer
from ottla.client.structs import GroupMetadata, OffsetAndMetadata, TopicPartition
from ottla.client.transactional import Transaction as AsyncTransaction


class Running(Protocol):
    """What a transaction asks of its producer."""

    def run_in_transaction(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the transaction, and wait for it."""

    async def end_transaction(self, end: Callable[[], Awaitable[None]]) -> None:
        """In the loop's thread: end a transaction when all that was sent is in batches, or refused."""


class Transaction:
    """A transaction, from the beginning of its `with` block to the end; `Producer.transaction` makes it."""

    def __init__(self, producer: Running, inner: AsyncTransaction) -> None:
        self._producer = producer
        self._inner = inner

    def __enter__(self) -> Self:
        self._producer.run_in_transaction(self._begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        async def end() -> None:
            await self._inner.__aexit__(kind, error, traceback)

        self._producer.run_in_transaction(self._producer.end_transaction(end))

    def send_offsets(
        self,
        source: Consumer[Any, Any] | GroupMetadata,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit with the transaction how far a consumer has read, or these offsets, each that of the next record.

        `source` is the consumer, or the metadata of its group, which needs `offsets`. Raises ValueError for a consumer
        that commits by itself, CommitFailed for one that is no member of its group at the moment, and
        AbortableTransactionError when the group has given its partitions to others.
        """
        read = source if isinstance(source, GroupMetadata) else source._inner
        self._producer.run_in_transaction(self._inner.send_offsets(read, offsets))

    def abort(self) -> None:
        """Abort the transaction now; the end of the block has nothing to do then."""
        self._producer.run_in_transaction(self._producer.end_transaction(self._inner.abort))

    async def _begin(self) -> None:
        await self._inner.__aenter__()
