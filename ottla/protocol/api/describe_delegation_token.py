"""DescribeDelegationToken (key 41), versions 1-3: the tokens that a client may see, with their secrets (KIP-48).

Versions: 2 is flexible, 3 has the requester of a token (KIP-373). Kafka 4 has removed version 0.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bytes, Int16, Int32, Int64, String


class DescribeDelegationTokenRequest(
    Request, key=41, versions="1-3", flexible="2+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The owners of the tokens; null for all owners."""

    class DescribeDelegationTokenOwner(Struct):
        """An owner, or a principal that may renew."""

        principal_type: String
        principal_name: String

    owners: list[DescribeDelegationTokenOwner] | None


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    """The tokens; times in ms since 1970."""

    class DescribedDelegationTokenRenewer(Struct):
        """A principal that may renew the token."""

        principal_type: String
        principal_name: String

    class DescribedDelegationToken(Struct):
        """A token and its secret."""

        principal_type: String
        principal_name: String
        token_requester_principal_type: String = since("3+", default="", ignorable=True)
        token_requester_principal_name: String = since("3+", default="", ignorable=True)
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: String
        hmac: Bytes
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]

        def __repr__(self) -> str:
            return f"DescribedDelegationToken(token_id={self.token_id!r}, ...)"

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32 = 0


def refused(
    request: DescribeDelegationTokenRequest, version: int, code: ErrorCode, message: str
) -> DescribeDelegationTokenResponse:
    """Refuse the request."""
    return DescribeDelegationTokenResponse(error_code=code, tokens=[])
