"""Logging in by SASL with clients that are not ours."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioKafkaTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from kit.broker import BrokerProcess
from kit.tokens import AUDIENCE, Issuer
from kit.wire import Wire

from ottla.protocol.api.api_versions import ApiVersionsRequest
from ottla.protocol.errors import ErrorCode

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a \\"secret\\"";'
USERS = {
    "PLAIN": ("alice", 'a "secret"'),
    "SCRAM-SHA-256": ("bob", "bob's secret"),
    "SCRAM-SHA-512": ("bob", "bob's other secret"),
}
ISSUER = Issuer()
MECHANISMS = pytest.mark.parametrize("mechanism", USERS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A listener with SASL, and one without for the administrator."""
    jwks = tmp_path_factory.mktemp("jwks") / "jwks.json"
    jwks.write_bytes(ISSUER.jwks)
    with BrokerProcess(
        tmp_path_factory.mktemp("sasl"),
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": ",".join([*USERS, "OAUTHBEARER"]),
            "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "socket.listen.backlog.size": "2000",  # or 2,000 connections at once take Linux half a minute
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        },
    ) as process:
        yield process


@pytest.fixture(scope="module")
def users(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port_of('PLAINTEXT')}"})
    for mechanism, number in (
        ("SCRAM-SHA-256", ScramMechanism.SCRAM_SHA_256),
        ("SCRAM-SHA-512", ScramMechanism.SCRAM_SHA_512),
    ):
        name, password = USERS[mechanism]
        info = ScramCredentialInfo(number, 4096)
        asked = [UserScramCredentialUpsertion(name, info, password.encode(), b"salt")]
        for done in admin.alter_user_scram_credentials(asked).values():
            done.result()


def confluent(broker: BrokerProcess, mechanism: str, password: str | None = None) -> dict[str, Any]:
    name, right = USERS[mechanism]
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": right if password is None else password,
    }


def of_python(broker: BrokerProcess, mechanism: str, password: str | None = None) -> dict[str, Any]:
    name, right = USERS[mechanism]
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": right if password is None else password,
    }


@MECHANISMS
@pytest.mark.usefixtures("users")
def test_confluent_kafka_writes_and_reads(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"confluent-{mechanism.lower()}"
    producer = Producer(confluent(broker, mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    consumer = Consumer(confluent(broker, mechanism) | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None
    assert message.value() == b"value"
    consumer.close()


@MECHANISMS
@pytest.mark.usefixtures("users")
def test_kafka_python_writes_and_reads(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"kafka-python-{mechanism.lower()}"
    producer = KafkaProducer(**of_python(broker, mechanism))
    assert producer.send(topic, b"value").get(30).offset == 0
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **of_python(broker, mechanism)
    )
    assert next(consumer).value == b"value"
    consumer.close()


@MECHANISMS
@pytest.mark.usefixtures("users")
async def test_aiokafka_writes_and_reads(broker: BrokerProcess, mechanism: str) -> None:
    topic = f"aiokafka-{mechanism.lower()}"
    async with AIOKafkaProducer(**of_python(broker, mechanism)) as producer:
        await producer.send_and_wait(topic, b"value")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **of_python(broker, mechanism)) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 30)).value == b"value"


def test_a_client_of_before_kafka_1_0_logs_in_with_bare_tokens(broker: BrokerProcess) -> None:
    producer = KafkaProducer(**of_python(broker, "PLAIN"), api_version=(0, 10, 2))
    assert producer.send("old-client", b"value").get(30).offset == 0
    producer.close()


@MECHANISMS
@pytest.mark.usefixtures("users")
async def test_a_wrong_password_is_reported_as_such(broker: BrokerProcess, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(confluent(broker, mechanism, "wrong") | {"error_cb": errors.append, "log_level": 0})
    while not errors:
        await asyncio.to_thread(producer.poll, 0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    with pytest.raises(KafkaPythonError):
        await asyncio.to_thread(
            lambda: KafkaProducer(**of_python(broker, mechanism, "wrong"), bootstrap_timeout_ms=1000)
        )
    other = AIOKafkaProducer(**of_python(broker, mechanism, "wrong"))
    with pytest.raises(AioKafkaError):
        await other.start()
    await other.stop()


@pytest.mark.usefixtures("users")
def test_the_admin_client_lists_and_removes_users(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port_of('PLAINTEXT')}"})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("gone", info, b"x")]).values():
        done.result()
    (found,) = admin.describe_user_scram_credentials(["gone"]).values()
    assert [(one.mechanism, one.iterations) for one in found.result().scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]
    deletion = UserScramCredentialDeletion("gone", ScramMechanism.SCRAM_SHA_256)
    for done in admin.alter_user_scram_credentials([deletion]).values():
        done.result()
    assert "gone" not in admin.describe_user_scram_credentials().result()


@pytest.mark.usefixtures("users")
def test_a_request_with_both_mechanisms_of_a_user_is_refused_and_both_passwords_stay(broker: BrokerProcess) -> None:
    """As in Apache Kafka (`ScramControlManager`): a user is named once in a request, whatever the mechanisms."""
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port_of('PLAINTEXT')}"})
    both = [
        UserScramCredentialUpsertion("bob", ScramCredentialInfo(number, 4096), b"another")
        for number in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    (done,) = admin.alter_user_scram_credentials(both).values()
    with pytest.raises(KafkaException) as refused:
        done.result()
    assert refused.value.args[0].code() == ErrorCode.DUPLICATE_RESOURCE
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        producer = KafkaProducer(**of_python(broker, mechanism))
        assert producer.send(f"stays-{mechanism.lower()}", b"value").get(30).offset == 0
        producer.close()


def test_two_thousand_clients_that_never_log_in_hold_nobody_up(broker: BrokerProcess) -> None:
    """As many as the limit of files leaves room for here, in a process of two ends each."""
    import resource

    most = min(2_000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300)
    with ExitStack() as stack:
        for _ in range(most):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=30))
            stranger.sendall(b"\0\0\0\x20\0")
        producer = KafkaProducer(**of_python(broker, "PLAIN"))
        assert producer.send("among-strangers", b"value").get(30).offset == 0
        producer.close()


def test_a_listener_without_sasl_answers_api_versions_and_no_tokens(broker: BrokerProcess) -> None:
    from ottla.protocol.api.sasl_handshake import SaslHandshakeRequest

    with Wire(int(f"127.0.0.1:{broker.port_of('PLAINTEXT')}".rpartition(":")[2])) as wire:
        assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3).error_code == 0


def test_users_survive_a_restart(tmp_path: Path) -> None:
    given = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with BrokerProcess(tmp_path, given) as first:
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        for done in admin.alter_user_scram_credentials([UserScramCredentialUpsertion("dora", info, b"d")]).values():
            done.result()
    with BrokerProcess(
        tmp_path, {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    ) as second:
        keys = of_python(second, "SCRAM-SHA-512", "d") | {"sasl_plain_username": "dora"}
        producer = KafkaProducer(**keys)
        assert producer.send("t", b"value").get(30).offset == 0
        producer.close()


def token(**claims: Any) -> str:
    return ISSUER.token(time.time(), **claims)


class KafkaPythonTokens(KafkaPythonTokenProvider):
    def __init__(self, value: str) -> None:
        self._value = value

    def token(self) -> str:
        return self._value


class AioKafkaTokens(AioKafkaTokenProvider):
    async def token(self) -> str:
        return token()


def test_confluent_kafka_logs_in_by_token_and_a_wrong_audience_is_refused(broker: BrokerProcess) -> None:
    keys = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    producer = Producer(keys | {"oauth_cb": lambda _: (token(), time.time() + 600)})
    producer.produce("confluent-token", b"value")
    assert producer.flush(30) == 0
    errors: list[KafkaError] = []
    wrong = Producer(
        keys
        | {"oauth_cb": lambda _: (token(aud="other"), time.time() + 600), "error_cb": errors.append, "log_level": 0}
    )
    while not errors:
        wrong.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


def test_kafka_python_logs_in_by_token(broker: BrokerProcess) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=KafkaPythonTokens(token()),
    )
    assert producer.send("kafka-python-token", b"value").get(30).offset == 0
    producer.close()


async def test_aiokafka_logs_in_by_token(broker: BrokerProcess) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AioKafkaTokens(),
    ) as producer:
        assert (await producer.send_and_wait("aiokafka-token", b"value")).offset == 0


def test_librdkafka_logs_in_again_on_its_connection_before_its_session_ends(tmp_path: Path) -> None:
    """Sessions of 2 s; records for 5 s on one connection."""
    with BrokerProcess(
        tmp_path,
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": JAAS,
            "connections.max.reauth.ms": "2000",
        },
    ) as short:
        disconnects: list[KafkaError] = []
        producer = Producer(confluent(short, "PLAIN") | {"error_cb": disconnects.append, "linger.ms": 0})
        ends = time.monotonic() + 5
        sent = 0
        while time.monotonic() < ends:
            producer.produce("t", b"value")
            sent += 1
            assert producer.flush(30) == 0
            time.sleep(0.05)
        assert sent > 20
        assert disconnects == []
        assert "its session has expired" not in short.output
