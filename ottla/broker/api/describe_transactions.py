"""DescribeTransactions (key 65), version 0: the state, producer and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

NEEDS = (
    Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC),
)
CHUNKS = (Chunks(("transactional_ids",), ("transaction_states",)),)


def handle(request: DescribeTransactionsRequest, context: Context) -> Pending[DescribeTransactionsResponse]:
    """What is known of each."""
    return context.services.transactions.get().describe(request)
