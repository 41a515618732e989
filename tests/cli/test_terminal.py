"""What `produce` and `consume` say on a terminal while they wait, and that they say it nowhere else."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from kit.broker import BrokerProcess
from kit.command import COMMANDS, in_process, run
from kit.forks import Process

from ottla.cli.main import main

TIMEOUT_S = 60
SOON = """
import sys
from ottla.cli import waiting
waiting.SPEAKS_AFTER_S = waiting.SPEAKS_AGAIN_AFTER_S = 0.2
from ottla.cli.main import main
main(sys.argv[1:])
"""
"""The command line that speaks of waiting sooner."""


class Terminal:
    """A command with a terminal as its standard input, output and error."""

    def __init__(self, process: Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        """What a person types."""
        os.write(self._descriptor, text.encode())

    def until(self, words: str) -> str:
        """All that was shown, up to the words; fails when the command ends without them."""
        while words not in self.seen:
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                data = b""
            if not data:
                raise AssertionError(f"{words!r} is not in {self.seen!r}")
            self.seen += re.sub(r"\x1b\[[0-9;]*m", "", data.decode())
        return self.seen


@contextmanager
def on_terminal(*arguments: str, program: tuple[str, str] = ("-m", "ottla")) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    process = COMMANDS.start([*program, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(TIMEOUT_S)
        finally:
            os.close(ours)


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    assert run("topics", "create", topic, "--partitions", "2", "-b", broker.bootstrap).status == 0
    return topic


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ([], ""),
        (["-k", ":"], " as KEY:VALUE"),
        (["--partitioner", "random"], ""),
        (["--json"], " as JSON objects"),
    ],
)
def test_produce_says_that_it_waits_for_lines(
    broker: BrokerProcess, filled: str, options: list[str], shape: str
) -> None:
    with on_terminal("produce", filled, "-b", broker.bootstrap, *options) as terminal:
        terminal.until(f"waiting for records for {filled}: type them{shape}, one a line; Ctrl-D ends")
        terminal.type(('{"value": "a"}' if "--json" in options else "a:b") + "\n\x04")
        assert terminal.process.wait(TIMEOUT_S) == 0


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "waiting for new records of TOPIC; --from-beginning shows all; Ctrl-C ends"),
        (["-B"], "reading TOPIC from its beginning, then waiting for more; Ctrl-C ends"),
        (["-p", "0", "-o", "0"], "reading TOPIC from offset 0 on, then waiting for more; Ctrl-C ends"),
        (["-o", "-5"], "reading TOPIC from 5 before its end on, then waiting for more; Ctrl-C ends"),
        (["--timestamp", "0"], "reading TOPIC from 1970-01-01 00:00:00.000Z on, then waiting for more; Ctrl-C ends"),
        (["--consumer-property", "auto.offset.reset=earliest"], "reading TOPIC from its beginning"),
    ],
)
def test_consume_says_what_it_waits_for(broker: BrokerProcess, filled: str, options: list[str], words: str) -> None:
    with on_terminal("consume", filled, "-b", broker.bootstrap, *options) as terminal:
        terminal.until(words.replace("TOPIC", filled))


@pytest.mark.timeout(TIMEOUT_S)
def test_a_member_of_a_group_says_what_it_was_given(broker: BrokerProcess, filled: str) -> None:
    arguments = ["consume", filled, "-b", broker.bootstrap, "-g", f"group-{filled}"]
    with on_terminal(*arguments) as terminal:
        terminal.until(f"joining group group-{filled} to read {filled}; Ctrl-C ends")
        terminal.until("reading partitions 0, 1, then waiting for more")


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("command", ["produce", "consume", "consume -B", "consume -g g"])
def test_what_is_waited_for_is_said_once(broker: BrokerProcess, filled: str, command: str) -> None:
    name, *options = command.split()
    last = "then waiting for more" if options else "waiting for"
    with on_terminal(name, filled, "-b", broker.bootstrap, *options, program=("-c", SOON)) as terminal:
        terminal.until(last)
        with pytest.raises(subprocess.TimeoutExpired):
            terminal.process.wait(1)  # five times as long as it would take to be said again
        terminal.process.send_signal(signal.SIGINT)
        with pytest.raises(AssertionError):
            terminal.until("\0")  # to the end
    assert terminal.seen[terminal.seen.index(last) :].count("waiting") == 1


@pytest.mark.timeout(TIMEOUT_S)
def test_quiet_says_nothing(broker: BrokerProcess, filled: str) -> None:
    run_quiet = ["consume", filled, "-b", broker.bootstrap, "-B", "-q", "-n", "1"]
    with on_terminal(*run_quiet) as terminal:
        with on_terminal("produce", filled, "-b", broker.bootstrap, "-q") as typing:
            typing.type("seen\n\x04")
            assert typing.process.wait(TIMEOUT_S) == 0
        terminal.until("seen")
        assert terminal.seen.split() == ["seen"]


def test_nothing_is_said_where_nobody_watches(broker: BrokerProcess, filled: str) -> None:
    assert in_process("produce", filled, "-b", broker.bootstrap, stdin=b"x\n") == (0, "", "")
    assert in_process("consume", filled, "-b", broker.bootstrap, "-B", "-n", "1") == (0, "x\n", "")


@pytest.mark.parametrize(
    "command",
    [["topics", "list"], ["consume", "t"], ["produce", "t"], ["groups", "list"], ["configs", "describe"], ["ping"]],
)
def test_where_no_broker_is_the_line_says_how_to_get_one(command: list[str]) -> None:
    said = run(*command, "-b", "127.0.0.1:1")
    assert said.status == 1
    assert said.line.endswith(": Connection refused. Is it running? ottla serve")


@pytest.mark.timeout(TIMEOUT_S)
def test_ctrl_c_at_a_question_ends_a_command_with_status_130(broker: BrokerProcess) -> None:
    with on_terminal("users", "add", "alice", "-b", broker.bootstrap) as terminal:
        terminal.until("Password of alice: ")
        terminal.process.send_signal(signal.SIGINT)
        with pytest.raises(AssertionError):
            terminal.until("\0")  # to the end
        assert terminal.process.wait(TIMEOUT_S) == 130
    assert "Aborted" not in terminal.seen


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("answer", "status"), [("y\n", 0), ("n\n", 1)])
def test_a_deletion_of_records_is_asked_for_on_a_terminal(
    broker: BrokerProcess, filled: str, answer: str, status: int
) -> None:
    assert CliRunner().invoke(main, ["produce", filled, "-p", "1", "-b", broker.bootstrap], input="a\n").exit_code == 0
    with on_terminal("topics", "delete-records", filled, "--before", "latest", "-b", broker.bootstrap) as terminal:
        assert "records deleted" in terminal.until(f"Delete 1 record of {filled} permanently? [y/N]: ")
        terminal.type(answer)
        if status == 0:
            terminal.until(f"{filled}-1: 1 record deleted, the log starts at 1")
        assert terminal.process.wait(TIMEOUT_S) == status


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colours_where_the_environment_wants_none(
    broker: BrokerProcess, filled: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[" in shown_raw("configs", "describe", "-t", filled, "-b", broker.bootstrap)
    monkeypatch.setenv(variable, value)
    assert "\x1b[" not in shown_raw("configs", "describe", "-t", filled, "-b", broker.bootstrap)


def shown_raw(*arguments: str) -> str:
    """All that a command writes to a terminal, with its colours."""
    ours, theirs = pty.openpty()
    assert COMMANDS.start(["-m", "ottla", *arguments], stdout=theirs, stderr=theirs).wait(TIMEOUT_S) == 0
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):
        while data := os.read(ours, 4096):
            written += data
    os.close(ours)
    return written.decode()


NARROW = """
import fcntl, struct, sys, termios
fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
from ottla.cli import progress
progress._REFRESH_S = 0.0
shown = progress.Progress("received")
shown.add(1_000_000_000, 1_000_000_000_000)
bar = progress.Bar("verifying a long name", 1_000)
bar.add(700)
bar.end()
print("done")
"""


def test_progress_fits_into_a_row_of_a_narrow_terminal() -> None:
    """A row that wraps cannot be rewritten: each update would begin a new one."""
    with on_terminal(program=("-c", NARROW)) as terminal:
        seen = terminal.until("done")
    rows = [row for row in seen.replace("done", "").split("\r") if row.strip()]
    assert rows[0] == "received 1,000,000,000 records, 931.3 G"
    assert rows[1].startswith("verifying a long name [######")
    assert {len(row) for row in rows[:2]} == {39}
