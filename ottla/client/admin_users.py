"""The part of an Admin that handles users: their SCRAM credentials (KIP-554).

The client salts passwords, in a thread, which takes some milliseconds each. For this cluster the salted password is as
good as the password itself: use TLS, or connections within one machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.client.admin_client import refusals
from ottla.client.admin_results import AdminError
from ottla.client.admin_transactions import TransactionAdmin
from ottla.client.admin_users_results import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import KafkaError
from ottla.client.structs import as_names
from ottla.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from ottla.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from ottla.protocol.errors import ErrorCode
from ottla.scram import NAMES, NUMBERS, new_salt, salted_password


class UserAdmin(TransactionAdmin):
    """See the module; `Admin` is the class for programs."""

    # Users ------------------------------------------------------------------------------------------------------

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo]]:
        """Return the SCRAM credentials of all users, or of these; raises AdminError by user, for one without any."""
        names = (
            None
            if users is None
            else [DescribeUserScramCredentialsRequest.UserName(name=user) for user in as_names(users)]
        )
        if names is not None and not names:
            return {}

        async def attempt() -> dict[str, list[ScramCredentialInfo]]:
            request = DescribeUserScramCredentialsRequest(users=names)
            answer = await self._started().ask(None, request, DescribeUserScramCredentialsResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), answer.error_message)
            refused = refusals((one.user, one.error_code, one.error_message) for one in answer.results)
            if refused:
                raise AdminError(refused)
            return {
                one.user: [
                    ScramCredentialInfo(NAMES.get(info.mechanism, f"UNKNOWN({info.mechanism})"), info.iterations)
                    for info in one.credential_infos
                ]
                for one in answer.results
            }

        return await self._started().retry(attempt, self._timeout_ms)

    async def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion]
    ) -> None:
        """Set and remove SCRAM credentials; raises AdminError by user, ValueError for an unknown mechanism.

        Name each user only once.
        """
        deletions, upsertions = [], []
        for one in alterations:
            mechanism = one.mechanism if isinstance(one, UserScramCredentialDeletion) else one.info.mechanism
            if mechanism not in NUMBERS:
                raise ValueError(f"{mechanism!r} must be one of {', '.join(NUMBERS)}")
            if isinstance(one, UserScramCredentialDeletion):
                deletions.append(
                    AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                        name=one.user, mechanism=NUMBERS[mechanism]
                    )
                )
            else:
                upsertions.append(await asyncio.to_thread(_salted, one))
        request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)

        async def attempt() -> dict[str, KafkaError]:
            answer = await self._started().ask(None, request, AlterUserScramCredentialsResponse)
            return refusals((one.user, one.error_code, one.error_message) for one in answer.results)

        await self._change(attempt)


def _salted(one: UserScramCredentialUpsertion) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    info, salt = one.info, new_salt() if one.salt is None else one.salt
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=one.user,
        mechanism=NUMBERS[info.mechanism],
        iterations=info.iterations,
        salt=salt,
        salted_password=salted_password(info.mechanism, one.password, salt, max(1, min(info.iterations, 1 << 20))),
    )
