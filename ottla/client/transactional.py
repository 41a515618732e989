"""Transactions for programs: the producer's methods, and the `async with` block around them.

All parts of a transaction, records of any topics and the consumed offsets, become visible together when it commits, to
consumers that read with `read_committed`. After an abort, or a crash, none of them does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ottla.client.errors import AbortableTransactionError, KafkaError
from ottla.client.structs import GroupMetadata, OffsetAndMetadata, TopicPartition, require_int64
from ottla.client.unfinished_batches import UnfinishedBatches
from ottla.client_core.transaction_questions import Offsets
from ottla.client_core.transactions import Phase
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.transaction_driver import TransactionDriver

logger = logging.getLogger(__name__)


class TransactionMethods:
    """The part of a Producer for transactions, with a `transactional_id`; `Producer` is the class for programs."""

    _transactions: TransactionDriver | None = None
    _batches: UnfinishedBatches

    def transaction(self) -> Transaction:
        """Return a transaction, as a block: `async with producer.transaction() as transaction`.

        It begins with the block and commits at its end. If the block raises an exception, it is aborted, and the
        exception propagates. If the commit fails, the end of the block raises AbortableTransactionError (it is aborted
        then, and the next one may begin), FatalTransactionError (the producer can only be closed), or ClientTimeout
        after `max_block_ms`, with an unknown result: `commit_transaction` then continues to wait for it.
        """
        return Transaction(self)

    async def begin_transaction(self) -> None:
        """Begin a transaction; records that are sent from now on belong to it.

        Raises RuntimeError while another one is open, FatalTransactionError when the producer cannot continue.
        """
        await self._driver().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        """Commit offsets of a group with the transaction, each that of the next record to read.

        `group` is `consumer.group_metadata()` of the consumer that has read: if the group has assigned its partitions
        to other members meanwhile, this raises AbortableTransactionError. Waits until the group's coordinator has
        accepted the offsets.
        """
        if not offsets:
            return
        group_id, generation, member_id, group_instance_id = group
        given: dict[tuple[str, int], tuple[int, str, int]] = {
            TopicPartition(*place): OffsetAndMetadata(offset) if isinstance(offset, int) else OffsetAndMetadata(*offset)
            for place, offset in offsets.items()
        }
        for (topic, index), (offset, _, _) in given.items():
            require_int64(f"{topic}-{index}: an offset", offset)
        await self._driver().send_offsets(
            Offsets(group_id, given, generation=generation, member_id=member_id, group_instance_id=group_instance_id)
        )

    async def commit_transaction(self) -> None:
        """Deliver the sent records, and commit. Raises AbortableTransactionError when it can only be aborted.

        After ClientTimeout the result is unknown, and another call continues to wait for it.
        """
        await self._end(self._driver().commit)

    async def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent yet are dropped, the rest never become visible."""
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
        """Abort, because the producer is being closed; if that fails, the coordinator does it after the timeout."""
        if self._has_open_transaction:
            try:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self.abort_transaction()
            except (KafkaError, TimeoutError) as failed:
                logger.warning("a transaction was not aborted when its producer was closed: %s", failed)

    def _fail_transaction(self, error: Exception) -> None:
        """Make the transaction one that can only be aborted: a record was refused without the program's knowledge."""
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
        """Whether there is a transaction that can be aborted."""
        return self._transactions is not None and self._transactions.state.phase in (Phase.OPEN, Phase.FAILED)


class Transaction:
    """A transaction, from the beginning of its `async with` block to the end; `Producer.transaction` returns it."""

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
        except KafkaError as failed:  # the program's own exception must not be hidden
            logger.warning("a transaction was not aborted: %s", failed)
            error.add_note(f"The transaction was not aborted: {failed}")

    async def send_offsets(
        self,
        source: Consumer[Any, Any] | GroupMetadata,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
    ) -> None:
        """Commit a consumer's positions with the transaction, or these offsets, each that of the next record.

        `source` is the consumer, or the metadata of its group, which needs `offsets`. Raises ValueError for a consumer
        that commits automatically, CommitFailed for one that is not a member of its group at the moment, and
        AbortableTransactionError when the group has assigned its partitions to other members.
        """
        if isinstance(source, GroupMetadata):
            if offsets is None:
                raise ValueError("group metadata contain no offsets: give the offsets, or the consumer")
            await self._producer.send_offsets_to_transaction(offsets, source)
            return
        group, consumed = source.consumed_for_transaction()
        try:
            await self._producer.send_offsets_to_transaction(consumed if offsets is None else offsets, group)
        except AbortableTransactionError as refused:
            source.hear_refused_transaction(group, refused.code)
            raise

    async def abort(self) -> None:
        """Abort the transaction now; the end of the block then does nothing."""
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
