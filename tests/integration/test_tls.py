"""TLS listeners with real clients and raw sockets: one broker for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kit.broker import BrokerProcess
from kit.certificates import HOSTS, Certificates, certificates

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def pki() -> Certificates:
    return certificates()


@pytest.fixture(scope="module")
def broker(pki: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    overrides = {"listeners": "SSL://127.0.0.1:0", **pki.server_overrides(client_auth="requested")}
    with BrokerProcess(tmp_path_factory.mktemp("tls"), overrides) as running:
        yield running


def wait_for(broker: BrokerProcess, words: str, *, times: int = 1) -> str:
    """The last line with these words, once there are so many."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        lines = [line for line in broker.output.splitlines() if words in line]
        if len(lines) >= times:
            assert len(lines) == times, lines
            return lines[-1]
        time.sleep(0.01)
    raise AssertionError(f"no line has {words!r}\n{broker.output}")


def librdkafka(broker: BrokerProcess, pki: Certificates) -> dict[str, str]:
    return {
        "bootstrap.servers": f"localhost:{broker.port}",
        "broker.address.family": "v4",
        "security.protocol": "SSL",
        "ssl.ca.location": str(pki.ca),
    }


def test_librdkafka_produces_and_consumes_large_records(broker: BrokerProcess, pki: Certificates) -> None:
    keys = librdkafka(broker, pki)
    producer = Producer({**keys, "message.max.bytes": 2_000_000})
    values = [b"small", *(bytes([number]) * 1_000_000 for number in range(20))]
    for value in values:
        producer.produce("large", value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**keys, "group.id": "large", "auto.offset.reset": "earliest"})
    consumer.subscribe(["large"])
    try:
        messages = [consumer.poll(TIMEOUT_S) for _ in values]
        assert [message.value() for message in messages if message is not None] == values
    finally:
        consumer.close()


def test_a_client_that_does_not_trust_the_authority_is_told(broker: BrokerProcess, pki: Certificates) -> None:
    errors: list[KafkaError] = []
    foreign = pki.foreign_client().chain
    producer = Producer({**librdkafka(broker, pki), "ssl.ca.location": str(foreign), "error_cb": errors.append})
    while not errors:
        producer.poll(0.1)
    assert "certificate verify failed" in errors[0].str()
    wait_for(broker, "does not trust the broker's certificate")


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\x00\x00\x00\x10abcd", "this is Kafka's protocol without TLS, and the listener speaks TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "this is HTTP (b'GET / HT'), and the listener speaks TLS"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake: "),
        (b"\xff" * 100, "is not the beginning of TLS"),
    ],
)
def test_what_is_no_tls_ends_with_one_line(broker: BrokerProcess, sent: bytes, said: str) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as client:
        client.sendall(sent)
        port = client.getsockname()[1]
        while client.recv(1000):
            pass
    assert said in wait_for(broker, f":{port} on")


def test_an_expired_certificate_of_a_client_is_refused(broker: BrokerProcess, pki: Certificates) -> None:
    refuses(broker, pki.client_context(pki.expired_client()), "certificate has expired")


def test_a_certificate_of_an_unknown_authority_is_refused(broker: BrokerProcess, pki: Certificates) -> None:
    refuses(broker, pki.client_context(pki.foreign_client()), "unable to get local issuer certificate")


def refuses(broker: BrokerProcess, context: ssl.SSLContext, reason: str) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as raw:
        port = raw.getsockname()[1]
        with pytest.raises(ssl.SSLError), context.wrap_socket(raw, server_hostname="localhost") as client:
            client.recv(1)  # with TLS 1.3 a client learns it by reading
    line = wait_for(broker, f":{port} on")
    assert line.endswith(f"closing: TLS handshake: the client's certificate is refused: {reason}")


def test_the_names_of_the_certificate_are_the_clients_to_check(broker: BrokerProcess, pki: Certificates) -> None:
    context = pki.client_context()
    with (
        socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as raw,
        pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"),
    ):
        context.wrap_socket(raw, server_hostname="elsewhere.example")


def line_of_a_refused_start(tmp_path: Path, overrides: dict[str, str]) -> str:
    broker = BrokerProcess(tmp_path / "data", overrides)
    broker.launch()
    assert broker.process is not None
    assert broker.process.wait(TIMEOUT_S) == 1
    broker.kill()
    (line,) = broker.output.splitlines()
    return line


def test_a_start_with_a_store_that_cannot_be_read_is_refused_in_one_line(tmp_path: Path, pki: Certificates) -> None:
    overrides = {**pki.server_overrides(), "listeners": "SSL://127.0.0.1:0"}
    overrides["ssl.keystore.location"] = str(tmp_path / "none.pem")
    line = line_of_a_refused_start(tmp_path, overrides)
    assert f"cannot start: ssl.keystore.location={tmp_path}/none.pem: cannot be read: No such file or directory" in line


def test_a_start_with_a_cipher_suite_that_is_unknown_is_refused_in_one_line(tmp_path: Path, pki: Certificates) -> None:
    overrides = {**pki.server_overrides(), "listeners": "SSL://127.0.0.1:0", "ssl.cipher.suites": "TLS_NONE_SUCH"}
    line = line_of_a_refused_start(tmp_path, overrides)
    assert "cannot start: ssl.cipher.suites=TLS_NONE_SUCH: TLS_NONE_SUCH is not offered; these are: TLS_AES_" in line


# -- other clients ----------------------------------------------------------------------------------------------------


async def test_aiokafka_produces_and_consumes(broker: BrokerProcess, pki: Certificates) -> None:
    keys: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{broker.port}",
        "security_protocol": "SSL",
        "ssl_context": pki.client_context(pki.client("alice")),
    }
    async with AIOKafkaProducer(**keys) as producer:
        await asyncio.wait_for(producer.send_and_wait("aio", b"value"), TIMEOUT_S)
    async with AIOKafkaConsumer("aio", **keys, auto_offset_reset="earliest") as consumer:
        record = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
    assert record.value == b"value"


def test_kafka_python_produces_and_consumes(broker: BrokerProcess, pki: Certificates) -> None:
    alice = pki.client("alice")
    keys: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{broker.port}",
        "security_protocol": "SSL",
        "ssl_cafile": str(pki.ca),
        "ssl_certfile": str(alice.chain),
        "ssl_keyfile": str(alice.key),
    }
    producer = KafkaProducer(**keys)
    producer.send("python", b"value").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer("python", **keys, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000)
    assert next(consumer).value == b"value"
    consumer.close()


# -- the audit log, and metrics ---------------------------------------------------------------------------------------


def test_handshakes_are_in_the_audit_log_and_in_the_metrics(pki: Certificates, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "ottla.audit.log": str(audit),
        "ottla.http.listener": "127.0.0.1:0",
        **pki.server_overrides(client_auth="required"),
    }
    with BrokerProcess(tmp_path / "data", keys) as broker:
        contexts = [
            pki.client_context(pki.client("alice")),
            pki.client_context(),
            pki.client_context(pki.expired_client()),
            ssl.create_default_context(cafile=str(pki.foreign_client().chain)),
        ]
        for count, context in enumerate(contexts, 1):
            with (
                socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as raw,
                contextlib.suppress(OSError),  # of TLS, or of a socket that the broker has closed
                context.wrap_socket(raw, server_hostname="localhost") as client,
            ):
                client.sendall(b"\xff\xff\xff\xff")  # no frame: it ends the good one, too, after its handshake
                client.recv(1)
            wait_for(broker, "closing: ", times=count)
        found = re.search(r"metrics at http://(\S+)", broker.output)
        assert found is not None
        with urllib.request.urlopen(f"http://{found[1]}/metrics", timeout=TIMEOUT_S) as answer:
            metrics = answer.read().decode()
    server, labels = "kafka_server_socketservermetrics", '{listener="SSL",mechanism="TLS"}'
    assert f"{server}_successful_authentication_total{labels} 1.0" in metrics
    assert f"{server}_failed_authentication_total{labels} 3.0" in metrics
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["event"], line["mechanism"], line["outcome"], line.get("error")) for line in lines] == [
        ("authentication", "TLS", "succeeded", None),
        ("authentication", "TLS", "failed", "no_certificate"),
        ("authentication", "TLS", "failed", "certificate"),
        ("authentication", "TLS", "failed", "untrusted"),
    ]
    assert [line["principal"] for line in lines] == ["User:CN=alice,OU=clients,O=Ottla", *["User:ANONYMOUS"] * 3]
    assert {(line["host"], line["listener"]) for line in lines} == {("127.0.0.1", "SSL")}


# -- new certificates -------------------------------------------------------------------------------------------------


def shown_name(broker: BrokerProcess, pki: Certificates) -> str:
    """The common name of the certificate that the broker shows now."""
    with (
        socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as raw,
        pki.client_context().wrap_socket(raw, server_hostname="localhost") as client,
    ):
        certificate = client.getpeercert()
    assert certificate is not None
    return dict(part[0] for part in certificate["subject"])["commonName"]  # type: ignore[misc]


def alter(broker: BrokerProcess, pki: Certificates, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    client = AdminClient(librdkafka(broker, pki))
    for future in client.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)


def test_a_certificate_is_replaced_by_a_client_and_connections_stay(broker: BrokerProcess, pki: Certificates) -> None:
    key = "listener.name.ssl.ssl.keystore.location"
    assert shown_name(broker, pki) == "server"
    producer = Producer(librdkafka(broker, pki))
    producer.produce("stays", b"before")
    assert producer.flush(TIMEOUT_S) == 0
    alter(broker, pki, key, str(pki.server_for("renewed", HOSTS).store))
    assert shown_name(broker, pki) == "renewed"
    with pytest.raises(KafkaException, match="cannot be read: No such file or directory"):
        alter(broker, pki, key, "/nowhere")
    assert shown_name(broker, pki) == "renewed"
    producer.produce("stays", b"after")
    assert producer.flush(TIMEOUT_S) == 0
    alter(broker, pki, key, str(pki.server.store))


def test_what_a_client_has_set_counts_after_a_restart_and_a_changed_file_without_one(
    pki: Certificates, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_bytes(pki.server_for("renewed", HOSTS).store.read_bytes())
    keys = {**pki.server_overrides(), "ottla.tls.reload.interval.ms": "50"}
    with BrokerProcess(tmp_path / "data", {"listeners": "SSL://127.0.0.1:0", **keys}) as broker:
        alter(broker, pki, "listener.name.ssl.ssl.keystore.location", str(store))
        broker.stop()
        broker.port = 0  # it is said again
        broker.start()
        assert shown_name(broker, pki) == "renewed"
        store.write_bytes(pki.server_for("again", HOSTS).store.read_bytes())
        wait_for(broker, "new connections get the certificate that is configured now", times=3)  # set, started, changed
        assert shown_name(broker, pki) == "again"
        secrets = [pki.server.key.read_text().splitlines()[1], "PRIVATE KEY"]
        assert not [one for one in secrets if one in broker.output]


# -- limits -----------------------------------------------------------------------------------------------------------


def test_clients_that_never_finish_their_handshake_do_not_keep_others_out(pki: Certificates, tmp_path: Path) -> None:
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "ottla.handshake.timeout.ms": "300",
        "socket.listen.backlog.size": "500",
        **pki.server_overrides(),
    }
    with BrokerProcess(tmp_path, keys) as broker:
        silent = [socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) for _ in range(200)]
        assert shown_name(broker, pki) == "server"
        for one in silent:
            assert one.recv(1) == b""
            one.close()
        assert "closing: no handshake within ottla.handshake.timeout.ms=300" in broker.output


def test_a_tls_client_on_a_plaintext_listener_is_one_line(pki: Certificates, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with (
            socket.create_connection(("127.0.0.1", broker.port), TIMEOUT_S) as raw,
            pytest.raises((ssl.SSLError, OSError)),
        ):
            pki.client_context().wrap_socket(raw, server_hostname="localhost")
        wait_for(broker, "this is a TLS handshake, and the listener speaks plaintext")


def test_a_login_within_tls_says_who_a_client_is(pki: Certificates, tmp_path: Path) -> None:
    entry = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
    keys = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": entry,
        **pki.server_overrides(client_auth="required"),  # of no effect beside a login: KIP-684
    }
    with BrokerProcess(tmp_path, keys) as broker:
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "geheim"}
        client = {**librdkafka(broker, pki), "security.protocol": "SASL_SSL", **login}
        producer = Producer(client)
        producer.produce("t", bytes(900_000))
        assert producer.flush(TIMEOUT_S) == 0
        with pytest.raises(KafkaException):
            AdminClient({**client, "sasl.password": "falsch"}).list_topics(timeout=1)
        assert "authentication by PLAIN failed" in broker.output
        assert "falsch" not in broker.output
        assert "geheim" not in broker.output


def test_who_the_certificate_names_is_whom_rights_are_given_to(pki: Certificates, tmp_path: Path) -> None:
    keys = {
        "listeners": "SSL://127.0.0.1:0",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=clients,.*$/$1/, DEFAULT",
        **pki.server_overrides(client_auth="required"),
    }
    with BrokerProcess(tmp_path, keys) as broker:
        for name, topic in (("bob", "b"), ("alice", "a")):
            shown = {"ssl.certificate.location": str(pki.client(name).chain)}
            client = AdminClient({**librdkafka(broker, pki), **shown, "ssl.key.location": str(pki.client(name).key)})
            (created,) = client.create_topics([NewTopic(topic, 1)]).values()
            if name == "alice":
                created.result(TIMEOUT_S)
                assert sorted(client.list_topics(timeout=TIMEOUT_S).topics) == ["a"]
            else:
                with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
                    created.result(TIMEOUT_S)
