"""Connections with TLS and SASL: what is accepted, and what is refused in one line and not tried again."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from contextlib import asynccontextmanager, contextmanager, suppress

import pytest
from kit.certificates import certificates
from kit.fake_broker import HANG_UP, FakeCluster

from ottla.client import Admin, Consumer, Producer
from ottla.client.errors import AuthenticationFailed, ConnectionLost, NoBrokersAvailable
from ottla.client_core.security import TlsSettings
from ottla.client_tls import context_of
from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.api.metadata import MetadataRequest
from ottla.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

PLAIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}


def server_context(files=None, client_auth=ssl.CERT_NONE):
    pki = certificates()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(pki.ca))
    context.load_cert_chain((files or pki.server).store)
    context.verify_mode = client_auth
    return context


@pytest.fixture
async def cluster():
    async with FakeCluster() as running:
        yield running


@pytest.fixture
async def tls_cluster():
    made = FakeCluster()
    made.tls = server_context()
    async with made as running:
        yield running


def ask_password(cluster, password, lifetime_ms=0):
    """Let a cluster take PLAIN with this password."""
    cluster.handlers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"])

    def authenticate(request, version):
        if bytes(request.auth_bytes).rpartition(b"\0")[2].decode() != password:
            return SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password")
        return SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)

    cluster.handlers[SaslAuthenticateRequest] = authenticate


async def use(cluster, **options):
    async with Admin(cluster.bootstrap, **options) as admin:
        return await admin.list_topics()


def trusted(cluster, **options):
    return use(cluster, security_protocol="SSL", ssl_truststore_location=str(certificates().ca), **options)


# TLS ------------------------------------------------------------------------------------------------------------------


async def test_a_broker_with_a_certificate_of_a_trusted_authority_is_used(tls_cluster):
    tls_cluster.add_topic("here")
    assert list(await trusted(tls_cluster)) == ["here"]


async def test_records_travel_both_ways_through_tls(tls_cluster):
    tls_cluster.add_topic("here")
    options = {"security_protocol": "SSL", "ssl_cafile": str(certificates().ca)}
    value = bytes(range(256)) * 2000
    async with Producer(tls_cluster.bootstrap, batch_size=1_000_000, max_request_size=1_000_000, **options) as producer:
        await asyncio.gather(*[await producer.send("here", value=value) for _ in range(5)])
    async with Consumer(tls_cluster.bootstrap, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([("here", 0)])
        found = [await consumer.getone() for _ in range(5)]
    assert [record.value for record in found] == [value] * 5


async def test_what_was_written_without_answers_leaves_before_tls_ends(tls_cluster):
    (partition,) = tls_cluster.add_topic("here")
    options = {"security_protocol": "SSL", "ssl_cafile": str(certificates().ca)}
    async with Producer(tls_cluster.bootstrap, acks=0, **options) as producer:
        await producer.send("here", value=b"last words")
    while not partition.batches:
        await asyncio.sleep(0)
    assert partition.values == [b"last words"]


@pytest.mark.parametrize(
    ("server", "options", "said"),
    [
        (lambda pki: pki.server, {}, r"not of an authority that this client trusts \(ssl\.truststore\.location\)"),
        (lambda pki: pki.expired_server(), {"ssl_cafile": "CA"}, "the broker's certificate has expired"),
        (lambda pki: pki.server_for("elsewhere", ["elsewhere"]), {"ssl_cafile": "CA"}, "is for another host"),
    ],
    ids=["foreign", "expired", "other-host"],
)
async def test_a_broker_that_cannot_be_trusted_is_refused_at_once(server, options, said):
    pki = certificates()
    made = FakeCluster()
    made.tls = server_context(server(pki))
    given = {name: str(pki.ca) if value == "CA" else value for name, value in options.items()}
    async with made as cluster:
        with pytest.raises(AuthenticationFailed, match=said) as failed:
            await use(cluster, security_protocol="SSL", **given)
    assert failed.value.message.startswith(f"{cluster.bootstrap}: ")
    assert "\n" not in failed.value.message


async def test_versions_of_tls_that_do_not_meet_are_named():
    context = server_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    options = {"security_protocol": "SSL", "ssl_cafile": str(certificates().ca), "ssl_enabled_protocols": "TLSv1.2"}
    said = r"no version of TLS that both sides allow \(ssl\.enabled\.protocols\)"
    with tls_listener(context) as address, pytest.raises(AuthenticationFailed, match=said):
        await Admin(address, **options).start()


async def test_a_host_name_is_not_checked_where_nothing_is_to_be_checked():
    made = FakeCluster()
    made.tls = server_context(certificates().server_for("elsewhere", ["elsewhere"]))
    async with made as cluster:
        assert await trusted(cluster, ssl_endpoint_identification_algorithm="") == []


@pytest.mark.parametrize(
    "shown",
    [
        lambda files: {"ssl_keystore_location": str(files.store)},
        lambda files: {"ssl_certificate_location": str(files.chain), "ssl_key_location": str(files.key)},
        lambda files: {
            "ssl_keystore_certificate_chain": files.chain.read_text().replace("\n", " "),
            "ssl_keystore_key": files.key.read_text(),
        },
    ],
    ids=["one-file", "two-files", "inline"],
)
async def test_a_broker_that_wants_a_certificate_gets_one(shown):
    made = FakeCluster()
    made.tls = server_context(client_auth=ssl.CERT_REQUIRED)
    async with made as cluster:
        assert await trusted(cluster, **shown(certificates().client("alice"))) == []


@contextmanager
def tls_listener(context):
    """The address of a listener that does the handshake, with its alerts, and no more; asyncio's sends none."""

    def serve(listener):
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                peer.settimeout(5)
                with peer, suppress(OSError), context.wrap_socket(peer, server_side=True) as secured:
                    secured.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "files",
    [lambda pki: None, lambda pki: pki.foreign_client(), lambda pki: pki.expired_client()],
    ids=["none", "foreign", "expired"],
)
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_whose_certificate_is_refused_says_so(files, version):
    pki = certificates()
    found = files(pki)
    shown = {} if found is None else {"ssl_keystore_location": str(found.store)}
    with tls_listener(server_context(client_auth=ssl.CERT_REQUIRED)) as address:
        client = Admin(address, security_protocol="SSL", ssl_cafile=str(pki.ca), ssl_enabled_protocols=version, **shown)
        with pytest.raises(AuthenticationFailed, match=r"client's certificate \(ssl\.keystore"):
            await client.start()


async def test_a_client_without_tls_is_sent_to_security_protocol(tls_cluster):
    with pytest.raises((AuthenticationFailed, NoBrokersAvailable), match=r"TLS.*security\.protocol"):
        await use(tls_cluster)


async def test_a_client_that_logs_in_without_tls_is_sent_to_security_protocol(tls_cluster):
    with pytest.raises((AuthenticationFailed, NoBrokersAvailable), match=r"TLS.*security\.protocol"):
        await use(tls_cluster, **PLAIN, sasl_password="s3cret")


@pytest.mark.parametrize("answers_first", [False, True], ids=["before an answer", "after one"])
async def test_a_listener_that_closes_may_want_tls_if_it_never_answered(cluster, answers_first):
    """As a broker whose TLS handshake fails: it closes the connection without an alert."""
    closing = SaslHandshakeRequest if answers_first else ApiVersionsRequest
    cluster.handlers[closing] = lambda request, version: HANG_UP
    with pytest.raises(NoBrokersAvailable) as raised:
        await use(cluster, **PLAIN, sasl_password="s3cret")
    assert ("does its listener want TLS? security.protocol is SASL_PLAINTEXT" in str(raised.value)) != answers_first
    assert ("or are there too many connections (its log names the limit)?" in str(raised.value)) != answers_first


async def test_a_connection_over_a_limit_is_not_only_thought_to_want_tls(cluster):
    """As a broker with the quota `connection_creation_rate`, which closes a connection without reading it."""
    cluster.handlers[ApiVersionsRequest] = lambda request, version: HANG_UP
    with pytest.raises(NoBrokersAvailable, match=r"want TLS\? .* PLAINTEXT; or are there too many connections"):
        await use(cluster)


async def test_a_client_with_tls_at_a_listener_without_it_is_sent_to_security_protocol(cluster):
    with pytest.raises((AuthenticationFailed, NoBrokersAvailable), match=r"TLS.*security\.protocol"):
        await trusted(cluster, socket_connection_setup_timeout_ms=200)  # it waits for a request of 369 MB


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"ssl_truststore_location": "/nowhere/ca.pem"},
            r"ssl\.truststore\.location /nowhere/ca\.pem cannot be read: No",
        ),
        ({"ssl_truststore_certificates": "none"}, r"ssl\.truststore\.certificates has no certificate"),
        ({"ssl_truststore_location": "JAVAS"}, "keytool -importkeystore"),
        ({"ssl_truststore_location": "RUBBISH"}, "is it PKCS12"),
        ({"ssl_truststore_location": "RUBBISH", "ssl_truststore_type": "PEM"}, "has no PEM in it"),
        (
            {"ssl_truststore_location": "CHAIN", "ssl_truststore_type": "PKCS12"},
            r"alice\.pem is PEM and not PKCS12: ssl\.truststore\.type",
        ),
        ({"ssl_truststore_location": "CHAIN", "ssl_truststore_type": "JKS"}, "is PEM and not JKS"),
        (
            {"ssl_keystore_location": "CHAIN", "ssl_key_location": "OTHER", "ssl_keystore_type": "pkcs12"},
            r"is PEM and not PKCS12: ssl\.keystore\.type",
        ),
        ({"ssl_keystore_location": "CHAIN"}, "no private key"),
        ({"ssl_keystore_location": "ENCRYPTED"}, r"ssl\.key\.password is missing"),
        ({"ssl_keystore_location": "ENCRYPTED", "ssl_key_password": "wrong"}, r"is ssl\.key\.password right\?"),
        ({"ssl_keystore_location": "CHAIN", "ssl_key_location": "OTHER"}, "not that of the certificate"),
    ],
)
async def test_files_that_cannot_be_used_are_named_before_anything_is_dialled(options, said, tmp_path):
    pki = certificates()
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    (tmp_path / "rubbish").write_bytes(b"\x30\x82" + bytes(100))
    places = {
        "JAVAS": tmp_path / "store.jks",
        "RUBBISH": tmp_path / "rubbish",
        "CHAIN": pki.client("alice").chain,
        "ENCRYPTED": pki.encrypted("s3cret").store,
        "OTHER": pki.client("bob").key,
    }
    given = {name: str(places.get(value, value)) for name, value in options.items()}
    with pytest.raises(AuthenticationFailed, match=said):
        await Admin("127.0.0.1:1", security_protocol="SSL", **given).start()


async def test_a_pkcs12_store_and_an_encrypted_key_are_read(tmp_path):
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        load_pem_private_key,
        pkcs12,
    )
    from cryptography.x509 import load_pem_x509_certificate

    pki = certificates()
    files = pki.client("alice")
    encryption = BestAvailableEncryption(b"s3cret")
    certificate = load_pem_x509_certificate(files.chain.read_bytes())
    key = load_pem_private_key(files.key.read_bytes(), None)
    (tmp_path / "alice.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"alice", key, certificate, None, encryption)
    )
    authority = load_pem_x509_certificate(pki.ca.read_bytes())
    (tmp_path / "ca.p12").write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [authority], encryption))
    made = FakeCluster()
    made.tls = server_context(client_auth=ssl.CERT_REQUIRED)
    trust = {
        "ssl_truststore_location": str(tmp_path / "ca.p12"),
        "ssl_truststore_password": "s3cret",
        "ssl_truststore_type": "PKCS12",
    }
    async with made as cluster:
        store = {"ssl_keystore_location": str(tmp_path / "alice.p12"), "ssl_keystore_password": "s3cret"}
        assert await use(cluster, security_protocol="SSL", **trust, **store) == []
        made.tls.verify_mode = ssl.CERT_NONE  # that one is not a client's
        encrypted = {"ssl_keystore_location": str(pki.encrypted("s3cret").store), "ssl_key_password": "s3cret"}
        assert await use(cluster, security_protocol="SSL", **trust, **encrypted) == []
        with pytest.raises(AuthenticationFailed, match=r"ssl\.truststore\.password right\?"):
            await use(cluster, security_protocol="SSL", **trust | {"ssl_truststore_password": "wrong"})


# SASL -----------------------------------------------------------------------------------------------------------------


async def test_a_user_with_the_right_password_is_let_in(cluster):
    ask_password(cluster, "s3cret")
    assert await use(cluster, **PLAIN, sasl_password="s3cret") == []
    assert await use(cluster, **{**PLAIN, "security_protocol": "sasl_plaintext"}, sasl_password="s3cret") == []


async def test_a_wrong_password_is_one_line_and_one_attempt(cluster):
    ask_password(cluster, "s3cret")
    with pytest.raises(AuthenticationFailed) as failed:
        await use(cluster, **PLAIN, sasl_password="wr0ng")
    line = f"{cluster.bootstrap}: the PLAIN login of user 'alice' failed: Invalid username or password"
    assert failed.value.message == line
    assert len(cluster.seen(SaslAuthenticateRequest)) == 1


async def test_a_mechanism_that_the_broker_does_not_have_names_those_that_it_has(cluster):
    cluster.handlers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(
        error_code=33, mechanisms=["SCRAM-SHA-256"]
    )
    with pytest.raises(AuthenticationFailed, match=r"\(sasl\.mechanism\); it has SCRAM-SHA-256$"):
        await use(cluster, **PLAIN, sasl_password="s3cret")


async def test_a_client_that_does_not_log_in_is_sent_to_security_protocol(cluster):
    cluster.handlers[MetadataRequest] = lambda request, version: HANG_UP
    with pytest.raises(ConnectionLost, match=r"want SASL\? security\.protocol is PLAINTEXT"):
        await use(cluster)


async def test_a_session_is_prolonged_and_nothing_is_lost(cluster):
    ask_password(cluster, "s3cret", lifetime_ms=30)
    cluster.add_topic("here")
    async with Producer(cluster.bootstrap, **PLAIN, sasl_password="s3cret") as producer:
        sent = 0
        while len(cluster.seen(SaslAuthenticateRequest)) < 5:
            record = await (await producer.send("here", value=b"x"))
            assert record.offset == sent
            sent += 1
    begun = len(cluster.seen(SaslHandshakeRequest)) - len(cluster.seen(SaslAuthenticateRequest))
    connections = len(cluster.seen(ApiVersionsRequest))  # one to the bootstrap server, one to the leader
    assert 0 <= begun <= connections, "the next one of each may be under way"


async def test_a_consumer_hears_that_its_user_is_gone(cluster):
    ask_password(cluster, "s3cret", lifetime_ms=50)
    cluster.add_topic("here")
    options = {**PLAIN, "sasl_password": "s3cret", "auto_offset_reset": "earliest"}
    async with Consumer(cluster.bootstrap, **options) as consumer:
        consumer.assign([("here", 0)])
        await consumer.getmany(timeout_ms=1)
        ask_password(cluster, "another")
        with pytest.raises(AuthenticationFailed, match="user 'alice' failed"):
            await consumer.getone()


# Tokens ---------------------------------------------------------------------------------------------------------------


def take_tokens(cluster):
    tokens = []
    cluster.handlers[SaslHandshakeRequest] = lambda request, version: SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])

    def authenticate(request, version):
        tokens.append(bytes(request.auth_bytes).decode().split("\x01")[1].removeprefix("auth=Bearer "))
        return SaslAuthenticateResponse()

    cluster.handlers[SaslAuthenticateRequest] = authenticate
    return tokens


OAUTH = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


async def test_a_token_comes_from_text_a_function_a_coroutine_function_or_a_file(cluster, tmp_path):
    tokens = take_tokens(cluster)

    async def fetch():
        await asyncio.sleep(0)
        return "c"

    (tmp_path / "token").write_text("d\n")
    for token in ("a", lambda: "b", fetch):
        await use(cluster, **OAUTH, sasl_oauthbearer_token=token)
    await use(cluster, **OAUTH, sasl_oauthbearer_token_endpoint_url=(tmp_path / "token").as_uri())
    assert list(dict.fromkeys(tokens)) == ["a", "b", "c", "d"]


async def test_a_function_that_raises_or_returns_no_token_is_named(cluster):
    take_tokens(cluster)

    def fail():
        raise LookupError("the vault is shut")

    with pytest.raises(NoBrokersAvailable, match="sasl_oauthbearer_token raised LookupError: the vault is shut"):
        await use(cluster, **OAUTH, sasl_oauthbearer_token=fail)
    with pytest.raises(AuthenticationFailed, match="returned int"):
        await use(cluster, **OAUTH, sasl_oauthbearer_token=lambda: 5)
    with pytest.raises(AuthenticationFailed, match="no bearer token"):
        await use(cluster, **OAUTH, sasl_oauthbearer_token=lambda: "a b")


JAAS = 'x.OAuthBearerLoginModule required clientId="me" clientSecret="s3cret" scope="logs";'


@asynccontextmanager
async def token_server(answers):
    """A server's URL, and what it was asked; by path, `answers` has its status line with headers, and its body."""
    asked = []

    async def serve(reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = (await reader.readexactly(int(head.lower().partition("content-length: ")[2].split()[0]))).decode()
        asked.append((head.splitlines()[0], "Basic bWU6czNjcmV0" in head, body))
        status, answer = answers[head.split()[1]]
        writer.write(
            b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(answer), answer)
        )
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_a_server_gives_a_token_for_client_credentials(cluster):
    tokens = take_tokens(cluster)
    answer = b'{"access_token":"from-the-server","token_type":"bearer"}'
    async with token_server({"/token": (b"200 OK", answer)}) as (address, asked):
        await use(cluster, **OAUTH, sasl_jaas_config=JAAS, sasl_oauthbearer_token_endpoint_url=address + "/token")
    assert set(asked) == {("POST /token HTTP/1.1", True, "grant_type=client_credentials&scope=logs")}
    assert set(tokens) == {"from-the-server"}


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (b"401 Unauthorized", b"{}", "issues no token to client 'me': HTTP status 401"),
        (b"404 Not Found", b"", "HTTP status 404"),
        (b"302 Found\r\nLocation: http://127.0.0.1:1/", b"", "HTTP status 302"),
        (b"501 Not Implemented", b"", "HTTP status 501"),
        (b"200 OK", b"{}", "without an access_token"),
        (b"200 OK", b"x" * (64 * 1024 + 1), "are no token"),
    ],
)
async def test_a_token_server_that_refuses_is_not_asked_again(cluster, status, answer, said):
    async with token_server({"/": (status, answer)}) as (address, _):
        with pytest.raises(AuthenticationFailed, match=said) as failed:
            await use(cluster, **OAUTH, sasl_jaas_config=JAAS, sasl_oauthbearer_token_endpoint_url=address + "/")
    assert "s3cret" not in str(failed.value)


@pytest.mark.parametrize("status", [b"408 Request Timeout", b"429 Too Many Requests", b"503 Service Unavailable"])
async def test_a_token_server_that_is_busy_is_not_a_refusal(cluster, status):
    async with token_server({"/": (status, b"")}) as (address, _):
        with pytest.raises(NoBrokersAvailable, match=f"HTTP status {status[:3].decode()}"):
            await use(cluster, **OAUTH, sasl_jaas_config=JAAS, sasl_oauthbearer_token_endpoint_url=address + "/")


async def test_a_token_server_that_is_down_is_not_a_refusal(cluster):
    url = "http://127.0.0.1:1/token"
    with pytest.raises(NoBrokersAvailable, match="cannot be asked for a token"):
        await use(cluster, **OAUTH, sasl_jaas_config=JAAS, sasl_oauthbearer_token_endpoint_url=url)


async def test_a_token_server_with_an_unknown_certificate_is_not_asked_again(cluster):
    with tls_listener(server_context()) as address:
        url = f"https://{address}/token"
        with pytest.raises(AuthenticationFailed, match="verify failed"):
            await use(cluster, **OAUTH, sasl_jaas_config=JAAS, sasl_oauthbearer_token_endpoint_url=url)


# Secrets --------------------------------------------------------------------------------------------------------------


def test_options_show_no_secret_and_refuse_what_makes_no_sense_by_name():
    from ottla.client.options import AdminOptions, read_options

    _, options = read_options(AdminOptions, "x", {**PLAIN, "sasl_password": "s3cret", "ssl.key.password": "s3cret"})
    assert options.sasl_password == "s3cret"
    assert "s3cret" not in repr(options)
    for wrong in ({"sasl_password": b"s3cret"}, {"sasl_jaas_config": "s3cret"}, {"ssl_keystore_key": 5}):
        with pytest.raises(ValueError, match=r"sasl_|ssl_") as refused:
            read_options(AdminOptions, "x", {**PLAIN, **wrong})
        assert "s3cret" not in str(refused.value)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory")
def test_a_key_that_is_inline_reaches_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    files = certificates().client("inline")
    settings = TlsSettings(
        keystore_key=files.key.read_text(), keystore_certificate_chain=files.chain.read_text(), versions=("TLSv1.3",)
    )
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: pytest.fail("a file on the disk"))
    assert context_of(settings).minimum_version is ssl.TLSVersion.TLSv1_3
