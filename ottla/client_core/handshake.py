"""The exchange before a connection's first request: versions (ApiVersions, KIP-511) and login (SASL).

A handshake is a generator: it yields a question, is sent the decoded answer, and returns its result when the
connection may be used. `Exchange` runs it over bytes, so no driver knows its steps. TLS is below the bytes of a
handshake and belongs to the driver's socket.

SASL is SaslHandshake 1 and then SaslAuthenticate, with the tokens of the mechanism (KIP-43, KIP-152). If the broker
limits the time of a session (KIP-368), the handshake `authenticate_again` prolongs it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.client_core.sasl import Login, SaslFailed, converse, one_line
from ottla.client_core.versions import NoCommonVersion, newest_common
from ottla.protocol.api import ApiKey
from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

_NEWEST_ASKED = 3
"""Version 4 differs only in the supported levels of features, which no client here reads, and older brokers would need
a second request."""
FIRST_WITH_PLACE = 5
"""The version of ApiVersions from which on a client names the broker that it expects (KIP-1242, Kafka 4.4)."""
_OLDEST_SASL: dict[int, int] = {ApiKey.SASL_HANDSHAKE: 1}
"""After SaslHandshake 0, tokens are sent without a request around them; brokers since Kafka 1.0 know version 1."""


class Question(NamedTuple):
    """A request of a handshake, its version, and the class of its answer."""

    request: Request
    response: type[Response]
    version: int


class Place(NamedTuple):
    """The broker that a client expects at an address: its cluster and its node id."""

    cluster_id: str
    node_id: int


Versions = dict[int, tuple[int, int]]
"""The oldest and newest version that a broker accepts, by API key."""


class Settled(NamedTuple):
    """The result of a handshake."""

    versions: Versions
    features: dict[str, int]
    """The level of each feature that the cluster has finalized (KIP-584), as far as the broker reports it."""
    session_lifetime_ms: int = 0
    """How long the broker accepts requests after the login; 0: without end."""


Handshake = Generator[Question, Response, Settled]


class HandshakeRefused(Exception):
    """The broker refused a step of the handshake with an error code; `step` names it."""

    def __init__(self, step: str, code: ErrorCode, reason: str = "") -> None:
        self.step = step
        self.code = code
        self.reason = reason or code.message
        super().__init__(f"the broker refused {step}: {self.reason}")


class LoginRefused(HandshakeRefused):
    """The broker refuses this login, or could not prove its own identity: another attempt would end the same way.

    `step` names the mechanism and the user, `reason` is the broker's message; neither contains a secret.
    """


def open_session(
    software_name: str, software_version: str, login: Login | None = None, nonce: str = "", place: Place | None = None
) -> Handshake:
    """Negotiate the versions (`negotiate`) and log in. `nonce` is a fresh one, for SCRAM. Raises HandshakeRefused."""
    settled = yield from negotiate(software_name, software_version, place)
    return settled if login is None else (yield from authenticate_again(settled, login, nonce))


def negotiate(software_name: str, software_version: str, place: Place | None = None) -> Handshake:
    """Ask which versions the broker accepts, and for the levels of its features. A broker that does not know the
    version of this ApiVersions request is asked again in an older one.

    Brokers report name and version of the client software (KIP-511); a plus sign in the version, which they do not
    allow, becomes a hyphen. `place` is the broker that is expected: another one that knows version 5 refuses with
    REBOOTSTRAP_REQUIRED. Raises HandshakeRefused.
    """
    request = ApiVersionsRequest(
        client_software_name=software_name, client_software_version=software_version.replace("+", "-")
    )
    version = _NEWEST_ASKED
    if place is not None:
        version = FIRST_WITH_PLACE
        request.cluster_id, request.node_id = place
    answer = yield Question(request, ApiVersionsResponse, version)
    assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        newest = max((one.max_version for one in answer.api_keys if one.api_key == ApiKey.API_VERSIONS), default=0)
        if _NEWEST_ASKED <= newest < version:
            answer = yield Question(request, ApiVersionsResponse, _NEWEST_ASKED)
        else:
            answer = yield Question(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code:
        raise HandshakeRefused("ApiVersions", ErrorCode.of(answer.error_code))
    return Settled(
        {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
        {feature.name: feature.max_version_level for feature in answer.finalized_features},
    )


def authenticate_again(settled: Settled, login: Login, nonce: str) -> Handshake:
    """Log in on a connection whose versions are negotiated: the first time, or before its session ends.

    A broker accepts no other request between the first and the last of these. Raises LoginRefused.
    """
    lifetime_ms = yield from _authenticate(settled.versions, login, nonce)
    return settled._replace(session_lifetime_ms=lifetime_ms)


def _authenticate(versions: Versions, login: Login, nonce: str) -> Generator[Question, Response, int]:
    try:
        handshake_version = newest_common(versions, ApiKey.SASL_HANDSHAKE, oldest_used=_OLDEST_SASL)
        version = newest_common(versions, ApiKey.SASL_AUTHENTICATE)
    except NoCommonVersion as none:
        raise LoginRefused(login.who, ErrorCode.UNSUPPORTED_VERSION, str(none)) from None
    question = Question(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, handshake_version)
    answer = yield question
    assert isinstance(answer, SaslHandshakeResponse)
    if answer.error_code:
        raise LoginRefused(login.who, ErrorCode.of(answer.error_code), _mechanism_refused(answer))
    conversation = converse(login, nonce)
    try:
        token = next(conversation)
        while True:
            said = yield Question(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
            assert isinstance(said, SaslAuthenticateResponse)
            if said.error_code:
                code = ErrorCode.of(said.error_code)
                raise LoginRefused(login.who, code, one_line(said.error_message or "") or code.message)
            try:
                token = conversation.send(bytes(said.auth_bytes))
            except StopIteration:
                return max(0, said.session_lifetime_ms)
    except SaslFailed as failed:
        raise LoginRefused(login.who, ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)) from None


def _mechanism_refused(answer: SaslHandshakeResponse) -> str:
    code = ErrorCode.of(answer.error_code)
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = one_line(", ".join(sorted(answer.mechanisms))) or "none"
        return f"the broker's listener does not have this mechanism (sasl.mechanism); it has {offered}"
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return "the broker's listener is without SASL (security.protocol), or wants something else first"
    return code.message
