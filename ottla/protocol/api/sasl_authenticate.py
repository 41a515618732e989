"""SaslAuthenticate (key 36), versions 0-2: a token of the mechanism that SaslHandshake has named (KIP-152).

Versions: 1 returns the lifetime of the session (KIP-368); 2 is flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, since
from ottla.protocol.types import Bytes, Int16, Int64, NullableString


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """A token of the client. It may be a password, so it is never logged."""

    auth_bytes: Bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """A token of the broker. `session_lifetime_ms` is 0 while the exchange continues, and for a session without end."""

    error_code: Int16 = 0
    error_message: NullableString = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Int64 = since("1+", default=0, ignorable=True)


def refused(request: SaslAuthenticateRequest, version: int, code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    """Refuse the whole request."""
    return SaslAuthenticateResponse(error_code=code, error_message=message)
