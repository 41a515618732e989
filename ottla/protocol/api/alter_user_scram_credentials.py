"""AlterUserScramCredentials (key 51), version 0: set and remove SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bytes, Int8, Int16, Int32, NullableString, String


class AlterUserScramCredentialsRequest(
    Request, key=51, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The credentials to remove and to set; mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    class ScramCredentialDeletion(Struct):
        """A credential to remove."""

        name: String
        mechanism: Int8

    class ScramCredentialUpsertion(Struct):
        """A credential to set: not the password, but its PBKDF2 hash. To this broker that is as good as the password,
        so it is never logged.
        """

        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

        def __repr__(self) -> str:
            return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, ...)"

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """The result for each user."""

    class AlterUserScramCredentialsResult(Struct):
        """One user."""

        user: String
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult]


def refused(
    request: AlterUserScramCredentialsRequest, version: int, code: ErrorCode, message: str
) -> AlterUserScramCredentialsResponse:
    """Refuse every user that the request names, each once."""
    users = dict.fromkeys([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=user, error_code=code, error_message=message
            )
            for user in users
        ]
    )
