"""Connections of a listener with SASL: what may be said at which stage, failures, deadlines, sessions that end."""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Iterator
from typing import Any

import pytest
import scramp
from kit.exchange import batch, make_topic, produce_request
from kit.sasl_connections import ALICE, SaslClient, SaslNode

from ottla.broker.principal import ANONYMOUS, Principal
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.errors import ErrorCode

METADATA = MetadataRequest(topics=[])
VERSIONS = ApiVersionsRequest(client_software_name="a", client_software_version="1")
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture
def at() -> Iterator[SaslNode]:
    made = SaslNode()
    yield made
    made.node.stop()


@pytest.fixture
def client(at: SaslNode) -> SaslClient:
    return at.connect()


def handshake(client: SaslClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: SaslClient, token: bytes, version: int = 2) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


# -- the way through ----------------------------------------------------------------------------------------------


def test_a_client_that_logs_in_is_who_it_says_and_may_ask(client: SaslClient) -> None:
    assert len(client.ask(VERSIONS, 3).api_keys) > 40
    answer = handshake(client)
    assert (answer.error_code, answer.mechanisms) == (0, MECHANISMS)
    assert client.peer.principal == ANONYMOUS
    answer = authenticate(client, ALICE)
    assert (answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms) == (0, None, b"", 0)
    assert client.peer.principal == Principal("User", "alice")
    assert client.ask(METADATA, 9).brokers


def test_a_session_without_end_leaves_nothing_in_front_of_the_dispatcher(at: SaslNode, client: SaslClient) -> None:
    client.log_in()
    assert client.peer.authentication is None
    assert client.connection.dispatcher is at.node.dispatcher
    assert client.connection.reader.max_frame_bytes == at.node.services.config.socket_request_max_bytes
    at.pass_time(3_600_000)
    assert not client.is_closed


def test_a_listener_without_sasl_has_nothing_in_front_of_the_dispatcher(at: SaslNode) -> None:
    plain = at.connections.protocol("PLAINTEXT")
    assert plain.peer.authentication is None
    assert plain.dispatcher is at.node.dispatcher


def test_scram_takes_two_tokens_and_each_way_proves_itself(client: SaslClient) -> None:
    assert handshake(client, "SCRAM-SHA-256").error_code == 0
    scram = scramp.ScramClient(["SCRAM-SHA-256"], "carol", "c", c_nonce="abc")
    # scramp's own client takes no salt below 12 bytes: the broker's answer is looked at here.
    first = authenticate(client, scram.get_client_first().encode()).auth_bytes.decode()
    assert first.startswith("r=abc")
    assert first.endswith(f",s={base64.b64encode(b'salt').decode()},i=4096")
    assert client.peer.principal == ANONYMOUS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_the_messages_logs_in(client: SaslClient, version: int) -> None:
    assert client.log_in(version=version).error_code == 0
    assert client.ask(METADATA, 9).brokers


def test_after_handshake_0_tokens_come_bare(client: SaslClient) -> None:
    assert handshake(client, version=0).error_code == 0
    client.send_frame(ALICE)
    assert client.frames() == [b""]
    assert client.peer.principal.name == "alice"
    assert client.ask(METADATA, 9).brokers


# -- what is out of place -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [METADATA, "produce", "unknown"], ids=["metadata", "produce", "unknown"])
@pytest.mark.parametrize("after_handshake", [False, True])
def test_before_authentication_anything_else_closes_with_one_line(
    client: SaslClient, caplog: pytest.LogCaptureFixture, request_: Any, after_handshake: bool
) -> None:
    if after_handshake:
        handshake(client)
    with caplog.at_level(logging.WARNING):
        if request_ is METADATA:
            client.send_request(METADATA, 9)
        else:
            client.send_frame(struct.pack(">hhi", 0 if request_ == "produce" else 999, 9, 1) + b"\xff" * 20)
    assert client.is_closed
    assert client.frames() == []
    (line,) = [record.getMessage() for record in caplog.records]
    assert "not authenticated, and it sent" in line


def test_a_frame_without_a_whole_key_closes(client: SaslClient) -> None:
    client.send_frame(b"\0")
    assert client.is_closed


def test_a_token_before_the_handshake_is_an_illegal_state(at: SaslNode, client: SaslClient) -> None:
    client.send_request(SaslAuthenticateRequest(auth_bytes=ALICE), 2)
    assert client.frames() == []
    at.pass_time(100)
    assert client.answer(36, 2).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed
    assert client.peer.principal == ANONYMOUS


def test_a_second_handshake_is_an_illegal_state(at: SaslNode, client: SaslClient) -> None:
    handshake(client, "SCRAM-SHA-256")
    client.send_request(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    at.pass_time(100)
    assert client.answer(17, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed


@pytest.mark.parametrize("mechanism", ["GSSAPI", "", "plain", "SCRAM-SHA-1", "x" * 30_000])
def test_a_mechanism_that_is_not_enabled_gets_the_list_and_the_connection_ends(
    at: SaslNode, client: SaslClient, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.send_request(SaslHandshakeRequest(mechanism=mechanism), 1)
    at.pass_time(100)
    answer = client.answer(17, 1)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert client.is_closed
    assert len(caplog.text) < 500


@pytest.mark.parametrize(
    ("request_", "key", "version"),
    [(SaslHandshakeRequest(mechanism="PLAIN"), 17, 1), (SaslAuthenticateRequest(auth_bytes=ALICE), 36, 2)],
)
def test_after_authentication_logging_in_again_is_an_illegal_state_and_does_not_close(
    client: SaslClient, request_: Any, key: int, version: int
) -> None:
    client.log_in()
    assert client.ask(request_, version).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(METADATA, 9).brokers


def test_a_listener_without_sasl_answers_that_the_state_is_wrong(at: SaslNode) -> None:
    client = at.connect()
    client.peer.authentication = None
    client.connection.dispatcher = at.node.dispatcher
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, ALICE).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not client.is_closed


# -- failures -----------------------------------------------------------------------------------------------------


def test_a_failure_is_answered_after_a_delay_and_then_the_connection_ends(at: SaslNode, client: SaslClient) -> None:
    handshake(client)
    client.send_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.send_request(SaslAuthenticateRequest(auth_bytes=ALICE), 2)  # starts no more
    at.pass_time(99)
    assert client.frames() == []
    assert not client.is_closed
    at.pass_time(1)
    answer = client.answer(36, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.is_closed
    assert client.peer.principal == ANONYMOUS


def test_a_failure_of_scram_has_kafkas_general_message(at: SaslNode, client: SaslClient) -> None:
    handshake(client, "SCRAM-SHA-512")
    client.send_request(SaslAuthenticateRequest(auth_bytes=b"n,,n=carol"), 2)
    at.pass_time(100)
    assert client.answer(36, 2).error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
    )


def test_a_bare_token_that_fails_has_no_answer(at: SaslNode, client: SaslClient) -> None:
    handshake(client, version=0)
    client.send_frame(b"\0alice\0wrong")
    at.pass_time(100)
    assert client.frames() == []
    assert client.is_closed


def test_a_client_that_leaves_during_the_delay_leaves_nothing_behind(at: SaslNode, client: SaslClient) -> None:
    handshake(client)
    client.send_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
    client.connection.connection_lost(None)
    at.pass_time(100_000)
    assert len(at.connections) == 0


def test_no_password_is_logged(at: SaslNode, client: SaslClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        handshake(client)
        client.send_request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0hunter2"), 2)
        at.pass_time(100)
        at.connect().log_in()
    assert "authentication by PLAIN failed" in caplog.text
    assert "authenticated as User:alice by PLAIN" in caplog.text
    assert "hunter2" not in caplog.text
    assert "a secret" not in caplog.text


# -- limits -------------------------------------------------------------------------------------------------------


def test_a_frame_before_authentication_may_be_as_long_as_its_key_says_and_no_longer(
    client: SaslClient, caplog: pytest.LogCaptureFixture
) -> None:
    handshake(client)
    client.send(struct.pack(">i", 524_289))
    assert client.is_closed
    assert "sasl.server.max.receive.size=524288" in caplog.text


def test_the_longest_frame_before_authentication_is_taken(at: SaslNode, client: SaslClient) -> None:
    handshake(client)
    header_and_length = 4
    client.send(struct.pack(">i", 524_288))
    assert not client.is_closed
    client.send(struct.pack(">hhi", 36, 1, 7) + struct.pack(">h", -1))
    room = 524_288 - 10 - header_and_length
    client.send(struct.pack(">i", room) + b"x" * room)
    at.pass_time(100)
    assert client.answer(36, 1).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize("stage", ["connected", "versions", "handshake", "half a frame", "half a scram"])
def test_a_client_that_never_finishes_is_closed_in_time(at: SaslNode, stage: str, caplog: Any) -> None:
    client = at.connect()
    if stage == "versions":
        client.ask(VERSIONS, 3)
    if stage in ("handshake", "half a scram"):
        handshake(client, "SCRAM-SHA-256")
    if stage == "half a scram":
        authenticate(client, b"n,,n=carol,r=abc")
    if stage == "half a frame":
        client.send(b"\0\0\0\x20")
    at.pass_time(29_999)
    assert not client.is_closed
    at.pass_time(1)
    assert client.is_closed
    assert "not authenticated within ottla.handshake.timeout.ms=30000" in caplog.text


def test_clients_that_have_not_authenticated_leave_no_timers(at: SaslNode) -> None:
    before = len(at.node.services.timers)
    clients = [at.connect() for _ in range(200)]
    for client in clients[:100]:
        client.log_in()
    for client in clients:
        client.connection.connection_lost(None)
    assert len(at.node.services.timers) <= before + 1  # the sweep of silent connections
    assert len(at.connections) == 0


# -- sessions that end (KIP-368) ----------------------------------------------------------------------------------


@pytest.fixture
def short() -> Iterator[SaslNode]:
    made = SaslNode(connections_max_reauth_ms=10_000)
    yield made
    made.node.stop()


def test_a_session_says_how_long_it_lasts(short: SaslNode) -> None:
    assert short.connect().log_in().session_lifetime_ms == 10_000


def test_a_request_after_the_end_of_its_session_closes(short: SaslNode, caplog: Any) -> None:
    client = short.connect()
    client.log_in()
    short.pass_time(9_999)
    assert client.ask(METADATA, 9).brokers
    short.pass_time(1)
    assert not client.is_closed
    client.send_request(METADATA, 9)
    assert client.is_closed
    assert "its session has expired, and it sent Metadata before a new login" in caplog.text


def test_a_client_that_logs_in_again_goes_on(short: SaslNode) -> None:
    client = short.connect()
    client.log_in()
    for _ in range(3):
        short.pass_time(10_001)
        assert client.log_in().session_lifetime_ms == 10_000
        assert client.ask(METADATA, 9).brokers
    assert not client.is_closed


def test_between_handshake_and_token_of_a_new_login_nothing_else_is_served(short: SaslNode) -> None:
    client = short.connect()
    client.log_in()
    handshake(client)
    client.send_request(METADATA, 9)
    assert client.is_closed


def test_another_user_or_mechanism_may_not_take_over(short: SaslNode) -> None:
    other_user, other_mechanism = short.connect(), short.connect()
    for client in (other_user, other_mechanism):
        client.log_in()
    handshake(other_user)
    other_user.send_request(SaslAuthenticateRequest(auth_bytes=b"\0bob\0b"), 2)
    handshake(other_mechanism, "SCRAM-SHA-256")
    other_mechanism.send_request(SaslAuthenticateRequest(auth_bytes=b"n,,n=carol,r=abc"), 2)
    short.pass_time(100)
    answers = [client.answer(36, 2) for client in (other_user, other_mechanism)]
    assert [answer.error_code for answer in answers] == [ErrorCode.SASL_AUTHENTICATION_FAILED] * 2
    assert answers[0].error_message == ("Cannot change principals during re-authentication from User.alice: User.bob")
    assert "is not supported for re-authentication of mechanism 'PLAIN'" in answers[1].error_message
    assert other_user.is_closed
    assert other_mechanism.is_closed


def test_a_client_may_log_in_again_once_a_second(short: SaslNode) -> None:
    client = short.connect()
    client.log_in()
    client.log_in()
    short.pass_time(999)
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    short.pass_time(1)
    assert client.log_in().error_code == 0


def test_a_new_login_that_is_never_finished_is_closed_in_time(short: SaslNode) -> None:
    client = short.connect()
    client.log_in()
    handshake(client)
    short.pass_time(30_000)
    assert client.is_closed


def test_templates_answer_no_more_when_the_session_is_over(short: SaslNode) -> None:
    client = short.connect()
    client.log_in()
    make_topic(short.node, "t", 1)
    request = produce_request("t", batch(1))
    for _ in range(4):
        assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
    assert client.peer.hot_path is not None
    short.pass_time(10_000)
    assert client.peer.hot_path is None
    client.send_request(request, 9)
    assert client.is_closed
    assert client.frames() == []
