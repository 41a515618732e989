"""The options of all commands that connect to a broker: which broker, and how."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import click
from click.core import ParameterSource

from ottla.address import parse_servers
from ottla.cli.client_properties import FILE_KEY, PROTOCOL_KEY, SERVERS, read_environment, read_file
from ottla.cli.failures import Failure
from ottla.cli.parameters import FilePath
from ottla.cli.probe import DEFAULT_SERVER

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_F = TypeVar("_F", bound=Callable[..., object])


def bootstrap_server(command: _F) -> _F:
    """`--bootstrap-server host:port`, as Kafka's own tools call it, `--command-config FILE`, `--security-protocol`."""
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
    return by_option(how_to_connect(command))


def how_to_connect(command: _F) -> _F:
    """`--command-config FILE` and `--security-protocol`, and the environment (docs/client-security.md)."""
    by_file = click.option(
        "--command-config",
        type=FilePath(),
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_read_command_config,
        help="A properties file with options of the client, such as request.timeout.ms=5000.",
    )
    by_protocol = click.option(
        "--security-protocol",
        type=click.Choice(PROTOCOLS, case_sensitive=False),
        is_eager=True,
        expose_value=False,
        callback=_take_protocol,
        help="How the connection is secured; certificates and users are options of the client.",
    )
    return by_protocol(by_file(command))


def _read_command_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    path = path or os.environ.get("OTTLA_COMMAND_CONFIG") or None
    try:
        file = {} if path is None else read_file(path)
        context.meta[FILE_KEY] = read_environment(os.environ, file) | file
    except Failure:
        if not context.resilient_parsing:  # else a shell completes a line, and shows no errors
            raise


def _take_protocol(context: click.Context, _: click.Parameter, protocol: str | None) -> None:
    context.meta[PROTOCOL_KEY] = protocol


def check_servers(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return the addresses: those of --command-config or of the environment, if the option is not given. Refuse what is
    not an address before any connection is opened.
    """
    given = value
    if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE:
        given = context.meta.get(FILE_KEY, {}).get(SERVERS, value)
    try:
        parse_servers(given)
    except ValueError as error:
        if given is value:
            raise click.BadParameter(str(error)) from None
        raise Failure(f"{SERVERS}, of --command-config or OTTLA_BOOTSTRAP_SERVER: {error}") from None
    return given


def split_header(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, bytes]]:
    """`NAME=VALUE` as a record's header."""
    headers = []
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is not NAME=VALUE")
        headers.append((name, text.encode()))
    return headers
