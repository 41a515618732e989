"""EndTxn (key 26), versions 0-5: commit or abort a transaction; answered when all its markers are visible.

From version 5 on (`transaction.version` 2, KIP-890) the answer has the epoch with which the producer continues, and a
new producer id if the epochs of the old one are used up. Difference from Kafka, which answers before the markers are
written: here a reader that begins after the answer sees the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.transactions.codes import FENCED_BEFORE, with_codes
from ottla.protocol.acls import AclOperation, ResourceType

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_WITH_FENCED = 2

NEEDS = (Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named=("transactional_id",)),)
CHUNKS = ()


def handle(request: EndTxnRequest, context: Context) -> Pending[EndTxnResponse]:
    """Decide the end, and answer when readers can see it."""
    version = context.api_version
    pending = context.services.transactions.get().end(request, version)
    return with_codes(pending, FENCED_BEFORE if version < FIRST_VERSION_WITH_FENCED else {})
