"""The bundled client, asyncio and blocking, and the commands at TLS listeners of our own broker, by all that names a
client: a certificate, SCRAM, a token. One broker, whose rights tell whom it takes a client for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import javaproperties
import pytest
from kit.broker import BrokerProcess
from kit.certificates import Certificates, certificates
from kit.command import Said, run
from kit.tokens import AUDIENCE, Issuer

import ottla
from ottla.client import Admin, AuthenticationFailed, Consumer, KafkaError, Producer
from ottla.config.sources import COMMAND_VARIABLES

TIMEOUT_S = 30
ISSUER = Issuer()
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
WAYS = pytest.mark.parametrize("way", ["certificate", "SCRAM-SHA-512", "OAUTHBEARER"])
Options = dict[str, str]


class Clients:
    """Options of clients at one broker, under Kafka's names."""

    def __init__(self, broker: BrokerProcess, pki: Certificates, folder: Path) -> None:
        self.broker = broker
        self.pki = pki
        self._folder = folder
        self.ssl = f"localhost:{broker.port}"
        self.sasl_ssl = f"localhost:{broker.port_of('SASL_SSL')}"

    def nobody(self) -> Options:
        """TLS alone: the broker is known, the client is not."""
        return {
            "bootstrap.servers": self.ssl,
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.pki.ca),
        }

    def of(self, way: str, user: str) -> Options:
        """As one who shows what this way asks for."""
        if way == "certificate":
            return {**self.nobody(), "ssl.keystore.location": str(self.pki.client(user).store)}
        login = {**self.nobody(), "bootstrap.servers": self.sasl_ssl, "security.protocol": "SASL_SSL"}
        if way == "OAUTHBEARER":
            return {**login, "sasl.mechanism": way, "sasl.oauthbearer.token.endpoint.url": self.token(user).as_uri()}
        entry = f'{SCRAM} required username="{user}" password="of {user}";'
        return {**login, "sasl.mechanism": way, "sasl.jaas.config": entry}

    def token(self, user: str, audience: str = AUDIENCE) -> Path:
        """A file with a token, as something beside the client writes it."""
        path = self._folder / f"{user}-{audience}.jwt"
        path.write_text(ISSUER.token(time.time(), sub=user, aud=audience) + "\n")
        return path


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    pki = certificates()
    folder = tmp_path_factory.mktemp("clients")
    jwks = folder / "jwks.json"
    jwks.write_bytes(ISSUER.jwks)
    overrides = {
        "listeners": "SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        **pki.server_overrides(),
        "listener.name.ssl.ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=clients,.*$/$1/, DEFAULT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ottla.add.scram": " ".join(f'SCRAM-SHA-512=[name={user},password="of {user}"]' for user in ("alice", "bob")),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides) as running:
        yield Clients(running, pki, folder)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in COMMAND_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


# -- the client -------------------------------------------------------------------------------------------------------


@WAYS
async def test_the_client_writes_and_reads_as_the_user_that_it_shows(clients: Clients, way: str) -> None:
    topic = f"asyncio-{way}"
    options = clients.of(way, "alice")
    values = [b"small", *(bytes([number]) * 300_000 for number in range(5))]  # many records of TLS
    async with Producer(options) as producer:
        for value in values:
            await producer.send(topic, value)
    async with Consumer(options, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        read: list[bytes | None] = []
        while len(read) < len(values):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                read += [record.value for record in records]
        await consumer.commit()
    assert read == values
    async with Admin(clients.of(way, "bob")) as admin:
        assert await admin.list_topics() == []  # he may see none
        with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            await admin.create_topic("of-bob")


@WAYS
def test_the_blocking_client_is_the_same_user(clients: Clients, way: str) -> None:
    topic = f"blocking-{way}"
    with ottla.Producer(clients.of(way, "alice")) as producer:
        assert producer.send(topic, b"x" * 100_000).result().offset == 0
    with ottla.Admin(clients.of(way, "bob")) as admin:
        assert topic not in admin.list_topics()
    with ottla.Admin(clients.of(way, "alice")) as admin:
        assert topic in admin.list_topics()


async def test_a_client_that_shows_nothing_is_nobody(clients: Clients) -> None:
    async with Admin(clients.nobody()) as admin:
        assert await admin.list_topics() == []


@pytest.mark.parametrize(
    ("way", "changed", "said"),
    [
        (
            "SCRAM-SHA-512",
            {"sasl.jaas.config": f'{SCRAM} required username="alice" password="no";'},
            "user 'alice' failed: ",
        ),
        ("SCRAM-SHA-512", {"sasl.mechanism": "SCRAM-SHA-256"}, "does not have this mechanism"),
        ("SCRAM-SHA-512", {"ssl.truststore.location": "other"}, "not of an authority that this client trusts"),
        (
            "OAUTHBEARER",
            {"sasl.oauthbearer.token.endpoint.url": "other"},
            "the OAUTHBEARER login failed: .*invalid_token",
        ),
        ("certificate", {"ssl.keystore.location": "other"}, "does not accept this client's certificate"),
    ],
    ids=["password", "mechanism", "authority of the broker", "audience of the token", "authority of the client"],
)
async def test_what_does_not_hold_is_refused_at_once(clients: Clients, way: str, changed: Options, said: str) -> None:
    others = {
        "ssl.truststore.location": str(clients.pki.foreign_client().chain),
        "ssl.keystore.location": str(clients.pki.foreign_client().store),
        "sasl.oauthbearer.token.endpoint.url": clients.token("alice", audience="another-service").as_uri(),
    }
    changed = {key: others[key] if value == "other" else value for key, value in changed.items()}
    with pytest.raises(AuthenticationFailed, match=said):
        await Admin(clients.of(way, "alice") | changed).start()


# -- the commands -----------------------------------------------------------------------------------------------------


def command(options: Options, tmp_path: Path, *words: str) -> Said:
    file = tmp_path / "client.properties"
    pairs = {key: value for key, value in options.items() if key != "bootstrap.servers"}
    file.write_text("".join(f"{javaproperties.join_key_value(key, value)}\n" for key, value in pairs.items()))
    return run(*words, "-b", options["bootstrap.servers"], "--command-config", file)


@WAYS
def test_a_command_is_the_user_of_its_file(clients: Clients, tmp_path: Path, way: str) -> None:
    topic = f"command-{way}"
    said = command(clients.of(way, "alice"), tmp_path, "topics", "create", topic)
    assert (said.status, said.err) == (0, "")
    said = command(clients.of(way, "alice"), tmp_path, "topics", "list", "--json")
    assert topic in [json.loads(line)["topic"] for line in said.out.splitlines()]
    said = command(clients.of(way, "bob"), tmp_path, "topics", "create", "of-bob")
    assert said.status == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in said.line
    assert command(clients.of(way, "bob"), tmp_path, "ping").status == 0
