"""The `ottla` command inside of the test's process, and in forked ones."""

from __future__ import annotations

import os
from subprocess import PIPE
from typing import NamedTuple

from click.testing import CliRunner
from kit.forks import Forks

from ottla.cli.main import main

COMMANDS = Forks(
    *(f"ottla.cli.{name}" for name in ("completion", "configs_alter", "consume", "groups", "log", "main", "produce")),
    *(f"ottla.cli.{name}" for name in ("quotas_alter", "topics", "transactions")),
    "ottla.client.blocking",
    "ottla.config.broker",
    "ottla.config.resources",
)
"""Command lines as processes. Modules that few commands need are imported by them."""


DEADLINE_S = 60.0


class Said(NamedTuple):
    """What a command has said, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line on standard error."""
        (line,) = self.err.splitlines()
        return line


def run(*arguments: object, environment: dict[str, str] | None = None) -> Said:
    """Run a command to its end; a traceback fails the test."""
    result = CliRunner().invoke(main, [str(one) for one in arguments], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def in_process(*arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> Said:
    """Run a command to its end as a process of its own, which writes into pipes."""
    process = COMMANDS.start(
        ["-m", "ottla", *arguments], {**os.environ, **(environment or {})}, stdin=PIPE, stderr=PIPE
    )
    out, err = process.communicate(stdin, DEADLINE_S)
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())
