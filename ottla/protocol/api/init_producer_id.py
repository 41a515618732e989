"""InitProducerId (key 22), versions 0-5: a producer id and epoch, for idempotence and transactions.

Without a transactional id every call returns a new producer id with epoch 0.

Versions: 2 is flexible · 3 lets a producer name the id and epoch it had (KIP-360) · 4 may answer PRODUCER_FENCED · 5
may answer TRANSACTION_ABORTABLE (KIP-890). Version 6 (two-phase commit, KIP-939) is not stable in Kafka 4.1.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, since
from ottla.protocol.types import Int16, Int32, Int64, NullableString


class InitProducerIdRequest(Request, key=22, versions="0-5", flexible="2+"):
    """The producer. `transaction_timeout_ms` matters with a transactional id only."""

    transactional_id: NullableString
    transaction_timeout_ms: Int32
    producer_id: Int64 = since("3+", default=-1)
    producer_epoch: Int16 = since("3+", default=-1)


class InitProducerIdResponse(Response, key=22, versions="0-5", flexible="2+"):
    """The producer id and epoch; both -1 on error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16


def refused(request: InitProducerIdRequest, version: int, code: ErrorCode, message: str) -> InitProducerIdResponse:
    """Refuse the request."""
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
