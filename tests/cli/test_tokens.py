"""`ottla tokens` against a real broker with SASL: a token is created, shown once, used, renewed and ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess

from ottla.cli.main import main

MODULES = "org.apache.kafka.common.security."
USERS = f'{MODULES}plain.PlainLoginModule required user_alice="a" user_bob="b";'


class Clients:
    """A broker, and a properties file for each user."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.broker = broker
        self._folder = folder
        for user in ("alice", "bob"):
            self.add(user, "PLAIN", f'{MODULES}plain.PlainLoginModule required username="{user}" password="{user[0]}";')

    def add(self, name: str, mechanism: str, jaas: str) -> None:
        lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}", f"sasl.jaas.config={jaas}"]
        (self._folder / f"{name}.properties").write_text("\n".join(lines) + "\n")

    def run(self, user: str, *words: str, status: int = 0) -> Result:
        config = str(self._folder / f"{user}.properties")
        server = ["--bootstrap-server", self.broker.bootstrap, "--command-config", config]
        result = CliRunner().invoke(main, [*words, *server])
        assert result.exit_code == status, result.output
        return result

    def tokens(self, user: str, *words: str) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.run(user, "tokens", "list", "--json", *words).stdout.splitlines()]


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[Clients]:
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
        "delegation.token.secret.key": "a key",
    }
    with BrokerProcess(tmp_path / "data", keys) as running:
        yield Clients(running, tmp_path)


def test_a_token_is_created_used_renewed_and_ended(clients: Clients) -> None:
    made = json.loads(clients.run("alice", "tokens", "create", "--renewer", "User:bob", "--json").stdout)
    token = str(made["token"])
    jaas = (
        f'{MODULES}scram.ScramLoginModule required username="{token}" password="{made["password"]}" tokenauth="true";'
    )
    clients.add("holder", "SCRAM-SHA-256", jaas)
    clients.run("holder", "topics", "list")
    refused = clients.run("holder", "tokens", "create", status=1).output
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in refused
    (listed,) = clients.tokens("bob")
    assert (listed["owner"], listed["renewers"], "password" in listed) == ("User:alice", ["User:bob"], False)
    assert f"{token}: expires 20" in clients.run("bob", "tokens", "renew", token, "--period-ms", "60000").stdout
    assert clients.tokens("alice")[0]["expires_ms"] != made["expires_ms"]
    assert token in clients.run("alice", "tokens", "list").stdout
    assert clients.run("alice", "tokens", "expire", token).stdout == f"{token}: ended\n"
    assert clients.tokens("alice") == []
    assert "there is no delegation token" in clients.run("alice", "tokens", "renew", token, status=1).output


def test_a_secret_is_shown_with_its_name_to_people_too_and_a_bad_principal_is_one_line(clients: Clients) -> None:
    result = clients.run("alice", "tokens", "create")
    name, password = result.stdout.splitlines()
    assert name.startswith("username: ")
    assert len(password) == len("password: ") + 88
    assert "must be a principal" in clients.run("alice", "tokens", "create", "--owner", "bob", status=2).output
    assert clients.tokens("alice", "--owner", "User:bob") == []
