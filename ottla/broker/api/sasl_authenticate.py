"""SaslAuthenticate, versions 0-2: a token of the SASL mechanism, and the broker's answer to it.

On a listener without SASL, and after authentication, it is ILLEGAL_SASL_STATE, as in Kafka. A failure is answered after
`connection.failed.authentication.delay.ms`, and closes the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.runtime.pending import Pending
from ottla.broker.security.sasl.authentication import authentication_of
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.security.sasl.authentication import TokenAnswer

NEEDS = ()
"""None: it is the authentication."""
CHUNKS = ()


def handle(
    request: SaslAuthenticateRequest, context: Context
) -> SaslAuthenticateResponse | Pending[SaslAuthenticateResponse]:
    """Answer when the token has been evaluated."""
    authentication = authentication_of(context.connection)
    if authentication is None or authentication.is_complete:
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message)
    response: Pending[SaslAuthenticateResponse] = Pending(parks=True)

    def answered(done: Pending[TokenAnswer]) -> None:
        answer = done.response
        assert answer is not None
        response.complete(
            SaslAuthenticateResponse(
                error_code=answer.error_code,
                error_message=answer.error_message,
                auth_bytes=answer.auth_bytes,
                session_lifetime_ms=answer.session_lifetime_ms,
            )
        )

    evaluated = authentication.evaluate(request.auth_bytes, context.api_version)
    response.on_cancel(evaluated.cancel)
    evaluated.then(answered)
    return response
