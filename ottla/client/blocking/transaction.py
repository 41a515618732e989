"""The `with` block of a blocking producer's transaction: its records are added to batches before the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from ottla.client.blocking.consumer import Consumer
from ottla.client.structs import GroupMetadata, OffsetAndMetadata, TopicPartition
from ottla.client.transactional import Transaction as AsyncTransaction


class Running(Protocol):
    """The part of a producer that a transaction uses."""

    def run_in_transaction(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of the transaction, and wait for it."""

    async def end_transaction(self, end: Callable[[], Awaitable[None]]) -> None:
        """In the loop's thread: end a transaction when all sent records are in batches, or refused."""


class Transaction:
    """A transaction, from the beginning of its `with` block to the end; `Producer.transaction` returns it."""

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
        """Commit a consumer's positions with the transaction, or these offsets, each that of the next record.

        `source` is the consumer, or the metadata of its group, which needs `offsets`. Raises ValueError for a consumer
        that commits automatically, CommitFailed for one that is not a member of its group at the moment, and
        AbortableTransactionError when the group has assigned its partitions to other members.
        """
        read = source if isinstance(source, GroupMetadata) else source._inner
        self._producer.run_in_transaction(self._inner.send_offsets(read, offsets))

    def abort(self) -> None:
        """Abort the transaction now; the end of the block then does nothing."""
        self._producer.run_in_transaction(self._producer.end_transaction(self._inner.abort))

    async def _begin(self) -> None:
        await self._inner.__aenter__()
