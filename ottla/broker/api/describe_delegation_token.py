"""DescribeDelegationToken (key 41), versions 1-3: the tokens that the client may see, with their secrets.

The client may see tokens that it owns or may renew. Of other tokens it may see those for which it has DESCRIBE of the
token, or DESCRIBE_TOKENS of the owner. Refused to clients that have not authenticated, or have authenticated by a
token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.declarations import Need
from ottla.broker.principal import Principal
from ottla.broker.runtime.steps import Pace
from ottla.broker.security.tokens.delegation_tokens import may_ask
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.metadata.tokens import DelegationToken
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.security.tokens.delegation_tokens import DelegationTokens

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.DELEGATION_TOKEN,
        when="the token belongs to another user",
        unless=(AclOperation.DESCRIBE_TOKENS, ResourceType.USER),
        lacking="the token is left out",
    ),
)
CHUNKS = ()

TOKENS_PER_STEP: Final = 100
"""The secrets of the tokens are computed."""
_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


def handle(
    request: DescribeDelegationTokenRequest, context: Context
) -> DescribeDelegationTokenResponse | Pending[DescribeDelegationTokenResponse]:
    """Answer immediately if there are few tokens.

    Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED.
    """
    peer, tokens = context.connection, context.services.tokens.get()
    if not may_ask(peer):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    if not tokens.is_enabled:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    owners = None
    if request.owners is not None:
        owners = {Principal(one.principal_type, one.principal_name) for one in request.owners}
    return context.in_steps(_describe(owners, tokens, context))


def _describe(
    owners: set[Principal] | None, tokens: DelegationTokens, context: Context
) -> Steps[DescribeDelegationTokenResponse]:
    described: list[_Described] = []
    pace = Pace(TOKENS_PER_STEP)
    for token in list(tokens.tokens()):
        is_asked_for = owners is None or not owners.isdisjoint((token.owner, *token.renewers))
        if is_asked_for and _may_see(context, token):
            described.append(_described(token, tokens.secret_of(token)))
        if pace.is_up():
            yield
    return DescribeDelegationTokenResponse(tokens=described)


def _may_see(context: Context, token: DelegationToken) -> bool:
    return (
        token.is_of(context.connection.principal)
        or context.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(token: DelegationToken, secret: bytes) -> _Described:
    return _Described(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[_Renewer(principal_type=one.type, principal_name=one.name) for one in token.renewers],
    )
