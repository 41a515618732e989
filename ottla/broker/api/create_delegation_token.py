"""CreateDelegationToken (key 38), versions 1-3: create a token for oneself, or for another user with the right to it.

Refused to clients that have not authenticated, or have authenticated by a token. Rules: `broker/security/tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.declarations import Need
from ottla.broker.principal import USER, Principal
from ottla.broker.runtime.pending import Pending
from ottla.broker.security.tokens.delegation_tokens import may_ask
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.metadata.tokens import DelegationToken

NEEDS = (
    Need(
        AclOperation.CREATE_TOKENS,
        ResourceType.USER,
        when="the token is for another user",
        lacking="DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    ),
)
CHUNKS = ()


def handle(
    request: CreateDelegationTokenRequest, context: Context
) -> CreateDelegationTokenResponse | Pending[CreateDelegationTokenResponse]:
    """Answer once the token is on disk."""
    peer, tokens = context.connection, context.services.tokens.get()
    requester = owner = peer.principal
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    answer = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    renewers = [Principal(one.principal_type, one.principal_name) for one in request.renewers]
    refusal = ErrorCode.NONE
    if not may_ask(peer):
        refusal = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif owner != requester and not context.may(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        refusal = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif any(one.type != USER for one in (owner, *renewers)):  # also the owner: a login by a token is always a user's
        refusal = ErrorCode.INVALID_PRINCIPAL_TYPE
    if refusal:
        return answer.replace(error_code=refusal, issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1)
    pending: Pending[CreateDelegationTokenResponse] = Pending()

    def done(token: DelegationToken | KafkaError) -> None:
        if isinstance(token, KafkaError):
            answer.error_code = token.code
        else:
            answer.issue_timestamp_ms, answer.expiry_timestamp_ms = token.issue_ms, token.expiry_ms
            answer.max_timestamp_ms, answer.token_id = token.max_ms, token.token_id
            answer.hmac = tokens.secret_of(token)
        pending.complete(answer)

    tokens.create(owner, requester, renewers, request.max_lifetime_ms, done)
    return pending
