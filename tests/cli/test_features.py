"""`features` against a real broker: what it shows, changes and refuses; and what a start says that it mends."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kit.broker import BrokerProcess

from ottla.cli.main import main


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose features no other test needs."""
    with BrokerProcess(tmp_path_factory.mktemp("features") / "data") as running:
        yield running


def run(broker: BrokerProcess, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(main, ["features", *arguments, "--bootstrap-server", broker.bootstrap])
    assert result.exit_code == status, result.output
    return result


def level(broker: BrokerProcess, name: str) -> int | None:
    rows = {one["feature"]: one for one in map(json.loads, run(broker, "list", "--json").stdout.splitlines())}
    found: int | None = rows[name]["level"]
    return found


def test_features_are_listed_with_their_levels(own: BrokerProcess) -> None:
    heading, *rows = run(own, "list").stdout.splitlines()
    assert heading.split() == ["feature", "level", "least", "highest"]
    assert [row.split() for row in rows if row.startswith("transaction")] == [["transaction.version", "2", "0", "2"]]


def test_a_level_goes_down_and_up_again(own: BrokerProcess) -> None:
    assert run(own, "downgrade", "transaction.version", "1").stdout == "transaction.version is 1\n"
    assert level(own, "transaction.version") == 1
    said = run(own, "upgrade", "transaction.version", "2", "--dry-run").stdout
    assert said == "transaction.version can be 2 (not done, only checked)\n"
    assert level(own, "transaction.version") == 1
    assert run(own, "upgrade", "transaction.version", "2").stdout == "transaction.version is 2\n"
    assert level(own, "transaction.version") == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("upgrade transaction.version 3", "only supports versions 0-2"),
        ("upgrade no.such.feature 1", "ottla: there is no feature 'no.such.feature'; there are group.version, "),
        (
            "downgrade share.versio 1",
            "no feature 'share.versio': did you mean share.version? There are group.version, ",
        ),
        (
            "upgrade transaction.version 1",
            "is 2, which is higher than 1: `ottla features downgrade transaction.version 1`",
        ),
        ("upgrade transaction.version 9", "ottla: Invalid update version 9 for feature transaction.version. "),
        ("downgrade metadata.version 20", "might delete metadata information"),
        ("downgrade metadata.version 20 --unsafe", "Unsafe metadata downgrade is not supported"),
    ],
)
def test_what_the_broker_refuses_is_one_line_and_changes_nothing(own: BrokerProcess, words: str, reason: str) -> None:
    before = run(own, "list").stdout
    said = run(own, *shlex.split(words), status=1)
    assert reason in said.stderr
    assert said.stderr.count("\n") == 1
    assert run(own, "list").stdout == before


@pytest.mark.parametrize(
    "words", ["upgrade transaction.version two", "upgrade transaction.version 40000", "upgrade", "upgrade '' 1"]
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(own: BrokerProcess, words: str) -> None:
    run(own, *shlex.split(words), status=2)


def test_a_start_names_the_command_that_raises_the_level(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as first:
        run(first, "downgrade", "transaction.version", "0")
        assert level(first, "transaction.version") in (0, None)
    with BrokerProcess(tmp_path / "data") as second:
        (line,) = [one for one in second.output.splitlines() if "transaction.version is 0" in one]
        named = re.search(r"`ottla (features upgrade [^`]+)`", line)
        assert named is not None
        words = named[1].replace("HOST:PORT", second.bootstrap).split()
        assert CliRunner().invoke(main, words).exit_code == 0
        assert level(second, "transaction.version") == 2
    with BrokerProcess(tmp_path / "data") as third:
        assert "transaction.version is" not in third.output
