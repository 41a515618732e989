"""Standard input, output and error that are closed, full or of another encoding, and arguments that are not UTF-8."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest
from kit.broker import BrokerProcess
from kit.command import COMMANDS

TIMEOUT_S = 60.0


class Ended(NamedTuple):
    status: int
    out: bytes
    err: str


def ottla(*arguments: str | bytes, redirected: str = "", **environment: str) -> Ended:
    """The program as its own process, with redirections in a shell's words."""
    if not redirected and not environment:
        process = COMMANDS.start(["-m", "ottla", *map(os.fsdecode, arguments)], stderr=PIPE)
        out, err = process.communicate(None, TIMEOUT_S)
        assert process.returncode is not None
        return Ended(process.returncode, out, err.decode())
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {redirected}', "sh", sys.executable, "-m", "ottla", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **environment},
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")


@needs_full
@pytest.mark.parametrize("command", ["--version", "--help", "config --effective", "completion bash", "log dump {here}"])
def test_an_output_that_is_full_is_one_line(command: str, tmp_path: Path) -> None:
    tmp_path.joinpath("partition.metadata").write_text("version: 0\n")
    ended = ottla(*shlex.split(command.format(here=tmp_path)), redirected=">/dev/full")
    assert (ended.status, ended.err.count("\n")) == (1, 1), ended.err
    assert ended.err.endswith("No space left on device\n")


@needs_full
def test_a_broker_that_cannot_say_where_it_listens_stops_cleanly_and_says_why(tmp_path: Path) -> None:
    overrides = ["--override", "listeners=PLAINTEXT://127.0.0.1:0", "--override", f"log.dirs={tmp_path / 'data'}"]
    ended = ottla("serve", *overrides, redirected=">/dev/full")
    assert ended.status == 1
    assert ended.err.endswith("cannot start: standard output: No space left on device\n")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


@needs_full
def test_what_a_broker_says_does_not_fit_and_is_one_line(broker: BrokerProcess) -> None:
    assert ottla("topics", "create", "full", "-b", broker.bootstrap).status == 0
    for command in (["ping"], ["topics", "list"], ["configs", "describe"]):
        ended = ottla(*command, "-b", broker.bootstrap, redirected=">/dev/full")
        assert (ended.status, ended.err) == (1, "ottla: standard output: No space left on device\n"), command


ALL_CLOSED = "<&- >&- 2>&-"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&-", "2>&-", ALL_CLOSED])
def test_closed_standard_files_are_as_empty_ones(closed: str, broker: BrokerProcess) -> None:
    """`ping` does without click, `produce` reads; no other command has to do with standard input."""
    for command in (["ping"], ["produce", "closed"], *([["topics", "list"]] if closed == ALL_CLOSED else [])):
        ended = ottla(*command, "-b", broker.bootstrap, redirected=closed)
        assert (ended.status, ended.err) == (0, ""), (command, closed)


def test_what_is_opened_later_does_not_become_standard_error(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom ottla.cli import entry\nentry.mend_standard_files()\n"
        f"opened = os.open({str(tmp_path / 'log')!r}, os.O_RDWR | os.O_CREAT)\nsys.exit(opened)\n"
    )
    command = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", program]
    assert subprocess.run(command, timeout=TIMEOUT_S, check=False).returncode > 2


def test_what_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "€ü").write_text("")
    shown = ottla("log", "dump", str(tmp_path), PYTHONIOENCODING="latin-1")
    assert (shown.status, shown.err) == (0, "")
    assert b"/\\u20ac\xfc " in shown.out


def test_a_file_whose_name_is_not_utf8_is_shown_as_it_is(tmp_path: Path) -> None:
    place = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(place)
    Path(os.fsdecode(place), "a").write_text("")
    shown = ottla("log", "dump", place)
    assert (shown.status, shown.err) == (0, "")
    assert place + b"/a " in shown.out


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create", b"b\xff"],
        ["groups", "describe", b"b\xff"],
        ["configs", "alter", "--topic", "t", "--set", b"retention.ms=b\xff"],
        ["produce", "t", "-H", b"b\xff"],
        ["consume", b"b\xff"],
        ["ping", "-b", b"b\xff"],
    ],
)
def test_an_argument_that_is_not_utf8_is_one_line(command: list[str | bytes]) -> None:
    ended = ottla(*command)
    assert (ended.status, ended.out) == (2, b"")
    assert ended.err.startswith("ottla: an argument is not UTF-8: b'")
    assert ended.err.count("\n") == 1


def test_an_argument_is_utf8_whatever_the_locale(broker: BrokerProcess) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ended = ottla("groups", "describe", "grüß", "-b", broker.bootstrap, **plain)
    assert ended.status == 1
    assert ended.err in ("ottla: there is no group grüß\n", "ottla: there is no group gr\\xfc\\xdf\n")


def test_a_name_that_no_request_can_hold_is_one_line(broker: BrokerProcess) -> None:
    ended = ottla("groups", "describe", "g" * 40_000, "-b", broker.bootstrap)
    assert (ended.status, ended.err.count("\n")) == (1, 1), ended.err
