"""DescribeUserScramCredentials (key 50), version 0: the SCRAM mechanisms of users, without their secrets (KIP-554)."""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int8, Int16, Int32, NullableString, String


class DescribeUserScramCredentialsRequest(
    Request, key=50, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The users to describe; null or empty for all."""

    class UserName(Struct):
        """A user."""

        name: String

    users: list[UserName] | None


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    """The users, or the one error of the request."""

    class CredentialInfo(Struct):
        """One mechanism: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

        mechanism: Int8
        iterations: Int32

    class DescribeUserScramCredentialsResult(Struct):
        """One user."""

        user: String
        error_code: Int16 = 0
        error_message: NullableString = None
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    results: list[DescribeUserScramCredentialsResult]


def refused(
    request: DescribeUserScramCredentialsRequest, version: int, code: ErrorCode, message: str
) -> DescribeUserScramCredentialsResponse:
    """Refuse the whole request, and each user that it names, as Kafka does."""
    return DescribeUserScramCredentialsResponse(
        error_code=code,
        error_message=message,
        results=[
            DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult(
                user=user.name, error_code=code, error_message=message, credential_infos=[]
            )
            for user in request.users or []
        ],
    )
