"""Logging in over a connection without a socket: the requests, what is refused, and sessions that go on."""

from __future__ import annotations

import re
import struct

import pytest

from ottla.client_core.exchange import MAX_HANDSHAKE_FRAME_BYTES, Exchange
from ottla.client_core.frames import FrameReader, SpeaksTls
from ottla.client_core.handshake import LoginRefused, authenticate_again, open_session
from ottla.client_core.sasl import Login
from ottla.protocol.api import REGISTRY, ApiKey
from ottla.protocol.api.api_versions import ApiVersionsResponse
from ottla.protocol.api.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.headers import decode_request_header, response_header
from ottla.protocol.message import decode, encode

LOGIN = Login("PLAIN", "alice", "s3cret")
ANSWERS = {
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse(mechanisms=["PLAIN"]),
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse(session_lifetime_ms=60_000),
    ApiKey.METADATA: MetadataResponse(brokers=[], topics=[]),
}


def versions(**changed):
    ranges = {key: (api.min_version, api.max_version) for key, api in REGISTRY.items()}
    ranges |= {ApiKey[name]: value for name, value in changed.items()}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=a, max_version=b) for key, (a, b) in ranges.items()
        ]
    )


class Talk:
    """An exchange and a broker that answers by API."""

    def __init__(self, login=LOGIN, **answers):
        self.answers = {ApiKey.API_VERSIONS: versions(), **ANSWERS}
        self.answers |= {ApiKey[name]: answer for name, answer in answers.items()}
        self.asked = []
        self.exchange = Exchange("me", FrameReader(), open_session("toy", "1", login, "nonce"), handshake_timeout_s=10)
        self.exchange.begin(0.0)

    def step(self, before=()):
        """Answer `before` and what was sent; whether there was anything."""
        data = b"".join([*before, *self.exchange.bytes_to_send()])
        requests = []
        while data:
            (size,) = struct.unpack_from(">i", data)
            requests.append(data[4 : 4 + size])
            data = data[4 + size :]
        for content in requests:
            header, body = decode_request_header(content)
            self.asked.append((ApiKey(header.api_key), header.api_version, content[body:]))
            if header.correlation_id not in self.exchange.in_flight:
                continue  # it wants no answer
            answer = self.answers[header.api_key]
            self.feed(response_header(header.api_key, header.api_version, header.correlation_id), answer, header)
        return bool(requests)

    def feed(self, head, answer, header):
        content = head + encode(answer, header.api_version)
        data = struct.pack(">i", len(content)) + content
        self.exchange.buffer()[: len(data)] = data
        list(self.exchange.receive(len(data), 0.0))

    def run(self):
        while self.step():
            pass
        return self


def test_a_login_is_three_questions_and_the_session_has_a_length():
    talk = Talk().run()
    assert talk.exchange.is_ready
    assert [key for key, _, _ in talk.asked] == [ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
    _, (_, version, handshake), (_, newest, token) = talk.asked
    assert (version, newest) == (1, 2)
    assert decode(SaslHandshakeRequest, handshake, 1).mechanism == "PLAIN"
    assert bytes(decode(SaslAuthenticateRequest, token, 2).auth_bytes) == b"\0alice\0s3cret"
    assert talk.exchange.session_lifetime_ms == 60_000


def test_without_a_login_no_sasl_is_spoken():
    assert [key for key, _, _ in Talk(None).run().asked] == [ApiKey.API_VERSIONS]


def test_an_older_broker_has_sessions_without_end():
    talk = Talk(API_VERSIONS=versions(SASL_AUTHENTICATE=(0, 0))).run()
    assert talk.exchange.is_ready
    assert talk.exchange.session_lifetime_ms == 0


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        (
            {"SASL_HANDSHAKE": SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "GSSAPI"])},
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "it has GSSAPI, SCRAM-SHA-512",
        ),
        (
            {"SASL_HANDSHAKE": SaslHandshakeResponse(error_code=34, mechanisms=[])},
            ErrorCode.ILLEGAL_SASL_STATE,
            "without SASL",
        ),
        (
            {"SASL_AUTHENTICATE": SaslAuthenticateResponse(error_code=58, error_message="no such\nluck")},
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "^no such luck$",
        ),
        (
            {"SASL_AUTHENTICATE": SaslAuthenticateResponse(error_code=58)},
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "authentication failed",
        ),
        (
            {"API_VERSIONS": versions(SASL_HANDSHAKE=(0, 0))},
            ErrorCode.UNSUPPORTED_VERSION,
            "SaslHandshake: the broker speaks versions 0-0, this client 1-1",
        ),
    ],
)
def test_a_refused_login_says_which_user_by_which_mechanism_and_why(answers, code, said):
    with pytest.raises(LoginRefused) as refused:
        Talk(**answers).run()
    assert refused.value.code == code
    assert refused.value.step == "the PLAIN login of user 'alice'"
    assert "s3cret" not in str(refused.value)
    assert re.search(said, refused.value.reason)


def test_a_broker_with_a_wrong_signature_is_refused_by_the_client():
    scram = Login("SCRAM-SHA-256", "user", "pencil")
    first = SaslAuthenticateResponse(auth_bytes=b"r=nonce+theirs,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    talk = Talk(scram, SASL_AUTHENTICATE=first)
    for _ in range(3):
        talk.step()
    talk.answers[ApiKey.SASL_AUTHENTICATE] = SaslAuthenticateResponse(auth_bytes=b"v=AAAA")
    with pytest.raises(LoginRefused, match="its SCRAM signature is wrong"):
        talk.step()
    assert not talk.exchange.is_ready


def test_requests_wait_for_the_end_of_another_login_and_keep_their_order():
    talk = Talk().run()
    exchange = talk.exchange
    del talk.asked[:]

    def ask(name):
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        exchange.send(request, 12, 0.0, 100.0, name)

    ask("before")
    before = exchange.bytes_to_send()
    exchange.begin_again(authenticate_again(exchange.settled, LOGIN, ""), 0.0)
    assert [request.deadline for request in exchange.in_flight.values()] == [100.0, 110.0]
    assert exchange.is_ready
    assert exchange.is_settling
    ask("first")
    exchange.send_only(MetadataRequest(topics=[]), 12)
    ask("second")
    talk.step(before)  # the answer to it comes while the login goes on
    assert exchange.is_settling
    talk.run()
    assert not exchange.is_settling
    assert [key for key, _, _ in talk.asked] == [
        ApiKey.METADATA,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.METADATA,
        ApiKey.METADATA,
        ApiKey.METADATA,
    ]
    names = [
        [topic.name for topic in decode(MetadataRequest, body, 12).topics] for key, _, body in talk.asked if key == 3
    ]
    assert names == [["before"], ["first"], [], ["second"]]
    ask("after")
    assert exchange.has_bytes_to_send


def test_another_login_that_is_refused_says_so():
    talk = Talk().run()
    talk.answers[ApiKey.SASL_AUTHENTICATE] = SaslAuthenticateResponse(error_code=58, error_message="gone")
    talk.exchange.begin_again(authenticate_again(talk.exchange.settled, LOGIN, ""), 0.0)
    with pytest.raises(LoginRefused, match="gone"):
        talk.run()


def test_one_login_at_a_time():
    exchange = Talk().exchange
    with pytest.raises(RuntimeError):
        exchange.begin_again(authenticate_again(exchange.settled, LOGIN, ""), 0.0)


def received(exchange, data):
    exchange.buffer()[: len(data)] = data
    return list(exchange.receive(len(data), 0.0))


def test_an_alert_of_tls_is_recognised():
    with pytest.raises(SpeaksTls, match=r"speaks TLS.*security\.protocol"):
        received(Talk(None).exchange, bytes.fromhex("15030300020250"))


def test_before_the_handshake_is_done_frames_are_small():
    size = struct.pack(">i", MAX_HANDSHAKE_FRAME_BYTES + 1)
    with pytest.raises(MalformedMessage):
        received(Talk(None).exchange, size)
    assert received(Talk(None).run().exchange, size) == []
