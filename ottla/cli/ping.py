"""`ottla ping`: checks that a broker answers. `entry.py` runs simple command lines of it without click."""

from __future__ import annotations

import json
import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.address import host_and_port, parse_servers
from ottla.cli import probe
from ottla.cli.client_options import how_to_connect
from ottla.cli.client_properties import FILE_KEY, SERVERS, options_of
from ottla.cli.entry import answer_line
from ottla.cli.failures import Failure
from ottla.cli.parameters import FilePath, Number
from ottla.cli.waiting import Waiting

if TYPE_CHECKING:
    import socket

    from ottla.config.broker import BrokerConfig
    from ottla.config.listeners import Listener

PLAIN, TLS, HTTP = "plain", "tls", "http"
"""How to ask the broker of this machine."""


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
    "properties", required=False, type=FilePath(path_type=Path, readable=False), metavar="[SERVER.PROPERTIES]"
)
@click.option(
    "--timeout-ms",
    type=Number(1, 2**31 - 1),
    metavar="N",
    default=probe.DEFAULT_TIMEOUT_MS,
    show_default=True,
    help="How long to wait for each server.",
)
@how_to_connect
@click.option("-q", "--quiet", is_flag=True, help="Print nothing when a broker answers; only the exit status.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def ping(
    servers: str | None, is_serving: bool, properties: Path | None, timeout_ms: int, quiet: bool, as_json: bool
) -> None:
    """Ask whether a broker answers: one ApiVersions request. Exit status 1 when none does.

    With TLS or SASL (--security-protocol, --command-config) the connection is made as a client makes it, and the user
    logs in.

    \b
    Examples:
      ottla ping
      ottla ping -b broker.example:9093 --command-config client.properties
      ottla ping -b 10.0.0.7:9092 --timeout-ms 500 --quiet
      ottla ping --serving server.properties
    """
    if is_serving and servers is not None:
        raise click.UsageError("give one of --bootstrap-server and --serving")
    if properties is not None and not is_serving:
        raise click.UsageError("SERVER.PROPERTIES needs --serving")
    try:
        if servers is None:
            servers = click.get_current_context().meta[FILE_KEY].get(SERVERS, probe.DEFAULT_SERVER)
        text, way = _serving(properties) if is_serving else (servers, PLAIN)
        addresses = parse_servers(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--bootstrap-server") from None
    try:
        with Waiting(f"an answer of {text}", is_quiet=quiet):
            secured = {} if is_serving else _secured(text, timeout_ms)
            if way == HTTP:
                address, elapsed_ms, apis = text, _ask_whether_ready(*addresses[0], timeout_ms), 0
            elif way == TLS:
                host, port = addresses[0]
                address, (elapsed_ms, apis) = text, probe.ping(host, port, timeout_ms, _encrypt)
            elif secured:
                address, elapsed_ms, apis = _ping_first_secured(addresses, secured)
            else:
                address, elapsed_ms, apis = probe.ping_first(addresses, timeout_ms)
    except probe.NoAnswer as error:
        if as_json and not quiet:
            click.echo(json.dumps({"server": text, "answers": False, "problem": str(error)}))
        raise Failure(probe.problem_line(error)) from None
    if as_json and not quiet:
        click.echo(json.dumps({"server": address, "answers": True, "elapsed_ms": round(elapsed_ms, 3), "apis": apis}))
    elif not quiet:
        click.echo(f"{address} is ready" if way == HTTP else answer_line(address, elapsed_ms, apis))


def _secured(servers: str, timeout_ms: int) -> dict[str, Any]:
    """The options of a client if the connection needs TLS or a login; else none. Raises Failure."""
    from ottla.client.options import AdminOptions

    options = options_of(AdminOptions, servers, {"client_id": "ottla-ping"})
    if str(options.get("security_protocol", "PLAINTEXT")).upper() == "PLAINTEXT":
        return {}
    return {**options, "socket_connection_setup_timeout_ms": timeout_ms}


def _ping_first_secured(addresses: list[tuple[str, int]], options: dict[str, Any]) -> tuple[str, float, int]:
    """As `probe.ping_first`, with a connection of the client, which includes TLS and the login."""
    import asyncio
    import time

    from ottla.client.connecting import connect
    from ottla.client.errors import KafkaError
    from ottla.client.options import ClientOptions, read_options

    shared = {one.name for one in fields(ClientOptions)}
    _, read = read_options(ClientOptions, "x", {name: value for name, value in options.items() if name in shared})

    async def ask() -> tuple[str, float, int]:
        problems = []
        for host, port in addresses:
            started = time.perf_counter()
            try:
                connection = await connect(host, port, read)
            except KafkaError as failed:
                problems.append(failed.message)
                continue
            elapsed_ms, apis = (time.perf_counter() - started) * 1000, len(connection.versions)
            connection.close()
            return host_and_port(host, port), elapsed_ms, apis
        raise probe.NoAnswer("; ".join(dict.fromkeys(problems)))

    return asyncio.run(ask())


def _serving(properties: Path | None) -> tuple[str, str]:
    """The `host:port` that a `serve` with this file and environment binds, and how to ask it.

    It is the first listener without TLS, since ApiVersions needs no login; else, by TLS, the first that needs no
    certificate; else the HTTP port. Raises Failure.
    """
    from ottla.config.broker import BrokerConfig
    from ottla.config.errors import ConfigError

    try:
        config = BrokerConfig.load(properties, environ=os.environ)
    except ConfigError as error:
        raise Failure(str(error)) from None
    ways = {PLAIN: (one for one in config.listeners if not one.protocol.endswith("SSL"))}
    ways[TLS] = (one for one in config.listeners if not _wants_certificate(config, one))
    for way, listeners in ways.items():
        for listener in listeners:
            if not listener.port:
                raise Failure(f"listeners={listener}: port 0 is chosen at the start; give --bootstrap-server")
            return _address_here(listener.host, listener.port), way
    if config.ottla_http_listener is None or not config.ottla_http_listener[1]:
        raise Failure(
            "every listener wants a certificate, and ottla.http.listener has no port: "
            "give --bootstrap-server and --command-config"
        )
    return _address_here(*config.ottla_http_listener), HTTP


def _wants_certificate(config: BrokerConfig, listener: Listener) -> bool:
    """Whether a client has to have a certificate. With SASL only a key of the listener itself requires it (KIP-684)."""
    if listener.protocol.has_sasl and "ssl.client.auth" not in config.listener_overrides.get(listener.name, {}):
        return False
    return config.on_listener(listener.name).ssl_client_auth == "required"


def _address_here(host: str, port: int) -> str:
    return host_and_port({"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def _encrypt(connection: socket.socket) -> socket.socket:
    """TLS to the broker of this machine. Its certificate is not checked, since nothing secret is sent."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection)


def _ask_whether_ready(host: str, port: int, timeout_ms: int) -> float:
    """Milliseconds until `/readyz` reported ready. Raises NoAnswer."""
    import time
    from http.client import HTTPConnection, HTTPException

    started = time.perf_counter()
    connection = HTTPConnection(host, port, timeout=timeout_ms / 1000)
    try:
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
    except ConnectionRefusedError as error:
        raise probe.NobodyListens(f"{host_and_port(host, port)}: {error.strerror}") from None
    except (OSError, HTTPException) as error:
        raise probe.NoAnswer(f"{host_and_port(host, port)}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if status != 200:
        raise probe.NoAnswer(f"{host_and_port(host, port)}: not ready, /readyz has status {status}")
    return (time.perf_counter() - started) * 1000
