"""`consume --format`: kcat's placeholders, judged by kcat."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import run

from ottla.cli.main import main
from ottla.cli.record_format import compile_format
from ottla.client import ConsumerRecord

TIMEOUT_S = 60.0
EVERYTHING = r"%t|%p|%o|%T|%k|%K|%s|%S|%h|\t\x41\\" + r"\n"


def consumed(broker: BrokerProcess, topic: str, template: str) -> bytes:
    arguments = ["consume", topic, "-B", "-e", "-b", broker.bootstrap, "--format", template]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    for header, lines in (("a=1", "ada:1815\n:none\n"), ("b=2", "ü:\n")):
        arguments = ["produce", topic, "-k", ":", "-H", header, "-b", broker.bootstrap]
        assert CliRunner().invoke(main, arguments, input=lines).exit_code == 0
    assert CliRunner().invoke(main, ["produce", topic, "-b", broker.bootstrap], input="no key\n").exit_code == 0
    return topic


def test_each_placeholder_writes_its_field(broker: BrokerProcess, filled: str) -> None:
    lines = consumed(broker, filled, r"%t %p %o %k %K %s %S %h %%\n").splitlines()
    assert lines[0] == f"{filled} 0 0 ada 3 1815 4 a=1 %".encode()
    assert lines[1] == f"{filled} 0 1  0 none 4 a=1 %".encode()
    assert lines[2] == f"{filled} 0 2 ü 2  0 b=2 %".encode()
    assert lines[3] == f"{filled} 0 3  -1 no key 6  %".encode()


def test_nothing_is_added_and_lengths_may_be_binary(broker: BrokerProcess, filled: str) -> None:
    data = consumed(broker, filled, "%R%s")
    assert data == b"\0\0\0\x041815\0\0\0\x04none\0\0\0\0\0\0\0\x06no key"


@pytest.mark.kcat
def test_kcat_writes_the_same(broker: BrokerProcess, filled: str) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    command = [kcat, "-b", broker.bootstrap, "-C", "-t", filled, "-o", "beginning", "-e", "-q", "-f", EVERYTHING]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
    assert consumed(broker, filled, EVERYTHING) == done.stdout


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("%q", "there is no placeholder %q"),
        ("100%", "there is no placeholder %;"),
        (r"\q", r"there is no escape \q"),
        ("\\", "there is no escape \\;"),
        (r"\x4", r"there is no escape \x"),
    ],
)
def test_what_is_no_placeholder_is_refused_before_anything_is_read(template: str, words: str) -> None:
    said = run("consume", "orders", "--format", template, "-b", "127.0.0.1:1")
    assert said.status == 2
    assert words in " ".join(said.err.split())


@pytest.mark.parametrize("option", ["--json", "--keys", "--verbose"])
def test_a_format_goes_without_the_options_that_say_the_same(option: str) -> None:
    assert run("consume", "orders", "--format", "%s", option, "-b", "127.0.0.1:1").status == 2


def test_a_terminal_is_not_controlled_by_what_is_in_a_record() -> None:
    record = ConsumerRecord(
        topic="t", partition=0, offset=0, timestamp_ms=0, key=b"\x1b[31m", value=b"\x07", headers=(("\x1b", b"\x1b"),)
    )
    write = compile_format(r"%k %s %h %D\n", for_terminal=True)
    assert write(record) == b"\\x1b[31m \\x07 \\x1b=\\x1b 1970-01-01 00:00:00.000Z\n"
