"""`ottla ping`: is a broker there? With all its options; `entry.py` answers the plain form without click."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from ottla.address import host_and_port
from ottla.cli import probe
from ottla.cli.entry import answer_line
from ottla.cli.failures import Failure
from ottla.cli.parameters import Number
from ottla.cli.waiting import Waiting


@click.command(short_help="Ask whether a broker answers.")
@click.option(
    "-b",
    "--bootstrap-server",
    "servers",
    metavar="HOST:PORT",
    help="The broker to ask; of several, separated by commas, the first that answers. "
    f" [default: {probe.DEFAULT_SERVER}]",
)
@click.option(
    "--serving",
    "is_serving",
    is_flag=True,
    help="Ask the broker that `ottla serve` starts here: the address is that of its first listener by "
    "SERVER.PROPERTIES and the environment.",
)
@click.argument(
    "properties", required=False, type=click.Path(path_type=Path, readable=False), metavar="[SERVER.PROPERTIES]"
)
@click.option(
    "--timeout-ms",
    type=Number(1, 2**31 - 1),
    metavar="N",
    default=probe.DEFAULT_TIMEOUT_MS,
    show_default=True,
    help="How long to wait for each server.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when a broker answers; only the exit status.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def ping(
    servers: str | None, is_serving: bool, properties: Path | None, timeout_ms: int, quiet: bool, as_json: bool
) -> None:
    """Ask whether a broker answers: one ApiVersions request. Exit status 1 when none does.

    \b
    Examples:
      ottla ping
      ottla ping -b 10.0.0.7:9092 --timeout-ms 500 --quiet
      ottla ping --serving server.properties
    """
    if is_serving and servers is not None:
        raise click.UsageError("give one of --bootstrap-server and --serving")
    if properties is not None and not is_serving:
        raise click.UsageError("SERVER.PROPERTIES goes with --serving")
    try:
        text = serving_address(properties) if is_serving else probe.DEFAULT_SERVER if servers is None else servers
        addresses = [probe.parse_address(one) for one in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap-server") from None
    try:
        with Waiting(f"an answer of {text}", is_quiet=quiet):
            address, elapsed_ms, apis = probe.ping_first(addresses, timeout_ms)
    except probe.NoAnswer as error:
        if as_json and not quiet:
            click.echo(json.dumps({"server": text, "answers": False, "problem": str(error)}))
        raise Failure(probe.problem_line(error)) from None
    if as_json and not quiet:
        click.echo(json.dumps({"server": address, "answers": True, "elapsed_ms": round(elapsed_ms, 3), "apis": apis}))
    elif not quiet:
        click.echo(answer_line(address, elapsed_ms, apis))


def serving_address(properties: Path | None) -> str:
    """`host:port` of the first listener that a `serve` with this file and environment binds. Raises Failure."""
    from ottla.config.broker import BrokerConfig
    from ottla.config.errors import ConfigError

    try:
        listener = BrokerConfig.load(properties, environ=os.environ).listeners[0]
    except ConfigError as error:
        raise Failure(str(error)) from None
    if not listener.port:
        raise Failure(f"listeners={listener}: port 0 is chosen at the start; give --bootstrap-server")
    host = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener.host, listener.host)
    return host_and_port(host, listener.port)
