"""CreateDelegationToken (key 38), versions 1-3: a token with which other clients may act as its owner (KIP-48).

Versions: 2 is flexible, 3 allows an owner other than the requester (KIP-373). Kafka 4 has removed version 0. `hmac` is
the secret: a client logs in with it and the token's id.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bytes, Int16, Int32, Int64, NullableString, String


class CreateDelegationTokenRequest(
    Request, key=38, versions="1-3", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The owner (null: the client), the renewers, and the maximum lifetime (-1: the broker's maximum)."""

    class CreatableRenewers(Struct):
        """A principal that may renew the token."""

        principal_type: String
        principal_name: String

    owner_principal_type: NullableString = since("3+", default=None)
    owner_principal_name: NullableString = since("3+", default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    """The token; times in ms since 1970."""

    error_code: Int16 = 0
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = since("3+", default="", ignorable=True)
    token_requester_principal_name: String = since("3+", default="", ignorable=True)
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0

    def __repr__(self) -> str:
        return f"CreateDelegationTokenResponse(error_code={self.error_code}, token_id={self.token_id!r}, ...)"


def refused(
    request: CreateDelegationTokenRequest, version: int, code: ErrorCode, message: str
) -> CreateDelegationTokenResponse:
    """Refuse the request."""
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=request.owner_principal_type or "",
        principal_name=request.owner_principal_name or "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
