"""InitProducerId, versions 0-5: a producer id and an epoch, for idempotent and transactional producers.

Without a transactional id each call returns a new id and epoch 0, whatever id the producer reports. An id without an
epoch, or an epoch without an id, is INVALID_REQUEST (both as in Kafka). Ids come from blocks that the catalog has
synced before (docs/decisions/repeats-wait-for-the-original.md), so none is assigned twice, not even after a crash.

With a transactional id the transaction coordinator answers: the id's producer gets the next epoch, which fences the
previous one. An open transaction is aborted, and the answer is CONCURRENT_TRANSACTIONS until that is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions.codes import FENCED_BEFORE, with_codes
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
FIRST_VERSION_WITH_FENCED = 4

NEEDS = (
    Need(
        AclOperation.WRITE,
        ResourceType.TRANSACTIONAL_ID,
        when="a transactional id is given",
        named=("transactional_id",),
    ),
    Need(
        AclOperation.IDEMPOTENT_WRITE,
        ResourceType.CLUSTER,
        when="no transactional id is given",
        unless=(AclOperation.WRITE, ResourceType.TOPIC),
        lacking="the request is refused",
    ),
)
CHUNKS = ()


def handle(
    request: InitProducerIdRequest, context: Context
) -> InitProducerIdResponse | Pending[InitProducerIdResponse]:
    """Return the next id of the block. Raises KafkaError CLUSTER_AUTHORIZATION_FAILED where it may not write."""
    if (
        request.transactional_id is None
        and not context.has(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        and not context.may_somewhere(AclOperation.WRITE, ResourceType.TOPIC)
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer has both an id and an epoch, or neither")
    transactional_id = request.transactional_id
    if transactional_id is not None:
        answer = context.services.transactions.get().init_producer_id(request)
        return with_codes(answer, FENCED_BEFORE if context.api_version < FIRST_VERSION_WITH_FENCED else {})
    pending: Pending[InitProducerIdResponse] = Pending()

    def given(producer_id: int | None) -> None:
        if producer_id is None:
            pending.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no block of producer ids could be stored"))
        else:
            pending.complete(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

    context.services.producer_ids.next(given)
    return pending
