"""`ottla run`: a command beside a broker of its own, its exit status and its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from kit.broker import IMPORTS
from kit.command import Said, run
from kit.forks import Forks

TIMEOUT_S = 60.0
FORKS = Forks("ottla.cli.main", "ottla.cli.run", *IMPORTS, "ottla.client", "ottla.testing")


def ottla(*arguments: str, **environment: str) -> Said:
    process = FORKS.start(["-m", "ottla", "run", *arguments], {**os.environ, **environment}, stderr=PIPE)
    out, err = process.communicate(None, TIMEOUT_S)
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


def test_the_command_finds_the_broker() -> None:
    program = "; ".join(
        (
            "import os",
            "from ottla import Admin",
            "found = Admin(os.environ['BROKERS']).describe_topics(['orders', 'plain'])",
            "print({name: len(one.partitions) for name, one in found.items()})",
            "names = ('BROKERS', 'KAFKA_BOOTSTRAP_SERVERS', 'OTTLA_BOOTSTRAP_SERVER')",
            "print(len({os.environ[name] for name in names}))",
        )
    )
    options = ("-t", "orders:3", "--topic", "plain", "--variable", "BROKERS", "--override", "num.partitions=2")
    ended = ottla(*options, "--", sys.executable, "-c", program)
    assert (ended.status, ended.err) == (0, "")
    assert ended.out == "{'orders': 3, 'plain': 2}\n1\n"


def test_ottlas_own_commands_find_it() -> None:
    script = f"""
{sys.executable} -m ottla topics create orders
echo tea | {sys.executable} -m ottla produce orders
{sys.executable} -m ottla consume orders --from-beginning --max-messages 1
"""
    ended = ottla("sh", "-ec", script)
    assert ended.status == 0, ended.err
    assert ended.out.splitlines()[-1] == "tea"


def test_configured_topics_exist_and_a_wrong_one_is_one_line() -> None:
    listing = (sys.executable, "-m", "ottla", "topics", "list")
    ended = ottla("--override", "ottla.create.topics=orders:2", "--", *listing)
    assert ended.status == 0, ended.err
    assert "orders" in ended.out
    ended = ottla("--override", "ottla.create.topics=orders:2,a.b,a_b", "--", *listing)
    assert ended.status == 1
    assert ended.err.startswith("ottla: ottla.create.topics: a_b: a_b collides with a.b")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("status", [0, 1, 42])
def test_the_status_is_that_of_the_command(status: int) -> None:
    ended = ottla("--", "sh", "-c", f"exit {status}")
    assert (ended.status, ended.out, ended.err) == (status, "", "")


def test_options_of_the_command_are_its_own() -> None:
    ended = ottla("sh", "-c", 'echo "$0 $1"', "--topic", "--help")
    assert (ended.status, ended.out) == (0, "--topic --help\n")


def test_a_killed_command_has_the_status_of_shells() -> None:
    assert ottla("sh", "-c", "kill -9 $$").status == 128 + signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(number: signal.Signals) -> None:
    program = """
import os, signal, sys
def end(number, _):
    print("heard", signal.Signals(number).name, flush=True)
    sys.exit(3)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, end)
print("ready", flush=True)
signal.pause()
"""
    process = FORKS.start(["-m", "ottla", "run", "--", sys.executable, "-c", program])
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == b"ready\n"
        process.send_signal(number)
        assert lines.readline().decode() == f"heard {number.name}\n"
        assert process.wait(TIMEOUT_S) == 3


def test_ctrl_c_is_the_commands() -> None:
    """A terminal sends it to both; `ottla run` waits for the command, which may ignore it."""
    program = "trap 'echo heard; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    process = FORKS.start(["-m", "ottla", "run", "--", "sh", "-c", program], start_new_session=True)
    assert process.stdout is not None
    with process.stdout as lines:
        assert lines.readline() == b"ready\n"
        os.killpg(process.pid, signal.SIGINT)
        assert lines.readline() == b"heard\n"
        assert process.wait(TIMEOUT_S) == 5


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signals_that_are_ignored_stay_so(number: signal.Signals) -> None:
    """By `nohup`, and by a shell that starts it in the background: the command inherits that."""
    program = f"import signal; print(signal.getsignal({int(number)}) is signal.SIG_IGN)"
    command = [sys.executable, "-m", "ottla", "run", "--", sys.executable, "-c", program]
    name = number.name.removeprefix("SIG")
    ended = subprocess.run(
        ["sh", "-c", f"trap '' {name}; exec \"$@\"", "sh", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n"), ended.stderr


def test_nothing_is_left(tmp_path: Path) -> None:
    ended = ottla("-t", "orders", "--", "true", TMPDIR=str(tmp_path))
    assert ended.status == 0
    assert list(tmp_path.iterdir()) == []


def test_mistakes_have_one_line(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not executable")
    assert run("run").status == 2
    said = run("run", "--", "no-such-command-anywhere")
    assert (said.status, said.line) == (127, "ottla: no-such-command-anywhere: command not found")
    said = run("run", "--", plain)
    assert (said.status, said.line) == (126, f"ottla: {plain}: Permission denied")
    said = run("run", "--", "")
    assert (said.status, said.line) == (2, "ottla: COMMAND must not be empty")
    for wrong in ("orders:", "orders:0", "orders:x", ":3", "", "orders:2147483648", f"orders:{'9' * 5_000}"):
        said = run("run", "-t", wrong, "--", "true")
        assert (said.status, said.line) == (
            2,
            f"ottla: --topic {wrong!r}: must be TOPIC or TOPIC:PARTITIONS, such as orders:3",
        )
    for wrong in ("", "A=B"):
        said = run("run", "--variable", wrong, "--", "true")
        assert (said.status, said.line) == (
            2,
            f"ottla: --variable {wrong!r}: must be the name of a variable, such as BROKERS",
        )
    said = run("run", "-t", "a b", "--", "true")
    assert said.status == 1
    assert "INVALID_TOPIC_EXCEPTION" in said.line
    said = run("run", "--override", "num.partition=3", "--", "true")
    assert (said.status, "num.partition" in said.line) == (1, True)
    said = run("run", "--override", "num.partitions=three", "--", "true")
    assert (said.status, "num.partitions" in said.line) == (1, True)
