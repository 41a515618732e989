"""`ottla serve` without click: which arguments its plain form takes, with what meaning, and what is left to click."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import serving
from ottla.cli.main import main

Given = tuple[object, list[str], str | None, str, str | None]

PLAIN = [
    ([], (None, [], None, "info", None)),
    (["server.properties"], ("server.properties", [], None, "info", None)),
    (["--override", "a=1", "--override=b=2=3", "f"], ("f", ["a=1", "b=2=3"], None, "info", None)),
    (["--log-level", "debug", "--log-level=error"], (None, [], None, "error", None)),
    (["--profile", "kafka-2.8"], (None, [], "kafka-2.8", "info", None)),
    (["--override", "-x"], (None, ["-x"], None, "info", None)),
    (["--ready-line", "[id=1] started"], (None, [], None, "info", "[id=1] started")),
]


@pytest.fixture
def run_with(monkeypatch: pytest.MonkeyPatch) -> list[Given]:
    """What the broker was to be run with, by either way."""
    given: list[Given] = []

    def run_broker(
        properties: Path | str | None,
        overrides: object,
        profile: str | None,
        log_level: str,
        ready_line: str | None = None,
    ) -> int:
        given.append((properties and str(properties), list(overrides), profile, log_level, ready_line))  # type: ignore[call-overload]
        return 7

    monkeypatch.setattr(serving, "run_broker", run_broker)
    monkeypatch.setattr("ottla.cli.serve.run_broker", run_broker)
    return given


@pytest.mark.parametrize(("arguments", "meaning"), PLAIN)
def test_the_plain_form_means_what_it_means_to_click(
    arguments: list[str], meaning: Given, run_with: list[Given]
) -> None:
    assert serving.quick_serve(arguments) == 7
    with pytest.raises(SystemExit) as ended:
        main(["serve", *arguments], prog_name="ottla")
    assert ended.value.code == 7
    assert run_with == [meaning, meaning]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["-h"],
        ["--"],
        [""],
        ["one", "two"],
        ["--override"],
        ["--override", ""],
        ["--overrid", "a=1"],
        ["--log-level", "loud"],
        ["--log-level"],
        ["--profile", "kafka-9"],
        ["--profile", "default", "--profile", "kafka-4.1"],
    ],
)
def test_what_the_plain_form_does_not_understand_is_left_to_click(arguments: list[str], run_with: list[Given]) -> None:
    assert serving.quick_serve(arguments) is None
    assert run_with == []


def test_a_wrong_configuration_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert serving.quick_serve(["--override", "num.partitions=none"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("ottla: num.partitions=none")
    assert error.count("\n") == 1


def test_the_version_imports_neither_click_nor_sockets() -> None:
    program = (
        "import sys; sys.argv = ['ottla', '--version']\n"
        "import ottla.cli.entry\n"
        "try: ottla.cli.entry.run()\n"
        "finally: print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    line, modules = done.stdout.splitlines()
    assert line.startswith("Ottla ")
    assert "ottla.cli.entry" in modules.split()
    assert {"click", "socket", "asyncio", "ottla.config"} & set(modules.split()) == set()


def test_a_version_that_nobody_reads_ends_quietly() -> None:
    command = [sys.executable, "-m", "ottla", "--version"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1
