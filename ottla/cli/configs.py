"""`ottla configs describe`: the configuration of a running broker, its topics and groups, as the broker reports it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, is_digits
from ottla.cli.tables import table_lines

if TYPE_CHECKING:
    from ottla.client import Admin, AdminError, ConfigEntry, ConfigResource

EVERY_BROKER = "every"

topic_option = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    type=NAME,
    shell_complete=suggestions.topics,
    help="This topic. May be repeated.",
)
group_option = click.option(
    "-g",
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    type=NAME,
    shell_complete=suggestions.groups,
    help="This consumer group. May be repeated.",
)


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "describe": ("ottla.cli.configs:describe", "Show each key's value and what set it."),
        "alter": ("ottla.cli.configs_alter:alter", "Change keys of topics, brokers and groups."),
    },
    short_help="Show and change the configuration of topics, brokers and groups.",
)
def configs() -> None:
    """Show and change the configuration of topics, brokers and groups in a running broker."""


@click.command()
@bootstrap_server
@topic_option
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    is_flag=False,
    flag_value=EVERY_BROKER,
    metavar="[ID]",
    help="The broker with this node id; without an id every broker.  [default: unless a topic is named]",
)
@click.option("--all-brokers", is_flag=True, help="The keys that are set for all brokers while they run.")
@group_option
@click.option(
    "--loggers",
    multiple=True,
    is_flag=False,
    flag_value=EVERY_BROKER,
    metavar="[ID]",
    help="The levels of the loggers of the broker with this node id; without an id of every broker.",
)
@click.option("-a", "--all", "with_defaults", is_flag=True, help="Every key, also those with their default.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per topic and broker.")
def describe(
    servers: str,
    topics: tuple[str, ...],
    brokers: tuple[str, ...],
    all_brokers: bool,
    groups: tuple[str, ...],
    loggers: tuple[str, ...],
    with_defaults: bool,
    as_json: bool,
) -> None:
    """Show each key that is set, its value, and what set it: the topic or the broker. With --all also the defaults.

    \b
    Examples:
      ottla configs describe
      ottla configs describe --topic orders --all
      ottla configs describe --topic orders --broker --json
    """
    for option, given in (("--broker", brokers), ("--loggers", loggers)):
        for one in given:
            if one != EVERY_BROKER and not is_digits(one):
                raise click.BadParameter(f"{one!r} is not a node id", param_hint=option)
    if not (topics or groups or all_brokers or loggers or brokers):
        brokers = (EVERY_BROKER,)

    async def look(admin: Admin) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        from ottla.client import AdminError, ConfigResource

        resources = [ConfigResource.topic(name) for name in dict.fromkeys(topics)]
        resources += [ConfigResource.group(name) for name in dict.fromkeys(groups)]
        if all_brokers:
            resources.append(ConfigResource.all_brokers())
        every = []
        if EVERY_BROKER in (*brokers, *loggers):
            every = [one.node_id for one in (await admin.describe_cluster()).brokers]
        resources += [ConfigResource.broker(node_id) for node_id in _node_ids(brokers, every)]
        resources += [ConfigResource.loggers(node_id) for node_id in _node_ids(loggers, every)]
        try:
            return await admin.describe_configs(resources, include_synonyms=True)
        except AdminError as refused:
            raise named_by_words(refused, resources) from None

    found = with_admin(servers, "ottla-configs", look)
    with closed_pipe_ends_quietly():
        for number, (resource, entries) in enumerate(found.items()):
            shown = [entries[name] for name in sorted(entries) if with_defaults or not entries[name].is_default]
            if as_json:
                click.echo(json.dumps(_to_json(resource, shown)))
                continue
            if number:
                click.echo()
            click.echo(click.style(resource_words(resource), bold=True))
            rows = [(one.name, value_words(one), origin_words(one)) for one in shown]
            for line in (
                table_lines(rows, ("key", "value", "set by")) if rows else ["nothing is set; --all lists all keys"]
            ):
                click.echo(f"  {line}")


def _node_ids(named: Sequence[str], every: Sequence[int]) -> list[int]:
    chosen = (every if one == EVERY_BROKER else [int(one)] for one in named)
    return list(dict.fromkeys(node_id for node_ids in chosen for node_id in node_ids))


def resource_words(resource: ConfigResource) -> str:
    """A resource for people: `topic orders`, `broker 1`, `all brokers`, `loggers of broker 1`."""
    from ottla.client.admin_results import ConfigResourceType

    if resource.type == ConfigResourceType.BROKER_LOGGER:
        return f"loggers of broker {resource.name}"
    if resource == resource.all_brokers():
        return "all brokers"
    return f"{resource.type.name.lower()} {resource.name}"


def named_by_words(refused: AdminError, resources: Iterable[ConfigResource]) -> AdminError:
    """The refusals with `broker 1` and `all brokers` in place of `1` and the empty name; topics keep theirs."""
    from ottla.client import AdminError
    from ottla.client.admin_results import ConfigResourceType

    words = {one.name: resource_words(one) for one in resources if one.type != ConfigResourceType.TOPIC}
    return AdminError({words.get(name, name): error for name, error in refused.errors.items()})


def value_words(entry: ConfigEntry) -> str:
    """The value for people: secrets are never shown."""
    if entry.is_sensitive:
        return "[hidden]"
    return "" if entry.value is None else entry.value


def origin_words(entry: ConfigEntry) -> str:
    """The place where it is set; for an inherited value, the key of the broker that sets it."""
    from ottla.client import ConfigSource

    words = {
        ConfigSource.TOPIC: "topic",
        ConfigSource.DYNAMIC_BROKER: "broker, while it runs",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, while they run",
        ConfigSource.STATIC_BROKER: "broker",
        ConfigSource.DEFAULT: "default",
        ConfigSource.DYNAMIC_BROKER_LOGGER: "logger",
        ConfigSource.GROUP: "group",
    }
    word = next((text for source, text in words.items() if source == entry.source), f"source {entry.source}")
    winner = entry.synonyms[0] if entry.synonyms else None
    if winner is not None and winner.source != ConfigSource.DEFAULT and winner.name != entry.name:
        return f"{word} ({winner.name}={winner.value})"
    return word


def _to_json(resource: ConfigResource, entries: list[ConfigEntry]) -> dict[str, object]:
    return {
        "type": resource.type.name.lower(),
        "name": resource.name,
        "configs": [
            {
                "name": one.name,
                "value": one.value,
                "origin": _source_name(one.source),
                "is_read_only": one.is_read_only,
                "is_sensitive": one.is_sensitive,
                "synonyms": [
                    {"name": each.name, "value": each.value, "origin": _source_name(each.source)}
                    for each in one.synonyms
                ],
            }
            for one in entries
        ],
    }


def _source_name(source: int) -> str:
    """`STATIC_BROKER`; the number of a source that is newer than this program."""
    from ottla.client import ConfigSource

    try:
        return ConfigSource(source).name
    except ValueError:
        return str(source)
