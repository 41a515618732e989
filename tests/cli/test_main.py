from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from ottla.cli.main import main

COMMANDS = ("serve", "topics", "produce", "consume", "log")


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
    assert "there is no command 'sreve'; there are serve, topics, produce, consume, log" in result.output


def test_the_version_is_one_line() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("Ottla 0.")


def test_help_imports_nothing_that_only_commands_need() -> None:
    program = (
        "import sys\n"
        "from ottla.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "ours = {name.partition('.')[2] for name in sys.modules if name.startswith('ottla.')}\n"
        "heavy = ours - {'cli', 'cli.main', 'cli.lazy'}\n"
        "heavy |= {'asyncio', 'logging', 'uvloop', 'javaproperties'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.strip() == "[]"


def test_python_dash_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", "--version"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Ottla 0.")
