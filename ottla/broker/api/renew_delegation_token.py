"""RenewDelegationToken (key 39), versions 1-2: let a token expire later, at most at the end of its lifetime.

Its owner and its renewers may do this; ACLs cannot grant it. Rules: `broker/security/tokens`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.runtime.pending import Pending
from ottla.broker.security.tokens.delegation_tokens import may_ask
from ottla.protocol.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.metadata.tokens import DelegationToken

NEEDS = ()
CHUNKS = ()


def handle(
    request: RenewDelegationTokenRequest, context: Context
) -> RenewDelegationTokenResponse | Pending[RenewDelegationTokenResponse]:
    """Answer once the change is on disk."""
    if not may_ask(context.connection):
        code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1)
    pending: Pending[RenewDelegationTokenResponse] = Pending()

    def done(token: DelegationToken | KafkaError) -> None:
        if isinstance(token, KafkaError):
            pending.complete(RenewDelegationTokenResponse(error_code=token.code))
        else:
            pending.complete(RenewDelegationTokenResponse(expiry_timestamp_ms=token.expiry_ms))

    by = context.connection.principal
    context.services.tokens.get().renew(request.hmac, by, request.renew_period_ms, done)
    return pending
