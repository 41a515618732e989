"""DescribeTransactions (key 65), version 0: the state, producer and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import changed
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TRANSACTIONAL_ID,
        named=("transactional_ids",),
        answered="transaction_states",
    ),
    Need(AclOperation.DESCRIBE, ResourceType.TOPIC, lacking="the topic is left out"),
)
CHUNKS = (Chunks(("transactional_ids",), ("transaction_states",)),)


def handle(request: DescribeTransactionsRequest, context: Context) -> Pending[DescribeTransactionsResponse]:
    """Describe each transactional id."""
    answer = context.services.transactions.get().describe(request)
    if context.services.authorizer is None:
        return answer

    def filtered(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            state.topics = [
                one for one in state.topics if context.has(AclOperation.DESCRIBE, ResourceType.TOPIC, one.topic)
            ]
        return response

    return changed(answer, filtered)
