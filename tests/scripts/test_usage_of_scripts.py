"""The Python scripts of `scripts`: --help runs nothing, a wrong --only is no success, a missing package is one line."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path
    for folder in (ROOT / "scripts", ROOT / "scripts" / "interop")
    for path in folder.iterdir()
    if path.is_file() and path.suffix != ".py" and path.read_bytes().startswith(b"#!/usr/bin/env python3\n")
)
WITH_STEPS = (
    "java-tools",
    "node-clients",
    "secured-clients",
    "share-groups",
    "streams-connect",
    "streams-groups",
    "transactions",
)


def run(script: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OTTLA_TEST_BOOTSTRAP")
    }
    command = [sys.executable, *options, str(script), *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) > 25


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_help_shows_the_usage_and_runs_nothing(script: Path) -> None:
    shown = run(script, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert f"usage: {script.name} " in shown.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_without_the_packages_of_the_tests_a_script_ends_with_one_line(script: Path) -> None:
    shown = run(script, "--help", options=("-S",))  # without site-packages
    if shown.returncode:
        assert shown.returncode == 69
        assert shown.stderr.startswith(f"{script.name}: {sys.executable} has no")
        assert shown.stderr.count("\n") == 1


@pytest.mark.parametrize("name", WITH_STEPS)
def test_a_word_that_is_in_no_steps_name_is_refused_before_anything_starts(name: str) -> None:
    shown = run(ROOT / "scripts" / "interop" / name, "--only", "no such step")
    assert (shown.returncode, shown.stdout) == (69, "")
    assert shown.stderr.startswith(f"{name}: --only no such step: this is in no step's name; the names are ")


@pytest.mark.parametrize("name", ["java-tools", "go-clients"])
def test_a_python_without_ottla_is_refused_before_anything_is_fetched(name: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'ottla'\" >&2\nexit 1\n")
    python.chmod(0o755)
    shown = run(ROOT / "scripts" / "interop" / name, "--python", str(python))
    assert (shown.returncode, shown.stdout) == (69, "")
    assert shown.stderr.startswith(
        f"{name}: {python} cannot run Ottla (ModuleNotFoundError: No module named 'ottla'): "
    )


@pytest.mark.parametrize(
    "line", ["ERROR ottla.partition: bug: append to t-0 failed", "Traceback (most recent call last):"]
)
def test_a_bug_in_the_brokers_log_fails_a_run_whose_steps_have_passed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts" / "interop")  # a script imports `other_scripts` from its own directory
    check_log = runpy.run_path(str(ROOT / "scripts" / "interop" / "java-tools"))["check_log"]
    log = tmp_path / "ottla.log"
    log.write_text("INFO ottla.server: ready\n")
    check_log(log)
    log.write_text(f"INFO ottla.server: ready\n{line}\n  the next line\n")
    with pytest.raises(SystemExit, match=f"Ottla's log names a bug:\n{re.escape(line)}\n  the next line"):
        check_log(log)


def test_another_program_on_kafkas_port_is_not_taken_for_kafka(tmp_path: Path) -> None:
    """It is waited for Kafka's own line, and not for that of an earlier start in the same file."""
    peer = runpy.run_path(str(ROOT / "scripts" / "interop" / "apache-kafka"))
    log = tmp_path / "server.log"
    log.write_bytes(b"INFO Kafka Server started\n")
    begun = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"ERROR Address already in use\n")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as process:
        process.wait()
        with pytest.raises(peer["CannotRun"], match="Kafka ended with status 1:\nERROR Address already in use"):
            peer["await_started"](log, begun, process)
        peer["await_started"](log, 0, process)


def test_a_kafka_that_ends_at_its_start_is_reported_by_the_errors_of_this_start(tmp_path: Path) -> None:
    """Earlier starts in the same file, of brokers that were killed, have logged more than is shown."""
    peer = runpy.run_path(str(ROOT / "scripts" / "interop" / "apache-kafka"))
    log = tmp_path / "server.log"
    log.write_bytes(b"INFO DuplicateBrokerRegistrationException\n" * 100)
    begun = log.stat().st_size
    log.write_bytes(log.read_bytes() + b"ERROR share.version has an unsupported level\n")
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"]) as process:
        process.wait()
        with pytest.raises(peer["CannotRun"], match=r"^Kafka ended with status 1:\nERROR share\.version has"):
            peer["await_port"](peer["free_port"](), log, begun, process)
