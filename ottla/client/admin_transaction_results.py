"""What an Admin returns about transactions: those of the coordinators, and those that hold a partition's readers up."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.structs import BrokerAddress, TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as a list of them has it."""

    transactional_id: str
    producer_id: int
    state: str
    """Kafka's words: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort, PrepareEpochFence,
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
    """When its open transaction began, since 1970; None without one."""
    partitions: list[TopicPartition] = field(default_factory=list)
    """What its transaction has written to and no marker has ended yet."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator will end: readers with `read_committed` wait
    at its start for good. `abort_hanging_transaction` ends it."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """When its producer has last written, since 1970."""
    transactional_id: str | None
    """Whose it was, where a coordinator still knows the producer id."""
