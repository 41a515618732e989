"""Logging in by SASL over TLS (SASL_SSL), with clients that are not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer
from kit.broker import BrokerProcess
from kit.certificates import Certificates, certificates

TIMEOUT_S = 30
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a secret";'
USERS = {"PLAIN": ("alice", "a secret"), "SCRAM-SHA-256": ("bob", "b"), "SCRAM-SHA-512": ("bob", "b")}
MECHANISMS = pytest.mark.parametrize("mechanism", USERS)


@pytest.fixture(scope="module")
def pki() -> Certificates:
    return certificates()


@pytest.fixture(scope="module")
def broker(pki: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path_factory.mktemp("sasl-tls"),
        {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "sasl.enabled.mechanisms": ",".join(USERS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": JAAS,
            "ottla.add.scram": "SCRAM-SHA-256=[name=bob,password=b] SCRAM-SHA-512=[name=bob,password=b]",
            **pki.server_overrides(),
        },
    ) as running:
        yield running


@MECHANISMS
def test_librdkafka_writes(broker: BrokerProcess, pki: Certificates, mechanism: str) -> None:
    name, password = USERS[mechanism]
    producer = Producer(
        {
            "bootstrap.servers": f"localhost:{broker.port}",
            "broker.address.family": "v4",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(pki.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password,
        }
    )
    producer.produce("librdkafka", b"value" * 100_000)
    assert producer.flush(TIMEOUT_S) == 0


@MECHANISMS
def test_kafka_python_writes(broker: BrokerProcess, pki: Certificates, mechanism: str) -> None:
    name, password = USERS[mechanism]
    producer = KafkaProducer(
        bootstrap_servers=f"localhost:{broker.port}",
        security_protocol="SASL_SSL",
        ssl_cafile=str(pki.ca),
        sasl_mechanism=mechanism,
        sasl_plain_username=name,
        sasl_plain_password=password,
    )
    assert producer.send("kafka-python", b"value").get(TIMEOUT_S).partition == 0
    producer.close()


@MECHANISMS
async def test_aiokafka_writes(broker: BrokerProcess, pki: Certificates, mechanism: str) -> None:
    name, password = USERS[mechanism]
    async with AIOKafkaProducer(
        bootstrap_servers=f"localhost:{broker.port}",
        security_protocol="SASL_SSL",
        ssl_context=pki.client_context(),
        sasl_mechanism=mechanism,
        sasl_plain_username=name,
        sasl_plain_password=password,
    ) as producer:
        await asyncio.wait_for(producer.send_and_wait("aiokafka", b"value"), TIMEOUT_S)
