"""AddOffsetsToTxn (key 25), versions 0-4: a transaction is going to commit offsets of a group.

The coordinator adds the group's partition of `__consumer_offsets`; TxnOffsetCommit has the offsets. Clients of
`transaction.version` 2 do not send this request.

Versions: 2 may answer PRODUCER_FENCED · 3 is flexible · 4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import Int16, Int32, Int64, String


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    """The transaction, and the group that has the offsets."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    """The error code."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


def refused(request: AddOffsetsToTxnRequest, version: int, code: ErrorCode, message: str) -> AddOffsetsToTxnResponse:
    """Refuse the request."""
    return AddOffsetsToTxnResponse(error_code=code)
