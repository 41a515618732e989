"""The transactions' view of the broker: its settings as plain numbers, and the parts that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.broker.runtime.metrics import TransactionCounters
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.transactions.open_transactions import OpenTransaction
    from ottla.broker.transactions.state import TopicPartition, Transaction
    from ottla.config.broker import BrokerConfig


class TransactionSettings:
    """The settings of transactions, named like the configuration keys. Times in milliseconds.

    Settings that can change while the broker runs are properties: they are read from the configuration each time.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.max_timeout_ms = config.transaction_max_timeout_ms
        self.abort_interval_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self.id_expiration_ms = config.transactional_id_expiration_ms
        self.expiry_interval_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms

    @property
    def is_verified(self) -> bool:
        """Whether batches for partitions that are not part of the transaction are refused."""
        return self._config.transaction_partition_verification_enable

    @property
    def max_partitions(self) -> int:
        """The most partitions of one transaction."""
        return self._config.ottla_transaction_max_partitions

    @property
    def max_open(self) -> int:
        """The most open transactions of the broker."""
        return self._config.ottla_transactions_max_open

    @property
    def max_ids(self) -> int:
        """The most transactional ids of the broker."""
        return self._config.ottla_transactional_ids_max


class MarkerWriter(Protocol):
    """Writes the marker of an ended transaction into one partition."""

    def __call__(
        self, where: TopicPartition, ended: Transaction, coordinator_epoch: int, done: VisibleCallback
    ) -> None:
        """Call `done(None)` once the marker is visible, or if none is needed any more; else `done(error)`."""


class OffsetsOfGroups(Protocol):
    """The part of the group coordinator that transactions need."""

    def offsets_partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has a group's offsets."""

    def end_transaction(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        done: VisibleCallback,
        bumps_epoch: bool = False,
    ) -> None:
        """Write the marker into a partition of `__consumer_offsets`; the offsets count from then on, or are dropped."""


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """The services that all shards of a broker share.

    `version` returns the finalized `transaction.version`; `open_in_logs` all open transactions in the logs;
    `epochs_in_logs` the newest epochs of producers in the logs; `new_producer_id` passes on a new producer id, or None
    if none could be stored, and nothing when the broker stops; `id_count` and `open_count` are the numbers of
    transactional ids and open transactions in all shards.
    """

    settings: TransactionSettings
    counters: TransactionCounters
    write_marker: MarkerWriter
    open_in_logs: Callable[[], Iterator[OpenTransaction]]
    epochs_in_logs: Callable[[Set[int]], Steps[dict[int, int]]]
    version: Callable[[], int]
    new_producer_id: Callable[[Callable[[int | None], None]], None]
    id_count: Callable[[], int]
    open_count: Callable[[], int]
