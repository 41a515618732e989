"""ListTransactions (key 66), versions 0-2: all transactional ids, or those of some states, producers, age or names.

KIP-664. Version 1 filters by how long a transaction has been open (KIP-994), version 2 by a regular expression that
must match the whole transactional id (KIP-1152).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, lacking="the id is left out"),)
CHUNKS = ()


def handle(
    request: ListTransactionsRequest, context: Context
) -> ListTransactionsResponse | Pending[ListTransactionsResponse]:
    """List the ids that pass all filters, and that the client may see."""

    def may_see(transactional_id: str) -> bool:
        return context.has(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)

    return context.in_steps(context.services.transactions.get().list(request, may_see))
