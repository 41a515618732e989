"""The limits of transactions in a broker: ids, open transactions, partitions of one, each with its key; and the size of
a record in the log.

A refusal has the code at which clients react correctly. At CONCURRENT_TRANSACTIONS they begin a transaction again, at
INVALID_TXN_STATE they abort it, and at TRANSACTIONAL_ID_AUTHORIZATION_FAILED they give up: of the codes of
InitProducerId only this one is final for every client (librdkafka retries others forever). It looks like a missing ACL,
and its answer has no text, so the log has the real reason.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.transactions.state import at_its_largest, to_record
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_log import ShardLog
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.broker.transactions.state import Transaction

logger = logging.getLogger(__name__)

LINE_INTERVAL_MS: Final = 10_000
"""In this time at most one log line reports that there is no room for another transactional id."""
RECORD_BYTES: Final = 128
"""The size of a record without its texts and partitions."""


class TransactionLimits:
    """The limits, with their current values in the configuration."""

    def __init__(self, services: TransactionServices) -> None:
        self._services = services
        self._next_line_ms: float = 0

    def check_new_id(self, transactional_id: str, now_ms: float) -> None:
        """Raise KafkaError TRANSACTIONAL_ID_AUTHORIZATION_FAILED if there is no room for one more."""
        count = self._services.id_count()
        if count < self._services.settings.max_ids:
            return
        text = f"there are {count} transactional ids, which is the most (ottla.transactional.ids.max)"
        if now_ms >= self._next_line_ms:
            self._next_line_ms = now_ms + LINE_INTERVAL_MS
            logger.warning("transactional id %r is refused, but no ACL is missing: %s", transactional_id, text)
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)

    def check_growth(self, new: Transaction, log: ShardLog, *, begins: bool) -> None:
        """Raise KafkaError INVALID_TXN_STATE if a transaction would have too many partitions, CONCURRENT_TRANSACTIONS
        if it `begins` and no more may be open, and what `check_size` raises.
        """
        services = self._services
        settings = services.settings
        if len(new.partitions) > settings.max_partitions:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction has more partitions than {settings.max_partitions}"
                " (ottla.transaction.max.partitions)",
            )
        if begins:
            count = services.open_count()
            if count >= settings.max_open:
                raise KafkaError(
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    f"{count} transactions are open, which is the most (ottla.transactions.max.open)",
                )
        self.check_size(new, log)

    def check_size(self, new: Transaction, log: ShardLog) -> None:
        """Raise KafkaError UNKNOWN_SERVER_ERROR, as Kafka, if its record is too large for the log now or at the end."""
        most_bytes = RECORD_BYTES + 3 * len(new.transactional_id)
        for topic, _ in new.partitions:
            most_bytes += 3 * len(topic) + 16
        if most_bytes > log.record_max_bytes:
            record = to_record(at_its_largest(new), self._services.version())
            log.check_records([record], most_bytes, in_one_batch=True)
