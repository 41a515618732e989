"""SaslHandshake (key 17), versions 0-1: a client names its SASL mechanism (KIP-43).

Versions: 1 has the fields of 0, but the following tokens are sent in SaslAuthenticate requests (KIP-152). After version
0 they are sent without a request, each preceded by its length.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.protocol.types import Int16, String


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    """The mechanism that the client has chosen."""

    mechanism: String


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    """Whether the mechanism may be used, and all that may."""

    error_code: Int16 = 0
    mechanisms: list[String]


def refused(request: SaslHandshakeRequest, version: int, code: ErrorCode, message: str) -> SaslHandshakeResponse:
    """Refuse the whole request."""
    return SaslHandshakeResponse(error_code=code, mechanisms=[])
