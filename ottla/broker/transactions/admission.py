"""The coordinator's answer to a request that wants to write with a transactional id."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.coordination.writes import Settled
    from ottla.broker.transactions.shard import TransactionShard
    from ottla.broker.transactions.state import TopicPartition
    from ottla.protocol.errors import KafkaError


class Admission(NamedTuple):
    """Whether the partitions may be written to now, in this step only, and not later.

    Attributes:
        error: why nothing may be written; None if all but `missing` may.
        missing: partitions that the transaction does not have, if none are added.
        shard, transactional_id: the state on which the answer to the client depends.
    """

    error: KafkaError | None
    missing: Collection[TopicPartition] = ()
    shard: TransactionShard | None = None
    transactional_id: str = ""

    def when_durable(self, settled: Settled) -> None:
        """Call `settled` when no crash can undo any more that the transaction has these partitions."""
        if self.shard is None:
            settled(self.error)
        else:
            self.shard.when_durable(self.transactional_id, settled)
