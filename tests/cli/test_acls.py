"""`ottla acls` against a real broker: what it adds, lists, deletes, and refuses before anything is asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess

from ottla.cli.main import main


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with an authorizer, whose clients are all super users."""
    keys = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with BrokerProcess(tmp_path_factory.mktemp("acls") / "data", keys) as running:
        yield running


@pytest.fixture
def empty(guarded: BrokerProcess) -> BrokerProcess:
    """The same, without ACLs."""
    for row in listed(guarded):
        run(guarded, f"delete --principal {shlex.quote(row['principal'])} --resource-pattern-type any -y")
    return guarded


def run(broker: BrokerProcess, line: str, status: int = 0, answer: str | None = None) -> Result:
    words = ["acls", *shlex.split(line), "--bootstrap-server", broker.bootstrap]
    result = CliRunner().invoke(main, words, input=answer)
    assert result.exit_code == status, result.output
    return result


def listed(broker: BrokerProcess, options: str = "") -> list[dict[str, str]]:
    return [json.loads(line) for line in run(broker, f"list --json {options}").stdout.splitlines()]


def test_acls_are_added_listed_and_deleted_after_a_question(empty: BrokerProcess) -> None:
    said = run(empty, "add --allow-principal User:alice --operation read --operation describe --topic orders").stdout
    assert said == "added: User:alice may READ TOPIC orders\nadded: User:alice may DESCRIBE TOPIC orders\n"
    run(empty, "add --deny-principal User:bob --deny-host 10.0.0.7 -t ord --resource-pattern-type prefixed")
    heading, *rows = run(empty, "list").stdout.splitlines()
    assert heading.split() == ["resource", "name", "pattern", "principal", "host", "operation", "permission"]
    assert [row.split() for row in rows] == [
        ["topic", "ord", "prefixed", "User:bob", "10.0.0.7", "all", "deny"],
        ["topic", "orders", "literal", "User:alice", "*", "describe", "allow"],
        ["topic", "orders", "literal", "User:alice", "*", "read", "allow"],
    ]
    assert [row["name"] for row in listed(empty, "-t orders")] == ["orders", "orders"]
    assert [row["name"] for row in listed(empty, "-t orders --resource-pattern-type match")] == ["ord"] + ["orders"] * 2
    assert [row["name"] for row in listed(empty, "--principal User:bob")] == ["ord"]
    run(empty, "delete -t orders", status=1, answer="n\n")
    unasked = run(empty, "delete -t orders", status=1, answer="").stderr
    assert unasked.endswith(
        "\nottla: nothing is deleted: there is no terminal to ask at; --yes does it without a question\n"
    )
    assert len(listed(empty)) == 3
    assert "deleted: User:alice may READ TOPIC orders" in run(empty, "delete -t orders", answer="y\n").stdout
    assert [row["name"] for row in listed(empty)] == ["ord"]
    assert run(empty, "delete -t orders --force").stderr == "no ACL matches\n"


def test_delete_takes_what_add_took_and_leaves_all_others(empty: BrokerProcess) -> None:
    read = "--allow-principal User:alice --operation read --topic orders"
    run(empty, f"add {read}")
    run(empty, "add --deny-principal User:alice --operation read --topic orders")
    run(empty, "add --allow-principal User:alice --operation write --topic orders")
    run(empty, "add --allow-principal User:alice --allow-host 10.0.0.7 --operation read --topic orders")
    run(empty, f"add {read} --resource-pattern-type prefixed")
    assert run(empty, f"delete {read} -y").stdout == "deleted: User:alice may READ TOPIC orders\n"
    assert {(row["operation"], row["permission"], row["host"], row["pattern"]) for row in listed(empty)} == {
        ("read", "deny", "*", "literal"),
        ("write", "allow", "*", "literal"),
        ("read", "allow", "10.0.0.7", "literal"),
        ("read", "allow", "*", "prefixed"),
    }
    assert run(empty, f"delete {read} -y").stderr == "no ACL matches\n"
    gone = run(empty, "delete --deny-principal User:alice --operation read --topic orders -y").stdout
    assert gone.count("deleted") == 1
    client = "--allow-principal User:app --producer --topic app"
    run(empty, f"add {client}")
    assert run(empty, f"delete {client} -y").stdout.count("deleted") == 3


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--producer -t t", {"topic create", "topic describe", "topic write"}),
        (
            "--producer -t t --transactional-id x",
            {"topic create", "topic describe", "topic write", "transactional-id describe", "transactional-id write"},
        ),
        (
            "--producer --idempotent -t t",
            {"topic create", "topic describe", "topic write", "cluster idempotent-write"},
        ),
        ("--consumer -t t -g g", {"topic describe", "topic read", "group read"}),
        ("--cluster", {"cluster all"}),
        ("--cluster --operation Alter-Configs", {"cluster alter-configs"}),
        ("--user-principal User:x --operation create-tokens", {"user create-tokens"}),
    ],
)
def test_options_stand_for_the_operations_that_kafka_acls_gives(
    empty: BrokerProcess, options: str, expected: set[str]
) -> None:
    run(empty, f"add --allow-principal User:a {options}")
    assert {f"{row['resource']} {row['operation']}" for row in listed(empty)} == expected


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("add -t t", "Give --allow-principal or --deny-principal"),
        ("add --allow-principal User:a", "Name a resource"),
        ("add --allow-principal User:a --deny-host h -t t", "A host needs a principal"),
        ("add --allow-principal User:a --producer -g g", "need --topic"),
        ("add --allow-principal User:a --consumer -t t", "--consumer needs --group"),
        ("add --deny-principal User:a --producer -t t", "only allow"),
        ("add --allow-principal User:a --producer -t t --cluster", "nothing to do with a cluster"),
        ("add --allow-principal User:a --operation create -g g", "create is not an operation of a group"),
        ("delete -y", "all ACLs would be deleted"),
        ("delete -y --operation read --topic orders", "Give --allow-principal or --deny-principal"),
        ("delete -y --allow-principal User:alice --principal User:alice -t orders", "--principal cannot be used with"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_asked(
    guarded: BrokerProcess, line: str, reason: str
) -> None:
    assert reason in run(guarded, line, status=2).stderr.replace("\n", " ")


def test_what_the_broker_refuses_is_one_line(guarded: BrokerProcess, tmp_path: Path) -> None:
    line = run(guarded, "add --allow-principal alice -t t", status=1).stderr
    assert line.startswith("ottla: ")
    assert "no colon is present" in line
    assert line.count("\n") == 1
    with BrokerProcess(tmp_path / "data") as open_to_all:
        assert "no authorizer" in run(open_to_all, "list", status=1).stderr
