from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from kit.command import run

from ottla.cli import entry
from ottla.cli.main import main

COMMANDS = (
    "serve",
    "run",
    "topics",
    "produce",
    "consume",
    "console",
    "registry",
    "groups",
    "transactions",
    "tokens",
    "users",
    "configs",
    "acls",
    "quotas",
    "features",
    "config",
    "log",
    "tls",
    "ping",
    "completion",
)


def test_help_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_can_be_asked_for_help(command: str) -> None:
    result = CliRunner().invoke(main, [command, "-h"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("Usage: ")


def test_a_mistyped_command_is_answered_with_the_commands_there_are() -> None:
    result = CliRunner().invoke(main, ["sreve"])
    assert result.exit_code == 2
    words = " ".join(result.output.split())
    assert f"there is no command 'sreve': did you mean serve? There are {', '.join(COMMANDS)}" in words


@pytest.mark.parametrize(
    "words",
    [
        ["groups", "reset", "g", "--topic", "t:NUMBER", "--to-earliest"],
        ["configs", "describe", "--broker", "NUMBER"],
        ["console", "--listen", "127.0.0.1:NUMBER"],
        ["registry", "--listen", "127.0.0.1:NUMBER"],
        ["ping", "--timeout-ms", "NUMBER"],
        ["topics", "list", "-b", "localhost:NUMBER"],
        ["consume", "t", "--partition", "NUMBER"],
    ],
)
def test_a_number_of_thousands_of_digits_is_refused_as_any_other(words: list[str]) -> None:
    """Python refuses to convert it, with an error of its own."""
    said = run(*(word.replace("NUMBER", "9" * 5_000) for word in words))
    assert said.status == 2
    assert "\nError: Invalid value for " in said.err


def test_the_version_is_one_line() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("Ottla 0.")


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["version"], ["--version"]),
        (["help"], ["--help"]),
        (["help", "--help"], ["--help"]),
        (["help", "topics"], ["topics", "--help"]),
        (["help", "topics", "create"], ["topics", "create", "--help"]),
        (["topics", "help", "create"], ["topics", "create", "--help"]),
        (["help", "produce"], ["produce", "--help"]),
    ],
)
def test_help_and_version_are_understood_as_commands(words: list[str], same: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0
    assert result.output == CliRunner().invoke(main, same).output


def test_help_of_a_mistyped_command_is_answered_with_the_one_that_was_meant() -> None:
    result = CliRunner().invoke(main, ["help", "sreve"])
    assert result.exit_code == 2
    assert "did you mean serve?" in " ".join(result.output.split())


def test_help_imports_nothing_that_only_commands_need() -> None:
    program = (
        "import sys\n"
        "from ottla.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "ours = {name.partition('.')[2] for name in sys.modules if name.startswith('ottla.')}\n"
        "heavy = ours - {'version', 'cli', 'cli.main', 'cli.lazy'}\n"
        "heavy |= {'asyncio', 'logging', 'uvloop', 'javaproperties'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "incomplete", "completions"),
    [
        ([], "to", ["topics", "tokens"]),
        (["topics"], "", ["create", "list", "describe", "alter", "delete", "delete-records"]),
        (["consume", "t"], "--from", ["--from-beginning"]),
        (["sreve"], "x", []),
    ],
)
def test_a_shell_completes_commands_and_options(words: list[str], incomplete: str, completions: list[str]) -> None:
    found = ShellComplete(main, {}, "ottla", "_OTTLA_COMPLETE").get_completions(words, incomplete)
    assert [one.value for one in found] == completions


def test_completing_a_command_imports_none() -> None:
    program = (
        "import sys\n"
        "from ottla.cli.main import main\n"
        "from click.shell_completion import ShellComplete\n"
        "assert ShellComplete(main, {}, 'ottla', 'X').get_completions([], 'co')\n"
        "print([name for name in sys.modules if name in ('ottla.cli.consume', 'ottla.cli.config')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_OTTLA_COMPLETE" in result.output


def test_the_script_for_bash_completes_in_bash(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "ottla"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ottla "$@"\n')
    program.chmod(0o755)
    script = CliRunner().invoke(main, ["completion", "bash"]).output
    steps = f"{script}\nCOMP_WORDS=(ottla topics cr) COMP_CWORD=2\n_ottla_completion ottla\necho ${{COMPREPLY[@]}}\n"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [bash, "--norc"], input=steps, capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    assert done.stdout.strip() == "create", done.stderr


def test_ctrl_c_before_a_command_has_begun_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "quick_ping", interrupted)
    monkeypatch.setattr(sys, "argv", ["ottla", "ping"])
    with pytest.raises(SystemExit) as ended:
        entry.run()
    assert ended.value.code == 130


def test_ctrl_c_in_a_command_is_quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> list[object]:
        raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.dump_rows.rows_of", interrupted)
    result = CliRunner().invoke(main, ["log", "dump", str(tmp_path)])
    assert (result.exit_code, result.output) == (130, "")


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Ottla 0.")
