"""SaslHandshake, versions 0-1: the client names the SASL mechanism with which it logs in.

On a listener without SASL, and after authentication on a listener whose sessions do not end, it is ILLEGAL_SASL_STATE,
as in Kafka. A refusal is sent after `connection.failed.authentication.delay.ms`, and closes the connection.
`security/sasl/authentication.py` has the stages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.runtime.pending import Pending
from ottla.broker.security.sasl.authentication import authentication_of
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.context import Context

NEEDS = ()
"""None: it comes before authentication."""
CHUNKS = ()

LONGEST_SHOWN = 40
"""The number of characters of an unknown mechanism in the log."""


def handle(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse | Pending[SaslHandshakeResponse]:
    """Answer immediately, or refuse after a delay."""
    authentication = authentication_of(context.connection)
    if authentication is None or authentication.is_complete:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
    answer = authentication.handshake(request.mechanism, context.api_version)
    response = SaslHandshakeResponse(error_code=answer.error_code, mechanisms=answer.mechanisms)
    if not answer.error_code:
        return response
    pending: Pending[SaslHandshakeResponse] = Pending(parks=True)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        reason = "it named its SASL mechanism twice"
    else:
        enabled = ", ".join(answer.mechanisms)
        reason = f"SASL mechanism {request.mechanism[:LONGEST_SHOWN]!r} is not among sasl.enabled.mechanisms={enabled}"
    authentication.refuse(reason).then(lambda _: pending.complete(response))
    return pending
