"""The state of one transactional id, as stored in `__transaction_state`.

A `Transaction` is immutable: a step of the machine makes a new one (`machine.py`). It corresponds to Kafka's
`TransactionMetadata`, and lives as long as its transactional id, also between two transactions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.protocol.stored.transaction import TransactionLogKey, TransactionLogValue, TransactionStatus

TopicPartition = tuple[str, int]

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 32_767
"""The highest epoch of a producer. The last one that a client gets is one less: this one is to fence that client."""
_LARGEST_ID: Final = (1 << 63) - 1
_LARGEST_VERSION: Final = (1 << 15) - 1

IDLE: Final = frozenset({TransactionStatus.EMPTY, TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT})
"""Nothing is in progress: the transactional id may get another epoch, or be forgotten."""


def state_name(status: int) -> str:
    """The name that clients and tools see: `CompleteCommit`."""
    return TransactionStatus(status).name.title().replace("_", "")


class Transaction(NamedTuple):
    """One transactional id.

    Attributes:
        producer_id, producer_epoch: those of the only producer that may write; epoch -1 before its first
            InitProducerId.
        timeout_ms: how long a transaction may be open, as its producer has requested.
        partitions: those to which the transaction has written; for offsets, partitions of `__consumer_offsets`.
        start_ms, last_update_ms: wall times; start is -1 before the first transaction.
        previous_producer_id: the one before, if its epochs were used up.
        next_producer_id: replaces `producer_id` at the end of this transaction; -1 for none.
        last_producer_epoch: the epoch before this one, if its producer has requested this one; else -1. Never stored,
            as in Kafka (`TransactionLog`): a producer that repeats the request after a restart, because the answer got
            lost with the broker, is fenced.
        client_version: the `transaction.version` of the request for its last end (2: each end raises the epoch).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    status: TransactionStatus = TransactionStatus.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    last_update_ms: int = NO_TIME
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no client may get another epoch of this producer id."""
        return self.producer_epoch >= MAX_EPOCH - 1

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open or being ended."""
        return self.status in IDLE

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided and its markers are not all visible."""
        return self.status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        """Whether a prepared or completed transaction is committed, not aborted."""
        return self.status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT)

    @property
    def state_name(self) -> str:
        """As `state_name`."""
        return state_name(self.status)


def to_record(transaction: Transaction, version: int) -> tuple[TransactionLogKey, TransactionLogValue]:
    """The record of a transaction. Version 0 of the value lacks the fields that `transaction.version` 1 and 2 add."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    is_empty = transaction.status is TransactionStatus.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=None
        if is_empty
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=indexes)
            for topic, indexes in topics.items()
        ],
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version > 0:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    return TransactionLogKey(transactional_id=transaction.transactional_id), value


def at_its_largest(transaction: Transaction) -> Transaction:
    """The same transaction with the largest record that it may get until its end: if that fits, it can be ended."""
    return transaction._replace(
        status=TransactionStatus.PREPARE_COMMIT,
        previous_producer_id=_LARGEST_ID,
        next_producer_id=_LARGEST_ID,
        client_version=_LARGEST_VERSION,
    )


def from_record(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    """The transaction in a record."""
    return Transaction(
        key.transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        TransactionStatus(value.transaction_status),
        frozenset((each.topic, index) for each in value.transaction_partitions or () for index in each.partition_ids),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )
