"""`ottla config`: the configuration with which `ottla serve` would start, and what set each key. It asks no broker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.broker_options import override_option
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.parameters import FilePath
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.options import Option


@click.command(short_help="Show the configuration that serve would start with.")
@click.argument(
    "properties", required=False, type=FilePath(path_type=Path, readable=False), metavar="[SERVER.PROPERTIES]"
)
@override_option("As for `ottla serve`.")
@click.option("--effective", is_flag=True, help="Every key with the value in effect, including defaults.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per key.")
def config(properties: Path | None, overrides: tuple[str, ...], effective: bool, as_json: bool) -> None:
    """Show the keys that SERVER.PROPERTIES, the environment and --override set, their values, and where each was set.

    A wrong value gives one line and exit status 1, as it would for `serve`, so this also checks a configuration.
    Warnings go to standard error.

    \b
    Examples:
      ottla config server.properties
      KAFKA_NUM_PARTITIONS=4 ottla config --effective --json | jq .
    """
    from ottla.config.broker import ALL_BROKER_KEYS, BrokerConfig
    from ottla.config.created_topic_settings import check_created_topics
    from ottla.config.errors import ConfigError
    from ottla.config.memory import memory_limit
    from ottla.config.sources import split_overrides

    try:
        loaded = BrokerConfig.load(
            properties, environ=os.environ, overrides=split_overrides(overrides), memory_bytes=memory_limit()
        )
        if loaded.ottla_create_topics:
            check_created_topics(loaded)
    except ConfigError as error:
        raise Failure(str(error)) from None
    for warning in loaded.warnings:
        click.echo(f"ottla: {warning}", err=True)
    rows = [
        _row(loaded, option)
        for key, option in sorted(ALL_BROKER_KEYS.items())
        if (effective and not option.inert) or key in loaded.values
    ]
    rows += [_listener_row(loaded, key) for key in sorted(loaded.origins) if key not in ALL_BROKER_KEYS]
    with closed_pipe_ends_quietly():
        if as_json:
            for row in rows:
                click.echo(json.dumps(row))
        elif rows:
            columns = [(row["name"], _shown(row["value"]), _origin(row)) for row in rows]
            click.echo("\n".join(table_lines(columns, ("key", "value", "set by"))))
        else:
            click.echo("nothing is set; --effective shows every key")


def _row(loaded: BrokerConfig, option: Option) -> dict[str, object]:
    """The value in effect and the key that set it: the key itself, or the one from which it inherits."""
    winner = next((link for link in option.chain() if link.key in loaded.values), option)
    return {
        "name": option.key,
        "value": "[hidden]" if option.is_sensitive else option.show(option.effective(loaded.values)),
        "origin": str(loaded.origin_of(winner.key)),
        "origin_kind": loaded.origin_of(winner.key).kind.name.lower(),
        "set_by_key": winner.key,
        "is_without_effect": bool(option.inert),
    }


def _listener_row(loaded: BrokerConfig, key: str) -> dict[str, object]:
    """A key of one listener (`listener.name.NAME.KEY`). An unknown key may be a secret, too."""
    from ottla.config.on_listener import listener_option

    origin, option = loaded.origin_of(key), listener_option(key)
    listener, _, own = key.removeprefix("listener.name.").partition(".")
    is_shown = option is not None and not option.is_sensitive
    return {
        "name": key,
        "value": loaded.listener_overrides[listener.upper()][own] if is_shown else "[hidden]",
        "origin": str(origin),
        "origin_kind": origin.kind.name.lower(),
        "set_by_key": key,
        "is_without_effect": loaded.has_no_effect_on_its_listener(key),
    }


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _origin(row: dict[str, object]) -> str:
    words = str(row["origin"])
    if row["set_by_key"] != row["name"]:
        words = f"{row['set_by_key']} ({words})"
    return f"{words}, without effect" if row["is_without_effect"] else words
