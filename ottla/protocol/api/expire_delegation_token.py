"""ExpireDelegationToken (key 40), versions 1-2: lets a token expire sooner, or immediately (KIP-48).

Versions: 2 is flexible. Kafka 4 has removed version 0. `hmac` names the token and is its secret.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    """The token, and the time in ms until it expires (negative: immediately)."""

    hmac: Bytes
    expiry_time_period_ms: Int64

    def __repr__(self) -> str:
        return f"ExpireDelegationTokenRequest(..., expiry_time_period_ms={self.expiry_time_period_ms})"


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    """The new expiry time of the token, in ms since 1970."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


def refused(
    request: ExpireDelegationTokenRequest, version: int, code: ErrorCode, message: str
) -> ExpireDelegationTokenResponse:
    """Refuse the request."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
