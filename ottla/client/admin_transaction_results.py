"""An Admin's results about transactions: those of the coordinators, and those that block a partition's readers."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.structs import BrokerAddress, TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in a list of them."""

    transactional_id: str
    producer_id: int
    state: str
    """Kafka's name: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence,
    Dead."""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id in full."""

    transactional_id: str
    state: str
    coordinator: BrokerAddress
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    """The start of its open transaction, in ms since 1970; None without one."""
    partitions: list[TopicPartition] = field(default_factory=list)
    """The partitions of its transaction that have no marker yet."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator will end: readers with `read_committed` wait
    at its start forever. `abort_hanging_transaction` ends it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """The time of its producer's last write, in ms since 1970."""
    transactional_id: str | None
    """The producer's transactional id, if a coordinator still knows the producer id."""
