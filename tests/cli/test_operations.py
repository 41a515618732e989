"""`log roll` and `log retain` on a broker that runs."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import run

from ottla.address import parse_server
from ottla.cli.log_operations import DEFAULT_HTTP
from ottla.cli.main import main
from ottla.config.broker import BrokerConfig
from ottla.storage.files.clock import SystemClock
from ottla.storage.files.clock_trust import KnownTime
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.clock_checkpoint import write_known_time


class Served(NamedTuple):
    broker: BrokerProcess
    http: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker with its HTTP port, which is read from what it prints."""
    overrides = {"ottla.http.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("served"), overrides=overrides) as broker:
        found = re.search(r"health and metrics at http://(\S+) ", broker.output)
        assert found is not None
        yield Served(broker, found[1])


def fill(served: Served, topic: str) -> None:
    bootstrap = served.broker.bootstrap
    run("topics", "create", topic, "-c", "retention.ms=1", "-b", bootstrap)
    result = CliRunner().invoke(main, ["produce", topic, "-b", bootstrap], input="a\nb\nc\n")
    assert result.exit_code == 0


def test_what_is_rolled_can_be_retained_at_once(served: Served, topic: str) -> None:
    fill(served, topic)
    assert run("log", "roll", f"{topic}-0", "--http", served.http).out == (
        f"{topic}-0: a new segment begins at offset 3\n"
    )
    again = run("log", "roll", f"{topic}-0", "--http", served.http).out
    assert again == f"{topic}-0: the active segment, at offset 3, holds nothing to roll\n"
    lines = run("log", "retain", topic, "--http", served.http).out.splitlines()
    assert re.fullmatch(rf"{topic}-0: 1 segment deleted \(\d+ bytes\), the log starts at 3", lines[0])
    assert lines[1] == "1 segment deleted, in 1 partition"
    (row,) = map(json.loads, run("log", "retain", topic, "--json", "--http", served.http).out.splitlines())
    assert (row["deleted_segments"], row["log_start_offset"]) == ([], 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["roll", "nothing-0"], "ottla: there is no partition nothing-0"),
        (["retain", "nothing"], "ottla: there is no topic nothing"),
    ],
)
def test_what_is_not_there_is_one_line(served: Served, arguments: list[str], words: str) -> None:
    said = run("log", *arguments, "--http", served.http)
    assert (said.status, said.line) == (1, words)


def test_a_broker_without_its_http_port_is_one_line(served: Served, tmp_path: Path) -> None:
    said = run("log", "roll", "orders-0", "--http", "127.0.0.1:1")
    assert said.line == (
        "ottla: nothing accepts connections at 127.0.0.1:1; the broker's address is its ottla.http.listener (--http). "
        "Is it running? ottla serve"
    )
    said = run("log", "retain", "--http", served.broker.bootstrap)
    assert said.status == 1
    assert said.line == (
        f"ottla: {served.broker.bootstrap}: what listens there speaks no HTTP; "
        "the broker's address is its ottla.http.listener (--http)"
    )
    assert run("log", "retain", "--http", f"http://{served.http}/").status == 0  # as the broker logs it
    assert run("log", "roll", "orders", "--http", served.http).status == 2
    assert run("log", "retain", "--http", "nonsense:x").status == 2


def test_an_http_port_that_never_answers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.cli.log_operations.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = CliRunner().invoke(main, ["log", "roll", "orders-0", "--http", address])
    assert (said.exit_code, said.stderr) == (1, f"ottla: {address}: no answer within 0.2 s\n")


def test_a_topic_is_compacted_on_demand_and_says_what_became_of_it(served: Served, topic: str) -> None:
    bootstrap = served.broker.bootstrap
    run("topics", "create", topic, "-c", "cleanup.policy=compact", "-b", bootstrap)
    lines = "".join(f"key{number % 3}\tvalue {number}\n" for number in range(50))
    result = CliRunner().invoke(main, ["produce", topic, "--key-separator", "\t", "-b", bootstrap], input=lines)
    assert result.exit_code == 0, result.output
    assert "nothing to clean" in run("log", "clean", topic, "--http", served.http).out
    run("log", "roll", f"{topic}-0", "--http", served.http)
    reported = run("log", "explain", f"{topic}-0", "--retention", "--compaction", "--http", served.http).out
    assert "compaction: dirty" in reported
    assert "retention:  kept: cleanup.policy does not say delete" in reported
    out = run("log", "clean", topic, "--http", served.http).out
    assert re.fullmatch(rf"{topic}-0: clean up to offset 50, 47 records removed, .* became .*\n", out)
    said = run("consume", topic, "-B", "-e", "--format", "%o %k=%s\n", "-b", bootstrap).out.splitlines()
    assert said == ["47 key2=value 47", "48 key0=value 48", "49 key1=value 49"]
    (row,) = map(json.loads, run("log", "clean", topic, "--json", "--http", served.http).out.splitlines())
    assert row["state"] == "done"
    reported = run("log", "explain", f"{topic}-0", "--compaction", "--json", "--http", served.http).out
    assert json.loads(reported)["segments"][0]["compaction"].startswith("clean")


def test_a_topic_that_is_not_compacted_is_not_cleaned(served: Served, topic: str) -> None:
    run("topics", "create", topic, "-b", served.broker.bootstrap)
    said = run("log", "clean", topic, "--http", served.http)
    assert (said.status, said.line) == (1, f"ottla: {topic} is not compacted: its cleanup.policy is delete")


def test_the_clock_is_trusted_by_a_command(tmp_path: Path) -> None:
    """A real broker, on a directory of another boot of the machine that knew a time 30 days ago."""
    data = tmp_path / "data"
    data.mkdir()
    month_ago_ms = SystemClock().wall_ms() - SystemClock().boot_ms() - 30 * 86_400_000
    write_known_time(OsFiles(), data, KnownTime(month_ago_ms, 5, "another boot"))
    with BrokerProcess(data, overrides={"ottla.http.listener": "127.0.0.1:0"}) as broker:
        found = re.search(r"health and metrics at http://(\S+) ", broker.output)
        assert found is not None
        (line,) = [line for line in broker.output.splitlines() if "`ottla log trust-clock`" in line]
        assert " ERROR " in line
        assert "30.0 days ahead" in line
        said = run("log", "trust-clock", "--http", found[1]).out
        assert re.fullmatch(r"20\S+Z is trusted now, 30\.0 days ahead of what the broker knew\n", said)
        again = json.loads(run("log", "trust-clock", "--json", "--http", found[1]).out)
        assert (again["was_suspect"], again["jump_ms"]) == (False, 0)
        assert "was trusted already" in run("log", "trust-clock", "--http", found[1]).out


def test_the_port_that_is_asked_is_where_a_broker_listens_by_default() -> None:
    assert BrokerConfig.load(environ={}).ottla_http_listener == parse_server(DEFAULT_HTTP)
