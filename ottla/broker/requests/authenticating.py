"""The guard in front of the dispatcher on listeners with SASL: only authenticated clients get past the login.

    SaslListener.open  ->  Authentication (one per connection)  ->  AuthenticatingDispatcher  ->  RequestDispatcher

Served before authentication: ApiVersions, SaslHandshake and SaslAuthenticate, by their handlers, through the gate.
Anything else closes the connection. (If a token was due, Kafka decodes such a request and answers ILLEGAL_SASL_STATE;
Ottla decodes nothing else from strangers.) After SaslHandshake 0 frames are tokens.

After the login, a connection whose session cannot expire has no such dispatcher any more. If it can, every request that
no template answers is checked here, and a timer drops the templates when the session expires.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ottla.broker.runtime.in_flight_request import CloseConnection, InFlightRequest
from ottla.protocol.api import REGISTRY, ApiKey

if TYPE_CHECKING:
    from ottla.broker.context import ApiServices
    from ottla.broker.peer import Peer
    from ottla.broker.requests.dispatch import RequestDispatcher
    from ottla.broker.security.sasl.authentication import Authentication, TokenAnswer
    from ottla.broker.security.sasl.listener import SaslListener
    from ottla.protocol.types import Buffer

_SHORT = struct.Struct(">h")
_SIZE = struct.Struct(">i")
_BEFORE = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class SaslDoor:
    """A listener with SASL, as connections see it."""

    def __init__(self, listener: SaslListener, services: ApiServices, dispatcher: RequestDispatcher) -> None:
        self._listener = listener
        self._services = services
        self._dispatcher = dispatcher

    @property
    def max_frame_bytes(self) -> int:
        """The longest frame before authentication (`sasl.server.max.receive.size`)."""
        return self._listener.limits.max_receive_bytes

    def begin(self) -> None:
        """Prepare for logins: the broker has started, and accepts soon."""
        self._listener.begin()

    def open(self, peer: Peer) -> AuthenticatingDispatcher:
        """The dispatcher of a new connection until it is authenticated."""
        services = self._services
        peer.authentication = authentication = self._listener.open(peer, services.timers, services.clock)
        authentication.logins = services.logins
        return AuthenticatingDispatcher(authentication, self._dispatcher)


class AuthenticatingDispatcher:
    """See the module's text."""

    def __init__(self, authentication: Authentication, dispatcher: RequestDispatcher) -> None:
        self._authentication = authentication
        self._dispatcher = dispatcher

    def start(self, frame: memoryview, peer: Peer) -> list[Buffer] | InFlightRequest | None:
        """Start a request, or take a token. Raises CloseConnection."""
        authentication = self._authentication
        if authentication.takes_bare_tokens:
            return self._take_token(bytes(frame))
        api_key = _SHORT.unpack_from(frame)[0] if len(frame) >= _SHORT.size else -1
        if authentication.is_complete:
            begins_again = api_key == ApiKey.SASL_HANDSHAKE and authentication.begin_again()
            if not begins_again and authentication.has_expired:
                authentication.note_expired()
                raise CloseConnection(f"its session has expired, and it sent {_named(api_key)} before a new login")
        elif api_key not in _BEFORE:
            raise CloseConnection(f"not authenticated, and it sent {_named(api_key)}")
        return self._dispatcher.start(frame, peer)

    def _take_token(self, token: bytes) -> list[Buffer] | InFlightRequest:
        pending = self._authentication.evaluate(token)
        bare = _bare(pending.response) if pending.done else None
        if bare is not None:
            return bare
        waiting = InFlightRequest(pending)
        # In this form a failure has no answer: the connection is closed, a moment later.
        pending.then(lambda done: waiting.finish(_bare(done.response)))
        return waiting


def _bare(answer: TokenAnswer | None) -> list[Buffer] | None:
    if answer is None or answer.error_code:
        return None
    return [_SIZE.pack(len(answer.auth_bytes)) + answer.auth_bytes]


def _named(api_key: int) -> str:
    api = REGISTRY.get(api_key)
    return f"API key {api_key}" if api is None else api.name
