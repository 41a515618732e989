"""`ottla registry`: a schema registry with Confluent's REST API, over the topic `_schemas`."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from ottla.cli.client_options import bootstrap_server
from ottla.cli.client_properties import options_of
from ottla.cli.listening import ended_by_signal, listen_option, listening_errors, log_lines, warn_of_others

if TYPE_CHECKING:
    from ottla.registry.log import LogSettings

DEFAULT_LISTEN: Final = "127.0.0.1:8081"
"""Confluent's port, which clients have in their examples."""
DEFAULT_TOPIC: Final = "_schemas"


@click.command(short_help="Serve a schema registry.")
@bootstrap_server
@listen_option(DEFAULT_LISTEN, "the API")
@click.option(
    "--topic",
    default=DEFAULT_TOPIC,
    show_default=True,
    metavar="TOPIC",
    callback=lambda _, __, value: _topic(value),
    help="The compacted topic with the schemas; it is created if it does not exist.",
)
def registry(servers: str, address: tuple[str, int], topic: str) -> None:
    """Serve a schema registry with Confluent's REST API, for Avro, JSON Schema and Protobuf, until Ctrl-C.

    Its URL is printed on standard output: it is the `schema.registry.url` of serializers. The registry is a client: it
    works with Ottla and Apache Kafka, as the user of --command-config. All that it knows is in the topic, in the
    format of Confluent's registry and of Karapace. There is no login.

    \b
    Examples:
      ottla registry
      ottla registry -b kafka.example:9093 --command-config client.properties
      ottla registry --listen 127.0.0.1:0
    """
    settings = _settings(servers, topic)
    host, port = address
    _say_what_is_missing()
    log_lines()
    with suppress(KeyboardInterrupt):  # where the loop has no handlers of signals
        asyncio.run(_serve(settings, host, port))


def _say_what_is_missing() -> None:
    """Avro needs nothing; the packages for the other types of schemas are an extra."""
    if any(find_spec(package) is None for package in ("jsonschema", "proto_schema_parser")):
        line = 'ottla: Avro only: pip install "ottla[registry]" adds JSON Schema and Protobuf'
        click.echo(line, err=True)


def _topic(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) or name in (".", ".."):
        raise click.BadParameter(f"{name!r} is not a topic's name: up to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
    return name


def _settings(servers: str, topic: str) -> LogSettings:
    from ottla.client.consumer_options import ConsumerOptions
    from ottla.client.options import AdminOptions
    from ottla.client.producer_options import ProducerOptions
    from ottla.registry.log import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, LogSettings

    return LogSettings(
        servers,
        topic,
        admin=options_of(AdminOptions, servers, ADMIN_DEFAULTS),
        consumer=options_of(ConsumerOptions, servers, CONSUMER_DEFAULTS),
        producer=options_of(ProducerOptions, servers, PRODUCER_DEFAULTS),
    )


async def _serve(settings: LogSettings, host: str, port: int) -> None:
    from ottla.registry.running import running_registry

    ended = ended_by_signal()
    async with AsyncExitStack() as stack:
        with listening_errors(host, port):
            url = await stack.enter_async_context(running_registry(settings, host, port))
        warn_of_others(host, "all who reach it may register and delete schemas")
        click.echo(url)
        await ended.wait()
