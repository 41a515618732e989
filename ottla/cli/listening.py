"""What commands have in common that serve on an address until they are ended: `console` and `registry`."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import click

from ottla.address import host_and_port
from ottla.addressed import is_loopback
from ottla.cli.failures import Failure
from ottla.cli.parameters import is_digits

_HIGHEST_PORT: Final = 65_535
_F = TypeVar("_F", bound=Callable[..., Any])


def listen_option(default: str, what: str) -> Callable[[_F], _F]:
    """`--listen HOST:PORT`, as the argument `address`."""
    return click.option(
        "--listen",
        "address",
        default=default,
        show_default=True,
        metavar="HOST:PORT",
        callback=lambda _, __, value: _address(value, default),
        help=f"Where {what} is served; port 0 takes a free one.",
    )


def _address(text: str, example: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_port = is_digits(port) and int(port) <= _HIGHEST_PORT
    if not colon or not host or not is_port or (":" in host and not is_bracketed):
        raise click.BadParameter(f"{text!r} is not HOST:PORT, such as {example}")
    return host.strip("[]"), int(port)


def warn_of_others(host: str, consequence: str) -> None:
    """Say it if an address can be reached from other machines."""
    if not (host == "localhost" or is_loopback(host)):
        click.echo(f"ottla: warning: {host} can be reached from other machines: {consequence}", err=True)


def ended_by_signal() -> asyncio.Event:
    """Set when the process is to end, by Ctrl-C or SIGTERM. Windows knows no signals: a KeyboardInterrupt comes."""
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
    return ended


def log_lines() -> None:
    """Log warnings on standard error as the broker does: such a command runs for long, and says when."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.getLogger("ottla").addHandler(handler)


@contextmanager
def listening_errors(host: str, port: int) -> Iterator[None]:
    """Turn the OSError of an address that is not available into one line."""
    try:
        yield
    except OSError as error:
        raise Failure(f"cannot listen on {host_and_port(host, port)}: {_reason(error, host)}") from None


def _reason(error: OSError, host: str) -> str:
    """What is wrong with an address, and what to do. asyncio puts a sentence of its own before the system's."""
    free_port = f"--listen {host_and_port(host, 0)} takes a free port"
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; --listen needs a name or an address of this machine, such as 127.0.0.1"
    if error.errno == errno.EADDRINUSE:
        return f"another process uses this port; {free_port}"
    if error.errno == errno.EACCES:
        return f"this user may not use this port; {free_port}"
    if error.errno in (errno.EADDRNOTAVAIL, None):  # None: asyncio's, if that is so for each address of a name
        return "this machine has no such address; 127.0.0.1 is for this machine only, 0.0.0.0 for all of its addresses"
    return str(error.strerror)
