"""Transactions as a program uses them: the producer's methods, and the `async with` block around them.

What belongs to a transaction becomes visible together when it commits, to consumers that read with `read_committed`:
records of any topics, and offsets of what was consumed for them. After an abort, or a crash, none of it does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.client.errors import AbortableTransactionError, KafkaError
from ottla.client.structs import GroupMetadata, OffsetAndMetadata, TopicPartition
from ottla.client.unfinished_batches import UnfinishedBatches
from ottla.client_core.transaction_questions import Offsets
from ottla.client_core.transactions import Phase
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.transaction_driver import TransactionDriver

logger = logging.getLogger(__name__)


class TransactionMethods:
    """The part of a Producer that has transactions, with a `transactional_id`; `Producer` is the class for programs."""

    _transactions: TransactionDriver | None = None
    _batches: UnfinishedBatches

    def transaction(self) -> Transaction:
        """Return a transaction, as a block: `async with producer.transaction() as transaction`.

        It begins with the block and commits at its end. When the block raises it is aborted, and the exception goes
        on. The end of the block raises what kept the transaction from being committed: AbortableTransactionError (it is
        aborted then, and the next one may begin), FatalTransactionError (the producer can only be closed), or
        ClientTimeout after `max_block_ms`, when it is open how the transaction ends: `commit_transaction` waits on.
        """
        return Transaction(self)

    async def begin_transaction(self) -> None:
        """Begin a transaction; what is sent from here on belongs to it.

        Raises RuntimeError when another one has not ended, FatalTransactionError when the producer cannot go on.
        """
        await self._driver().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit offsets of a group with the transaction, each that of the next record to read.

        `group` is `consumer.group_metadata()` of the consumer that has read: if the group has given its partitions to
        others meanwhile, this raises AbortableTransactionError. Waits until the group's coordinator has them.
        """
        if not offsets:
            return
        group_id, generation, member_id, group_instance_id = group
        given: dict[tuple[str, int], tuple[int, str, int]] = {
            TopicPartition(*place): OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
            for place, offset in offsets.items()
        }
        for (topic, index), (offset, _, _) in given.items():
            if offset < 0:
                raise ValueError(f"{topic}-{index}: an offset is 0 or more, not {offset}")
        await self._driver().send_offsets(
            Offsets(group_id, given, generation=generation, member_id=member_id, group_instance_id=group_instance_id)
        )

    async def commit_transaction(self) -> None:
        """Deliver what was sent, and commit it. Raises AbortableTransactionError when it can only be aborted.

        After ClientTimeout it is open how the transaction ends, and another call waits on.
        """
        await self._end(self._driver().commit)

    async def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent yet are dropped, the others never become visible."""
        await self._end(self._driver().abort)

    # Inside -----------------------------------------------------------------------------------------------------

    def _hurry(self, change: int) -> None:
        raise NotImplementedError

    async def _end(self, end: Any) -> None:
        self._hurry(1)
        try:
            await end()
        finally:
            self._hurry(-1)
            if self._driver().state.phase is not Phase.COMMITTING:
                self._batches.forget_failures()

    async def _abort_open_transaction(self, timeout_ms: int | None) -> None:
        """Abort, because the producer is closed; if that fails, the coordinator does it when the timeout is over."""
        if self._has_open_transaction:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self.abort_transaction()
            except (KafkaError, TimeoutError) as failed:
                logger.warning("a transaction was not aborted when its producer was closed: %s", failed)

    def _fail_transaction(self, error: Exception) -> None:
        """Let the transaction only be aborted: a record of it was refused, and the program has not heard of it."""
        if self._has_open_transaction:
            failed = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.INVALID_RECORD, str(error))
            driver = self._driver()
            driver.state.give_up(failed)
            driver.changed()

    def _driver(self) -> TransactionDriver:
        if self._transactions is None:
            raise RuntimeError("the producer was not started, or has no transactional_id")
        return self._transactions

    @property
    def _has_open_transaction(self) -> bool:
        """Whether there is one that can be aborted."""
        return self._transactions is not None and self._transactions.state.phase in (Phase.OPEN, Phase.FAILED)


class Transaction:
    """A transaction, from the beginning of its `async with` block to the end; `Producer.transaction` makes it."""

    def __init__(self, producer: TransactionMethods) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._commit()
            return
        try:
            await self.abort()
        except KafkaError as failed:  # the program's own error is the one to be seen
            logger.warning("a transaction was not aborted: %s", failed)
            error.add_note(f"The transaction was not aborted: {failed}")

    async def send_offsets(
        self,
        source: Consumer[Any, Any] | GroupMetadata,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit with the transaction how far a consumer has read, or these offsets, each that of the next record.

        `source` is the consumer, or the metadata of its group, which needs `offsets`. Raises ValueError for a consumer
        that commits by itself, CommitFailed for one that is no member of its group at the moment, and
        AbortableTransactionError when the group has given its partitions to others.
        """
        if isinstance(source, GroupMetadata):
            if offsets is None:
                raise ValueError("group metadata do not say how far was read: give the offsets, or the consumer")
            await self._producer.send_offsets_to_transaction(offsets, source)
            return
        group, consumed = source.consumed_for_transaction()
        try:
            await self._producer.send_offsets_to_transaction(consumed if offsets is None else offsets, group)
        except AbortableTransactionError as refused:
            source.hear_refused_transaction(group, refused.code)
            raise

    async def abort(self) -> None:
        """Abort the transaction now; the end of the block has nothing to do then."""
        if self._producer._has_open_transaction:
            await self._producer.abort_transaction()

    async def _commit(self) -> None:
        driver = self._producer._driver()
        if driver.state.phase is Phase.READY:
            return  # the block has ended it already
        try:
            await self._producer.commit_transaction()
        except KafkaError:
            if self._producer._has_open_transaction:
                await self._producer.abort_transaction()
            raise
