"""Errors of commands: one line on standard error, and exit status 1 (2 for wrong arguments)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click

from ottla.cli.probe import IS_IT_RUNNING
from ottla.cli.show import one_line


class Failure(click.ClickException):
    """An error in one line for people; exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        click.echo(f"ottla: {one_line(self.format_message())}", file=file, err=file is None)


class WrongOption(Failure):
    """An error in the command line, in one line for people; exit status 2."""

    exit_code = 2


def require_posix(what: str) -> None:
    """Refuse a command that needs a data directory if the system cannot have one, as Windows. Raises Failure."""
    try:
        import fcntl  # noqa: F401  (locks of directories)
        import resource  # noqa: F401  (how many files may be open)
    except ImportError:
        raise Failure(
            f"{what} needs Linux or macOS: on Windows it runs in WSL or Docker (docs/platforms.md). "
            "The client, and the commands that ask a broker, work here"
        ) from None


@contextmanager
def file_errors() -> Iterator[None]:
    """Turn an error of the operating system about a file into one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise Failure(f"{where}{error.strerror or error}") from None


@contextmanager
def closed_pipe_ends_quietly() -> Iterator[None]:
    """End quietly when the reader of standard output goes away: `ottla consume … | head` is not an error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        raise SystemExit(0) from None


def reader_is_gone() -> bool:
    """Whether standard output is a pipe without a reader. Needed where nothing is written, which would show it."""
    import select

    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)  # errors are reported unasked
    except (AttributeError, OSError, ValueError):  # no poll on this system, or no descriptor
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


@contextmanager
def client_errors() -> Iterator[None]:
    """Turn an error of the client into one line."""
    from ottla.client.errors import AuthenticationFailed, KafkaError, NoBrokersAvailable
    from ottla.protocol.errors import UnencodableMessage

    try:
        yield
    except UnencodableMessage as error:  # a name of 40,000 letters
        raise Failure(str(error)) from None
    except AuthenticationFailed as error:  # its line is complete
        raise Failure(error.message) from None
    except NoBrokersAvailable as error:
        if error.message.startswith("sasl."):  # no token to log in with: no broker was asked
            raise Failure(error.message) from None
        hint = f". {IS_IT_RUNNING}" if "cannot connect to " in error.message else ""  # else something answers there
        raise Failure(f"no broker answers: {error.message}{hint}") from None
    except KafkaError as error:
        notes = "".join(f". {note}" for note in getattr(error, "__notes__", ()))
        raise Failure(f"{error.message} ({error.code.name}){notes}") from None
