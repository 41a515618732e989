"""The options that all commands share that talk to a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., object])


def check_servers(_: click.Context, __: click.Parameter, value: str) -> str:
    """Refuse what is no address before anything is dialled."""
    from ottla.client.options import parse_servers

    try:
        parse_servers(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def bootstrap_server(command: _F) -> _F:
    """`--bootstrap-server host:port`, as Kafka's own tools call it."""
    return click.option(
        "-b",
        "--bootstrap-server",
        "servers",
        default="localhost:9092",
        show_default=True,
        metavar="HOST:PORT",
        callback=check_servers,
        help="The broker to talk to; several with commas.",
    )(command)


def split_header(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """`NAME=VALUE` as a record's header."""
    headers = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name, text.encode()))
    return headers
