"""AddOffsetsToTxn (key 25), versions 0-4: a transaction is going to commit offsets of a group.

The group's partition of `__consumer_offsets` becomes part of the transaction. Clients of `transaction.version` 2 do not
send it: TxnOffsetCommit adds the partition then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions.codes import FENCED_BEFORE, with_codes
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.protocol.errors import KafkaError

FIRST_VERSION_WITH_FENCED = 2

NEEDS = (
    Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named=("transactional_id",)),
    Need(AclOperation.READ, ResourceType.GROUP, named=("group_id",)),
)
CHUNKS = ()


def handle(request: AddOffsetsToTxnRequest, context: Context) -> Pending[AddOffsetsToTxnResponse]:
    """Add the partition; the answer is sent when the change survives a crash."""
    pending: Pending[AddOffsetsToTxnResponse] = Pending()
    services = context.services

    def prepared(error: KafkaError | None) -> None:
        if error is not None:
            pending.fail(error)
            return
        admission = services.transactions.get().admit_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, adds=True
        )
        if admission.error is not None:
            pending.fail(admission.error)
        else:
            admission.when_durable(settled)

    def settled(error: KafkaError | None) -> None:
        if error is not None:
            pending.fail(error)
        else:
            pending.complete(AddOffsetsToTxnResponse())

    services.groups.get().prepare(request.group_id, prepared)  # `__consumer_offsets` must exist before it can be added
    return with_codes(pending, FENCED_BEFORE if context.api_version < FIRST_VERSION_WITH_FENCED else {})
