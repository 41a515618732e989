"""What a connection settles before its first request: today the versions (ApiVersions, KIP-511), and nothing else.

A handshake is a generator: it yields a question, is sent the decoded answer, and returns what was settled when the
connection may be used. `Exchange` runs it over bytes, so no driver knows its steps. Authentication has its place here:
SASL is a generator that delegates to `negotiate` first (`yield from`), then yields SaslHandshake and SaslAuthenticate
with whatever its mechanism makes of each answer, and raises HandshakeRefused. TLS lies below the bytes of a handshake
and belongs to the driver's socket.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response

_NEWEST_ASKED = 3
"""Version 4 differs in the features that a broker *could* run at, which no client here reads, and would cost older
brokers a second question."""


class Question(NamedTuple):
    """A request of a handshake, its version, and the class of its answer."""

    request: Request
    response: type[Response]
    version: int


Versions = dict[int, tuple[int, int]]
"""The oldest and newest version that a broker takes, by API key."""


class Settled(NamedTuple):
    """What a handshake has settled."""

    versions: Versions
    features: dict[str, int]
    """The level of each feature that the cluster has finalized (KIP-584), as far as the broker says it."""


Handshake = Generator[Question, Response, Settled]


class HandshakeRefused(Exception):
    """The broker refused a step of the handshake with an error code; `step` names it."""

    def __init__(self, step: str, code: ErrorCode) -> None:
        self.step = step
        self.code = code
        super().__init__(f"the broker refused {step}: {code.message}")


def negotiate(software_name: str, software_version: str) -> Handshake:
    """Ask which versions the broker takes, and at which levels its features are. A broker that does not know our
    version of ApiVersions is asked again in version 0.

    Name and version are what the broker reports of this client (KIP-511); characters that it does not allow in them
    become hyphens. Raises HandshakeRefused.
    """
    request = ApiVersionsRequest(
        client_software_name=software_name, client_software_version=software_version.replace("+", "-")
    )
    answer = yield Question(request, ApiVersionsResponse, _NEWEST_ASKED)
    assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        answer = yield Question(ApiVersionsRequest(), ApiVersionsResponse, 0)
        assert isinstance(answer, ApiVersionsResponse)
    if answer.error_code:
        raise HandshakeRefused("ApiVersions", ErrorCode.of(answer.error_code))
    return Settled(
        {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
        {feature.name: feature.max_version_level for feature in answer.finalized_features},
    )
