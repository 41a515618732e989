"""TLS and SASL of one client's connections: the context with the certificates, and the login.

Certificates are loaded when the first connection is made, and again when one of their files has changed. A failure that
every further attempt would repeat is AuthenticationFailed, with one line.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.errors import AuthenticationFailed, ConnectionLost
from ottla.client_core.handshake import Handshake, Place, Settled, authenticate_again, open_session
from ottla.client_core.sasl import OAUTHBEARER, Login
from ottla.client_core.security import SecurityProblem
from ottla.version import __version__

if TYPE_CHECKING:
    import ssl

    from ottla.client.options import ClientOptions

SOFTWARE_NAME = "ottla"
_NONCE_BYTES = 24


class Secured:
    """See the module."""

    def __init__(self, options: ClientOptions) -> None:
        self._security = options.security()
        self._token = options.sasl_oauthbearer_token
        self._timeout_s = options.socket_connection_setup_timeout_ms / 1000
        self._context: ssl.SSLContext | None = None
        self._loaded: tuple[float, ...] = ()
        """The modification times of the files from which the context was made."""

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self._security.tls is not None

    @property
    def has_sasl(self) -> bool:
        """Whether the client logs in."""
        return self._security.login is not None

    def context(self) -> ssl.SSLContext | None:
        """Return the context of a new connection, None without TLS. Raises AuthenticationFailed for unusable files."""
        settings = self._security.tls
        if settings is None:
            return None
        from ottla.client_tls import context_of

        written = _written(settings.truststore_location, settings.keystore_location, settings.key_location)
        if self._context is None or written != self._loaded:
            try:
                self._context = context_of(settings)
            except SecurityProblem as wrong:
                raise AuthenticationFailed(str(wrong)) from None
            self._loaded = written
        return self._context

    async def login(self) -> Login | None:
        """Return the login, with a fresh token if it needs one; None without SASL.

        Raises AuthenticationFailed for an invalid or refused token, ConnectionLost if there is none at the moment.
        """
        login = self._security.login
        if login is None or login.mechanism != OAUTHBEARER:
            return login
        source = self._security.token_source
        token: object = self._token
        if callable(token):
            try:
                token = token()
                if inspect.isawaitable(token):
                    token = await token
            except Exception as failed:  # the program's own function
                raise ConnectionLost(f"sasl_oauthbearer_token raised {type(failed).__name__}: {failed}") from failed
        elif source is not None:
            from ottla.client_tokens import NoToken, TokenRefused, fetch_token

            try:
                token = await asyncio.to_thread(fetch_token, source, self._timeout_s)
            except TokenRefused as refused:
                raise AuthenticationFailed(str(refused)) from None
            except NoToken as none:
                raise ConnectionLost(str(none)) from None
        if not isinstance(token, str):
            raise AuthenticationFailed(f"sasl_oauthbearer_token returned {type(token).__name__}, and no text")
        try:
            return self._security.with_token(token)
        except SecurityProblem as wrong:
            raise AuthenticationFailed(str(wrong)) from None


def handshake_of(login: Login | None, place: Place | None = None) -> Handshake:
    """Return the handshake of a new connection, to the broker that is expected there."""
    return open_session(SOFTWARE_NAME, __version__, login, secrets.token_urlsafe(_NONCE_BYTES), place)


def next_handshake_of(settled: Settled, login: Login) -> Handshake:
    """Return the handshake that prolongs a session (KIP-368)."""
    return authenticate_again(settled, login, secrets.token_urlsafe(_NONCE_BYTES))


def _written(*locations: str) -> tuple[float, ...]:
    found = []
    for location in locations:
        try:
            found.append(Path(location).stat().st_mtime if location else 0.0)
        except (OSError, ValueError):
            found.append(-1.0)
    return tuple(found)
