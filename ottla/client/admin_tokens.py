"""The part of an Admin that handles delegation tokens (KIP-48, KIP-373).

The broker's answers contain the secrets of tokens: use TLS, or connections within one machine.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin_token_results import DelegationToken
from ottla.client.admin_users import UserAdmin
from ottla.client.errors import KafkaError
from ottla.protocol.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.api.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ottla.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.errors import ErrorCode


class TokenAdmin(UserAdmin):
    """See the module; `Admin` is the class for programs."""

    # Delegation tokens ------------------------------------------------------------------------------------------

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int = -1
    ) -> DelegationToken:
        """Create a token for this client's user, or for `owner` (`User:alice`); -1: the broker's longest lifetime.

        Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (for clients without
        authentication, or with a token), DELEGATION_TOKEN_AUTHORIZATION_FAILED; ValueError for text that is no
        principal.
        """
        kind, name = (None, None) if owner is None else _principal(owner)
        may_renew = tuple(renewers)
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, may_renew)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        # Sent only once: after a lost answer, a retry would create a second token.
        answer = await self._started().ask(None, request, CreateDelegationTokenResponse)
        _check(answer.error_code)
        return DelegationToken(
            answer.token_id,
            f"{answer.principal_type}:{answer.principal_name}",
            _text(answer.token_requester_principal_type, answer.token_requester_principal_name),
            may_renew,
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
            bytes(answer.hmac),
        )

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[DelegationToken]:
        """Return the tokens that this client may see, with their secrets; or those that `owners` own or may renew."""
        asked = None
        if owners is not None:
            make = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
            asked = [make(principal_type=kind, principal_name=name) for kind, name in map(_principal, owners)]

        async def attempt() -> list[DelegationToken]:
            request = DescribeDelegationTokenRequest(owners=asked)
            answer = await self._started().ask(None, request, DescribeDelegationTokenResponse)
            _check(answer.error_code)
            return [
                DelegationToken(
                    one.token_id,
                    f"{one.principal_type}:{one.principal_name}",
                    _text(one.token_requester_principal_type, one.token_requester_principal_name),
                    tuple(f"{each.principal_type}:{each.principal_name}" for each in one.renewers),
                    one.issue_timestamp,
                    one.expiry_timestamp,
                    one.max_timestamp,
                    bytes(one.hmac),
                )
                for one in answer.tokens
            ]

        return await self._started().retry(attempt, self._timeout_ms)

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire in `period_ms` (-1: the broker's default); return its expiry in ms since 1970.

        Raises KafkaError DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
        """

        async def attempt() -> int:
            request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
            answer = await self._started().ask(None, request, RenewDelegationTokenResponse)
            _check(answer.error_code)
            return int(answer.expiry_timestamp_ms)

        return await self._started().retry(attempt, self._timeout_ms)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Let a token expire in `period_ms`, or immediately (-1); return its expiry in ms since 1970.

        Raises as `renew_delegation_token`.
        """

        async def attempt() -> int:
            request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
            answer = await self._started().ask(None, request, ExpireDelegationTokenResponse)
            _check(answer.error_code)
            return int(answer.expiry_timestamp_ms)

        return await self._started().retry(attempt, self._timeout_ms)


def _check(error_code: int) -> None:
    if error_code:
        raise KafkaError(ErrorCode.of(error_code))


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} must be a principal, as User:alice")
    return kind, name


def _text(kind: str, name: str) -> str:
    return f"{kind}:{name}" if name else ""
