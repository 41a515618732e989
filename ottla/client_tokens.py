"""The bearer tokens of SASL OAUTHBEARER, from a file, or from a server that issues them for client credentials.

Both drivers use it, where they may block. A token is fetched before each login, since it expires. Kafka's
`sasl.oauthbearer.token.endpoint.url` names the file or the server (KIP-768); the request to a server follows RFC 6749,
section 4.4.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import url2pathname

from ottla.bounded_fetch import fetch
from ottla.client_core.security import TokenSource

MAX_TOKEN_BYTES = 64 * 1024
_BUSY = frozenset({408, 425, 429})
"""Those HTTP status codes below 500 with which a server asks for another attempt."""
_NEVER = frozenset({501, 505})
"""Those from 500 on that another attempt would get again."""


class NoToken(Exception):
    """No token could be fetched. The message is one line and contains no secret."""


class TokenRefused(NoToken):
    """Every further attempt would fail the same way: the server refuses the client, or does not issue tokens."""


def fetch_token(source: TokenSource, timeout_s: float) -> str:
    """Return a token. Raises NoToken, or TokenRefused where no attempt can succeed.

    Blocks, for at most about `timeout_s` if a server is asked.
    """
    parts = urlsplit(source.url)
    if parts.scheme == "file":
        return _of_file(url2pathname(parts.path))
    return _of_server(source, timeout_s)


def _of_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise NoToken(f"sasl.oauthbearer.token.endpoint.url: {path} cannot be read: {error.strerror}") from None
    return _bounded(data, path)


def _of_server(source: TokenSource, timeout_s: float) -> str:
    from http.client import HTTPException, InvalidURL
    from ssl import SSLCertVerificationError
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request

    class Stay(HTTPRedirectHandler):
        """Follows no redirection, which would send the client's secret to another server."""

        def redirect_request(self, *_: object) -> None:
            """Refuse: the redirection is reported by its HTTP status."""

    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    pair = f"{quote_plus(source.client_id)}:{quote_plus(source.client_secret)}"  # RFC 6749, section 2.3.1
    headers = {
        "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    request = Request(source.url, urlencode(form).encode(), headers)
    shown = source.url.partition("?")[0]
    try:
        data = fetch(request, timeout_s, MAX_TOKEN_BYTES, Stay)
    except HTTPError as refused:
        is_final = refused.code in _NEVER or (refused.code < 500 and refused.code not in _BUSY)
        raise (TokenRefused if is_final else NoToken)(
            f"{shown} issues no token to client {source.client_id!r}: HTTP status {refused.code}"
        ) from None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        is_final = isinstance(error, (InvalidURL, ValueError)) or isinstance(reason, SSLCertVerificationError)
        raise (TokenRefused if is_final else NoToken)(f"{shown} cannot be asked for a token: {reason}") from None
    try:
        token = json.loads(_bounded(data, shown))["access_token"]
    except (ValueError, KeyError, TypeError, RecursionError):
        token = None
    if not isinstance(token, str):
        raise TokenRefused(f"{shown} answers without an access_token")
    return token


def _bounded(data: bytes, where: str) -> str:
    if len(data) > MAX_TOKEN_BYTES:
        raise TokenRefused(f"{where}: more than {MAX_TOKEN_BYTES} bytes are no token")
    return data.decode("latin-1").strip()
