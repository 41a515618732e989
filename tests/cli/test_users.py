"""`ottla users` and `--add-scram` against real brokers: who may log in by what, and where passwords come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kafka import KafkaProducer
from kit.broker import BrokerProcess

from ottla.cli.main import main


def run(broker: BrokerProcess, *arguments: str, status: int = 0, given: str | None = None) -> Result:
    result = CliRunner().invoke(main, [*arguments, "--bootstrap-server", broker.bootstrap], input=given)
    assert result.exit_code == status, result.output
    return result


def listed(broker: BrokerProcess, user: str) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in run(broker, "users", "list", "--json").stdout.splitlines()]
    return [credential for row in rows if row["user"] == user for credential in row["credentials"]]


def test_a_user_is_added_listed_and_deleted(broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\nnot this\n")
    out = run(broker, "users", "add", "anna", "--password-file", str(file), "--iterations", "8192").stdout
    assert out == "anna: SCRAM-SHA-256, SCRAM-SHA-512 set\n"
    assert listed(broker, "anna") == [
        {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
        {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
    ]
    assert "anna" in run(broker, "users", "list", "-q").stdout.split()
    out = run(broker, "users", "delete", "anna", "--mechanism", "scram-sha-256").stdout
    assert out == "anna: SCRAM-SHA-256 deleted\n"
    assert len(listed(broker, "anna")) == 1
    run(broker, "users", "delete", "anna")
    assert listed(broker, "anna") == []
    assert "there is no SCRAM credential of anna" in run(broker, "users", "delete", "anna", status=1).output


def test_a_deletion_that_names_somebody_unknown_deletes_nobody(broker: BrokerProcess) -> None:
    run(broker, "users", "add", "kept", given="secret\n")
    assert "of nobody" in run(broker, "users", "delete", "kept", "nobody", status=1).output
    assert len(listed(broker, "kept")) == 2
    run(broker, "users", "delete", "kept")


@pytest.mark.parametrize(
    ("given", "reason"),
    [("", "is empty"), ("\n", "is empty"), ("x" * 4097, "longer than 4096")],
    ids=["nothing", "an empty line", "too long"],
)
def test_a_password_that_is_none_is_refused(broker: BrokerProcess, given: str, reason: str) -> None:
    refused = run(broker, "users", "add", "u", status=1, given=given)
    assert reason in refused.output
    assert listed(broker, "u") == []


def test_a_name_that_no_client_can_send_is_refused(broker: BrokerProcess) -> None:
    refused = run(broker, "users", "add", "zo\u00eb", status=1, given="secret")
    assert (
        refused.stderr
        == "ottla: zo\u00eb: no client could log in, SCRAM's messages have names of ASCII characters only\n"
    )


def test_there_is_no_option_for_a_password(broker: BrokerProcess) -> None:
    run(broker, "users", "add", "u", "--password", "secret", status=2)


def test_a_new_directory_begins_with_the_users_that_are_named_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    keys = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    users = 'SCRAM-SHA-256=[name=alice,password=first] SCRAM-SHA-512=[name="bob",password="second",iterations=8192]'

    def log_in(broker: BrokerProcess, mechanism: str, user: str, password: str) -> None:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        assert producer.send("t", b"value").get(30).partition == 0
        producer.close()

    with BrokerProcess(tmp_path, keys | {"ottla.add.scram": users}) as first:
        log_in(first, "SCRAM-SHA-256", "alice", "first")
        log_in(first, "SCRAM-SHA-512", "bob", "second")
        assert "user bob begins with a credential of SCRAM-SHA-512" in first.output
        assert "second" not in first.output
    with BrokerProcess(tmp_path, keys | {"ottla.add.scram": users.replace("first", "other")}) as second:
        log_in(second, "SCRAM-SHA-256", "alice", "first")
        assert "begins with" not in second.output
