"""`ottla run`: runs a command beside a broker that exists only for it: the tests of a program in any language."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.broker_options import override_option
from ottla.cli.failures import Failure, WrongOption, client_errors, require_posix
from ottla.cli.parameters import is_digits

if TYPE_CHECKING:
    from types import FrameType

VARIABLES: Final = ("KAFKA_BOOTSTRAP_SERVERS", "OTTLA_BOOTSTRAP_SERVER")
"""The variables that always have the address: of common frameworks, and of the `ottla` commands."""
NOT_FOUND: Final = 127
NOT_EXECUTABLE: Final = 126
KILLED: Final = 128
_MOST_PARTITIONS: Final = 2**31 - 1
"""The exit statuses of shells; a number of a signal is added to the last one."""


@click.command(
    short_help="Run a command beside a broker of its own.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITIONS]",
    help="A topic that exists when the command starts. May be repeated.",
)
@click.option(
    "--variable",
    "variables",
    multiple=True,
    metavar="NAME",
    help=f"A variable of the environment that gets the address, besides {' and '.join(VARIABLES)}. May be repeated.",
)
@override_option("Set a key of the broker.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="COMMAND [ARGUMENT]...")
def run(
    topics: tuple[str, ...], variables: tuple[str, ...], overrides: tuple[str, ...], command: tuple[str, ...]
) -> None:
    """Run COMMAND beside a new, empty broker, which ends with it. The exit status is that of COMMAND.

    The broker has a free port of 127.0.0.1 and a temporary directory, and syncs nothing. COMMAND finds its address in
    the environment.

    \b
    Examples:
      ottla run -- npm test
      ottla run -t orders:3 --variable SPRING_KAFKA_BOOTSTRAP_SERVERS -- make test
      ottla run -t orders -- sh -c 'kcat -b $KAFKA_BOOTSTRAP_SERVERS -L'
    """
    require_posix("ottla run")
    from ottla.broker.metadata.image import MetadataError
    from ottla.broker.net.listening import StartError
    from ottla.config.errors import ConfigError
    from ottla.config.sources import split_overrides
    from ottla.storage.errors import StorageError
    from ottla.testing import EmbeddedBroker

    wanted = [_topic(text) for text in topics]
    for name in variables:
        if not name or "=" in name:
            raise WrongOption(f"--variable {name!r}: must be the name of a variable, such as BROKERS")
    if not command[0]:
        raise WrongOption("COMMAND must not be empty")
    try:
        with _warnings_are_shown(), EmbeddedBroker(split_overrides(overrides)) as broker:
            with client_errors():
                for name, partitions in wanted:
                    broker.admin.create_topic(name, partitions=partitions)
            address = dict.fromkeys((*VARIABLES, *variables), broker.bootstrap_servers)
            status = _status_of(command, {**os.environ, **address})
    except (ConfigError, StartError, StorageError, MetadataError) as error:
        raise Failure(str(error)) from None
    raise SystemExit(status)


@contextmanager
def _warnings_are_shown() -> Iterator[None]:
    """Log the broker's warnings on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("ottla: %(message)s"))
    handler.setLevel(logging.WARNING)
    root = logging.getLogger("ottla")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _topic(text: str) -> tuple[str, int]:
    """The name, and the number of partitions (-1: the broker's default). Raises WrongOption."""
    name, colon, count = text.partition(":")
    if not name or (colon and not (is_digits(count) and 0 < int(count) <= _MOST_PARTITIONS)):
        raise WrongOption(f"--topic {text!r}: must be TOPIC or TOPIC:PARTITIONS, such as orders:3")
    return name, int(count) if colon else -1


def _status_of(command: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run the command to its end; the exit status as a shell would report it."""
    sys.stdout.flush()
    with _signals_passed_on() as pass_to:
        try:
            process = subprocess.Popen(command, env=environment)
        except FileNotFoundError:
            click.echo(f"ottla: {command[0]}: command not found", err=True)
            return NOT_FOUND
        except OSError as error:
            click.echo(f"ottla: {command[0]}: {error.strerror}", err=True)
            return NOT_EXECUTABLE
        pass_to(process)
        status = process.wait()
    return status if status >= 0 else KILLED - status


@contextmanager
def _signals_passed_on() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Let the command decide what ends it: Ctrl-C reaches it from the terminal, SIGTERM and SIGHUP are passed on.

    The result takes the process of the command; signals before that are passed on then. Handlers are set before the
    command starts, and are functions, since a command inherits signals that are ignored. For the same reason a signal
    that is ignored already stays so: `nohup` means the command, too.
    """
    processes: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if processes:
            processes[0].send_signal(number)
        else:
            early.append(number)

    def started(process: subprocess.Popen[bytes]) -> None:
        processes.append(process)
        for number in early:
            process.send_signal(number)

    handlers = {signal.SIGINT: _leave_it_to_the_command, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_it_to_the_command(_: int, __: FrameType | None) -> None:
    """Do nothing: the terminal has sent the signal to the command, too."""
