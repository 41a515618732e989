"""No command just hangs: within 10 s each ends, or says on standard error what it waits for and since when."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE

import click
import pytest
from kit.broker import BrokerProcess
from kit.command import COMMANDS, run
from kit.forks import Process

from ottla.cli import progress
from ottla.cli.main import main
from ottla.cli.progress import Bar
from ottla.cli.waiting import SPEAKS_AFTER_S, SPEAKS_AGAIN_AFTER_S, Waiting

DEADLINE_S = 60
SOON = """
import sys
from ottla.cli import waiting
waiting.SPEAKS_AFTER_S = waiting.SPEAKS_AGAIN_AFTER_S = 0.2
from ottla.cli.main import main
main(sys.argv[1:])
"""
"""The command line that speaks sooner, so that the test is short."""
SLOW = """
from ottla.storage.files.files import OsFiles
for name in ("open", "list_directory", "list_subdirectories", "is_directory", "size"):
    setattr(OsFiles, name, lambda *_: sys.stdin.read())
"""
"""A disk that does not answer."""
TIME = r"since \d\d:\d\d:\d\d \(\d+ s\)"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture(scope="module")
def without_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that cannot make `__consumer_offsets`, and has a topic."""
    overrides = {"offsets.topic.num.partitions": "3", "ottla.max.partitions": "2"}
    with BrokerProcess(tmp_path_factory.mktemp("data"), overrides) as broker:
        assert run("topics", "create", "t", "-b", broker.bootstrap).status == 0
        yield broker


@contextlib.contextmanager
def running(*arguments: str, program: str = SOON) -> Iterator[Process]:
    process = COMMANDS.start(["-c", program, *arguments], stdin=PIPE, stdout=DEVNULL, stderr=PIPE)
    ended = threading.Timer(DEADLINE_S, process.kill)
    ended.start()
    try:
        yield process
    finally:
        ended.cancel()
        process.kill()
        process.communicate()


def first_line(process: Process, words: str) -> str:
    assert process.stderr is not None
    lines = []
    for each in process.stderr:
        lines.append(line := each.decode())
        if re.search(words, line):
            return line
    raise AssertionError(f"it ended, or was ended, without saying {words!r}: {lines}")


def test_it_speaks_within_ten_seconds_and_is_silent_for_no_longer() -> None:
    assert SPEAKS_AFTER_S <= 10
    assert SPEAKS_AGAIN_AFTER_S <= 10


ASKING = [
    ("topics", "list"),
    ("topics", "describe", "t"),
    ("topics", "create", "t"),
    ("topics", "alter", "t", "--partitions", "3"),
    ("topics", "delete", "t"),
    ("topics", "delete-records", "t", "--before", "latest"),
    ("groups", "list"),
    ("groups", "describe", "g"),
    ("groups", "why", "g"),
    ("groups", "kick", "g", "--all"),
    ("groups", "reset", "g", "--all-topics", "--to-earliest"),
    ("groups", "delete", "g"),
    ("transactions", "list"),
    ("transactions", "describe", "tx"),
    ("transactions", "abort", "tx"),
    ("transactions", "find-hanging"),
    ("tokens", "list"),
    ("tokens", "create"),
    ("tokens", "renew", "t"),
    ("tokens", "expire", "t"),
    ("users", "list"),
    ("users", "add", "u", "--password-file", __file__),
    ("users", "delete", "u"),
    ("acls", "list"),
    ("acls", "add", "--allow-principal", "User:a", "--operation", "read", "--topic", "t"),
    ("acls", "delete", "--topic", "t", "--yes"),
    ("quotas", "list"),
    ("quotas", "describe", "--user", "u"),
    ("quotas", "alter", "--user", "u", "--set", "consumer_byte_rate=1"),
    ("features", "list"),
    ("features", "upgrade", "transaction.version", "2"),
    ("features", "downgrade", "transaction.version", "1"),
    ("configs", "describe", "--broker", "1"),
    ("configs", "alter", "-t", "t", "--set", "retention.ms=1"),
    ("produce", "t"),
    ("consume", "t"),
    ("consume", "t", "-g", "g"),
    ("log", "dirs"),
    ("log", "roll", "t-0"),
    ("log", "retain"),
    ("log", "clean", "t"),
    ("log", "trust-clock"),
    ("ping", "--timeout-ms", "6000"),
]
"""Every command that asks a broker, with what it needs."""
LOCAL = {"serve", "run", "config", "completion", "log dump", "log explain", "log verify", "log strays", "tls make"}
"""Commands that ask no broker, or one of their own."""
IN_A_PAGE = {"console", "registry"}
"""What they wait for is in their answers: in the page, and in error 50001."""


def test_every_command_is_among_them_or_asks_nobody() -> None:
    names = set()
    for name in main.list_commands(context := click.Context(main)):
        command = main.get_command(context, name)
        members = command.list_commands(click.Context(command)) if isinstance(command, click.Group) else [""]
        names |= {f"{name} {member}".strip() for member in members}
    assert {" ".join(one[:2]) if " ".join(one[:2]) in names else one[0] for one in ASKING} == names - LOCAL - IN_A_PAGE


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_a_server_that_says_nothing_is_named(arguments: tuple[str, ...], silent: str) -> None:
    option = "--http" if arguments[0] == "log" and arguments[1] != "dirs" else "-b"
    with running(*arguments, option, silent) as process:
        line = first_line(process, "waiting")
    assert re.fullmatch(rf"ottla: waiting for an answer of {silent} {TIME}\n", line)


def test_consume_in_a_group_that_nobody_coordinates_says_why(without_groups: BrokerProcess) -> None:
    with running("consume", "t", "-g", "g", "-b", without_groups.bootstrap) as process:
        line = first_line(process, r"\): .")
    assert re.match(rf"ottla: waiting for a place in the group g {TIME}: group g: .*ottla.max.partitions is 2", line)


def test_why_of_a_group_that_nobody_coordinates_is_a_finding(
    without_groups: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.groups.WHY_TIMEOUT_MS", 2_000)
    said = run("groups", "why", "g", "-b", without_groups.bootstrap)
    assert said.status == 0
    (line,) = said.out.splitlines()
    assert re.match(r"! no broker coordinates it: group g: .*ottla.max.partitions is 2.* -> see what the broker", line)


def test_what_may_take_long_is_said_once(without_groups: BrokerProcess) -> None:
    with running("consume", "t", "-b", without_groups.bootstrap) as process:
        line = first_line(process, "waiting")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)  # five times as long as it would take to be said again
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert re.fullmatch(rf"ottla: waiting for records of t, of which none has come {TIME}\n", line)


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        ("dump DATA", "reading"),
        ("explain t-0 --log-dir DATA --offset 0", "reading"),
        ("strays --log-dir DATA", "looking into"),
        ("verify DATA", "looking into"),
        ("verify DATA --repair", "mending"),
    ],
)
def test_work_on_files_that_takes_long_is_said(tmp_path: Path, command: str, verb: str) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=0\n")
    program = SOON.replace("from ottla.cli.main", f"{SLOW}from ottla.cli.main")
    with running("log", *command.replace("DATA", str(tmp_path)).split(), program=program) as process:
        line = first_line(process, verb)
    assert re.fullmatch(rf"ottla: {verb} {re.escape(str(tmp_path))}(/t-0)? {TIME}\n", line)


def test_a_person_or_the_reader_of_a_pipe_may_take_their_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.cli.waiting.SPEAKS_AFTER_S", 0.01)
    with Waiting("data", verb="reading") as work:
        for _ in work.over(["a", "b"]):
            assert work.is_resting
            work.look(work.due_s)
        assert not work.is_resting
    assert "reading" not in capsys.readouterr().err


QUIET = [("consume", "t"), ("ping", "--timeout-ms", "1500")]


@pytest.mark.parametrize("arguments", QUIET, ids=" ".join)
def test_quiet_does_not_say_what_is_waited_for_but_how_it_ended(arguments: tuple[str, ...], silent: str) -> None:
    with running(*arguments, "-q", "-b", silent) as process:
        _, said = process.communicate(b"x\n")
    assert process.returncode == 1
    assert re.fullmatch(rb"ottla: .+\n", said)
    assert b"waiting" not in said


def test_quiet_still_says_what_is_in_the_way(without_groups: BrokerProcess) -> None:
    with running("consume", "t", "-g", "g", "-q", "-b", without_groups.bootstrap) as process:
        line = first_line(process, "waiting")
    assert re.match(rf"ottla: waiting for a place in the group g {TIME}: group g: .*ottla.max.partitions is 2", line)


def test_produce_waits_for_its_input(without_groups: BrokerProcess) -> None:
    with running("produce", "t", "-b", without_groups.bootstrap) as process:
        assert "lines on standard input" in first_line(process, "waiting")


def test_anything_that_comes_restarts_the_wait_and_warnings_are_shown_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Waiting("x") as wait:
        logging.getLogger("ottla.client.cluster").info("%s; asking again", "no")
        assert re.fullmatch(rf"waiting for x {TIME}: no", wait.words())
        wait.heard()
        assert re.fullmatch(rf"waiting for x {TIME}", wait.words())
        logging.getLogger("ottla.client.cluster").warning("a warning")
    logging.getLogger("ottla.client.cluster").info("nobody listens any more")
    assert re.fullmatch(rf"waiting for x {TIME}: a warning", wait.words())
    assert capsys.readouterr().err == "ottla: a warning\n"


def test_a_command_without_a_thread_for_it_just_does_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with Waiting("x"):
        pass


def test_a_bar_is_a_line_now_and_then_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, 5.0, 10.0, 11.0, 20.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    bar = Bar("verifying", 4000)
    for _ in range(4):
        bar.add(1000)
    bar.end()
    assert capsys.readouterr().err.splitlines() == ["verifying: 50%, 2.0 KiB", "verifying: 100%, 3.9 KiB"]
