"""The transactional ids of one partition of `__transaction_state`, as its records have them: kept, replayed, expired.

A change is put in memory and written as one record. Replies wait until that is durable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.shard import CoordinatorShard
from ottla.broker.transactions.packed_record import packed_in_batch, packed_record
from ottla.broker.transactions.state import IDLE, Transaction, from_record, to_record
from ottla.protocol.stored.transaction import TransactionLogKey, TransactionLogValue
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Reply
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.protocol.message import Struct

IDS_PER_STEP: Final = 200
"""Transactional ids that one step of a load or of the expiry handles."""


class ShardState(CoordinatorShard):
    """See the module; `shard.py` has the requests."""

    def __init__(self, context: ShardContext, services: TransactionServices) -> None:
        super().__init__(context)
        self.transactions: dict[str, Transaction] = {}
        self._open_starts: dict[str, int] = {}
        """The start of each transaction that is open or being ended."""
        self._services = services
        self._clock_trust = context.services.clock_trust
        self._expiry: Iterator[str] | None = None

    @property
    def open_count(self) -> int:
        """The number of transactions that are open or being ended."""
        return len(self._open_starts)

    @property
    def oldest_start_ms(self) -> int:
        """When the oldest of them began; there must be one."""
        return min(self._open_starts.values())

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record of the log."""
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self._put(key.transactional_id, None)
        else:
            assert isinstance(value, TransactionLogValue)
            self._put(key.transactional_id, from_record(key, value))

    def expire_some(self) -> bool:
        """Forget transactional ids that were unused for a long time; return whether some are left to check."""
        if self._expiry is None:
            self._expiry = iter(list(self.transactions))
        before_ms = self._clock_trust.deletion_ms() - self._services.settings.id_expiration_ms
        for _ in range(IDS_PER_STEP):
            transactional_id = next(self._expiry, None)
            if transactional_id is None:
                self._expiry = None
                return False
            known = self.transactions.get(transactional_id)
            if known is not None and known.is_idle and known.last_update_ms <= before_ms:
                self._put(transactional_id, None)
                self._services.counters.expired += 1
                self.write(transactional_id, [(TransactionLogKey(transactional_id=transactional_id), None)])
        return True

    def summary(self) -> str:
        """For the log: the numbers of transactional ids and of open transactions."""
        ids = counted(len(self.transactions), "transactional id")
        return f"{ids}, {self.open_count} with an open transaction"

    def _keep(self, new: Transaction, replies: Sequence[Reply]) -> None:
        """Store the result of a step, and write its record; the replies are sent when it is durable."""
        transactional_id = new.transactional_id
        self._put(transactional_id, new)
        version = self._services.version()
        if version and self.log.write_packed(transactional_id, packed_in_batch, new, replies):
            return
        packed = packed_record(new) if version else None
        if packed is not None:
            self.log.write_encoded(transactional_id, (packed,), replies)
        else:
            self.log.write(transactional_id, [to_record(new, version)], replies)

    def _put(self, transactional_id: str, new: Transaction | None) -> None:
        if new is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = new
        if new is None or new.status in IDLE:
            self._open_starts.pop(transactional_id, None)
        else:
            self._open_starts[transactional_id] = new.start_ms
