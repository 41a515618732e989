"""RenewDelegationToken (key 39), versions 1-2: lets a token expire later (KIP-48).

Versions: 2 is flexible. Kafka 4 has removed version 0. `hmac` names the token and is its secret.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    """The token, and the time for which to renew it (-1: the broker's default)."""

    hmac: Bytes
    renew_period_ms: Int64

    def __repr__(self) -> str:
        return f"RenewDelegationTokenRequest(..., renew_period_ms={self.renew_period_ms})"


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    """The new expiry time of the token, in ms since 1970."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0


def refused(
    request: RenewDelegationTokenRequest, version: int, code: ErrorCode, message: str
) -> RenewDelegationTokenResponse:
    """Refuse the request."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
