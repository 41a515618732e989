"""A forked process is as one that was started: its arguments, environment, directory, files, end and death."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL, PIPE, TimeoutExpired

import pytest
from kit.broker import IMPORTS, BrokerProcess
from kit.forks import CAN_FORK, Forks

WAIT_S = 60.0
SAYS = """
import json, os, sys
found = sys.argv, os.environ.get("A_VARIABLE"), os.getcwd(), sys.stdin.read(), os.getpid(), "csv" in sys.modules
print(json.dumps(found))
sys.stderr.write("error")
sys.exit(3)
"""
WAITS = "print('here', flush=True); import sys; sys.stdin.read(); print('end')"


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    made = Forks("csv")
    yield made
    made.end()


def test_arguments_environment_directory_files_and_exit_status_are_its_own(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "A_VARIABLE": "value"}
    process = forks.start(["-c", SAYS, "x", "-y"], environment, stdin=PIPE, stderr=PIPE)
    out, err = process.communicate(b"input", WAIT_S)
    assert json.loads(out) == [["-c", "x", "-y"], "value", str(tmp_path), "input", process.pid, CAN_FORK]
    assert (err, process.returncode, process.poll(), process.wait()) == (b"error", 3, 3, 3)


def test_files_and_modules_are_run_as_python_runs_them(forks: Forks, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; print(__name__, sys.argv)")
    process = forks.start([str(program), "x"])
    assert process.communicate(None, WAIT_S)[0].decode() == f"__main__ {[str(program), 'x']}\n"
    process = forks.start(["-m", "json.tool", "--compact"], stdin=PIPE)
    assert process.communicate(b"[1, 2]", WAIT_S)[0] == b"[1,2]\n"


def test_a_failure_is_a_traceback_and_status_1(forks: Forks) -> None:
    process = forks.start(["-c", "1 / 0"])
    assert b"ZeroDivisionError" in process.communicate(None, WAIT_S)[0]
    assert process.returncode == 1


def test_output_goes_to_the_file_that_is_given(forks: Forks, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file:
        process = forks.start(["-c", SAYS], stdout=file)
    assert process.wait(WAIT_S) == 3
    assert b"error" in (tmp_path / "output").read_bytes()
    assert forks.start(["-c", SAYS], stdout=DEVNULL, stderr=DEVNULL).wait(WAIT_S) == 3


def test_a_killed_one_has_the_signal_as_its_status_and_others_live(forks: Forks) -> None:
    first, second = (forks.start(["-c", WAITS], stdin=PIPE) for _ in range(2))
    assert first.stdout is not None
    assert first.stdout.readline() == b"here\n"
    with pytest.raises(TimeoutExpired):
        first.wait(0.01)
    first.kill()
    assert first.wait(WAIT_S) == -signal.SIGKILL
    first.kill()  # nothing is sent to an id that may be another's
    assert second.poll() is None
    assert second.communicate(None, WAIT_S)[0] == b"here\nend\n"
    assert second.returncode == 0
    first.communicate()


def test_one_for_which_a_variable_of_the_interpreter_is_another_is_started_with_it(forks: Forks) -> None:
    program = "import sys; print(sys.flags.utf8_mode)"
    for value in ("1", "0", "1"):
        process = forks.start(["-c", program], {**os.environ, "PYTHONUTF8": value})
        assert process.communicate(None, WAIT_S)[0].decode() == f"{value}\n"


def test_those_that_run_outlive_the_one_that_forks(tmp_path: Path) -> None:
    forks = Forks()
    process = forks.start(["-c", WAITS], stdin=PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"here\n"
    forks.end()
    assert process.stdin is not None
    process.stdin.close()
    assert process.stdout.read() == b"end\n"
    process.stdout.close()


def test_a_forked_broker_is_a_process_with_the_threads_and_files_of_a_started_one(tmp_path: Path) -> None:
    seen = []
    for name, forks in (("started", None), ("forked", Forks(*IMPORTS))):
        broker = BrokerProcess(tmp_path / name)
        broker.all_forks = forks  # type: ignore[misc]  # a ClassVar, which only this broker is to have otherwise
        with broker:
            home = Path(f"/proc/{broker.pid}")
            files = sorted(os.readlink(one).split(":")[0].split("/")[0:2] for one in (home / "fd").iterdir())
            seen.append((len(list((home / "task").iterdir())), len(files), (home / "cwd").readlink()))
        if forks is not None:
            forks.end()
    assert seen[0] == seen[1]
