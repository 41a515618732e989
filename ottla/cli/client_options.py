"""The options that all commands share that talk to a broker: which one, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click
from click.core import ParameterSource

from ottla.cli.client_properties import FILE_KEY, SERVERS, read_file
from ottla.cli.probe import DEFAULT_SERVER

_F = TypeVar("_F", bound=Callable[..., object])


def bootstrap_server(command: _F) -> _F:
    """`--bootstrap-server host:port`, as Kafka's own tools call it, and `--command-config FILE`."""
    by_file = click.option(
        "--command-config",
        type=click.Path(),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_command_config,
        help="A properties file with options of the client, such as request.timeout.ms=5000.",
    )
    by_option = click.option(
        "-b",
        "--bootstrap-server",
        "servers",
        default=DEFAULT_SERVER,
        show_default=True,
        metavar="HOST:PORT",
        callback=check_servers,
        help="The broker to connect to; several are separated by commas.",
    )
    return by_option(by_file(command))


def _read_command_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None and not context.resilient_parsing:
        context.meta[FILE_KEY] = read_file(path)


def check_servers(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse what is no address before anything is dialled; where none is given, take that of --command-config."""
    from ottla.client.options import parse_servers

    if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
        value = context.meta.get(FILE_KEY, {}).get(SERVERS, value)
    try:
        parse_servers(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


def split_header(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """`NAME=VALUE` as a record's header."""
    headers = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name, text.encode()))
    return headers
