"""EndTxn (key 26), versions 0-5: commit or abort a transaction.

Versions: 2 may answer PRODUCER_FENCED · 3 is flexible · 4 may answer TRANSACTION_ABORTABLE (KIP-890) · 5 gives the
producer the epoch (and, when epochs are exhausted, the id) of its next transaction; clients send it only where
`transaction.version` is 2.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, since
from ottla.protocol.types import Bool, Int16, Int32, Int64, String


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    """The transaction, and whether to commit or abort it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    """The error code, and the id and epoch with which the producer continues; both -1 on error."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since("5+", default=-1, ignorable=True)
    producer_epoch: Int16 = since("5+", default=-1, ignorable=True)


def refused(request: EndTxnRequest, version: int, code: ErrorCode, message: str) -> EndTxnResponse:
    """Refuse the request."""
    return EndTxnResponse(error_code=code)
