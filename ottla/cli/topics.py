"""`ottla topics`: create, list, describe, grow and delete topics; `topics_delete_records.py` has another command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import Failure, closed_pipe_ends_quietly
from ottla.cli.lazy import LazyGroup
from ottla.cli.parameters import NAME, Number, Option
from ottla.cli.tables import table_lines
from ottla.shown import counted
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.layout import OFFSETS_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from ottla.client import Admin, ConfigEntry, OffsetAndTimestamp, TopicDescription, TopicPartition

_T = TypeVar("_T")

_KEPT_IN = {
    OFFSETS_TOPIC: "the committed offsets of all groups",
    TRANSACTIONS_TOPIC: "all transactional ids and the state of their transactions",
    SHARE_GROUP_STATE_TOPIC: "the state of all share groups",
}
"""The data that is lost with an internal topic."""
NOT_DONE = " (not done, only checked)"
"""The end of each line of a command with --dry-run."""


@click.group(
    cls=LazyGroup,
    commands_by_name={
        "create": ("ottla.cli.topics:create", "Create topics."),
        "list": ("ottla.cli.topics:list_topics", "List the topics, one per line."),
        "describe": ("ottla.cli.topics:describe", "Show a topic's partitions, offsets and configuration."),
        "alter": ("ottla.cli.topics:alter", "Add partitions to topics."),
        "delete": ("ottla.cli.topics:delete", "Delete topics with all their records."),
        "delete-records": (
            "ottla.cli.topics_delete_records:delete_records",
            "Delete a topic's records before an offset or a time.",
        ),
    },
    short_help="Create, list, describe, alter and delete topics, and delete records.",
)
def topics() -> None:
    """Create, list, describe, alter and delete topics, and delete records."""


def split_config(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str | None]:
    """`KEY=VALUE` as a topic's configuration."""
    configs: dict[str, str | None] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        configs[key] = text
    return configs


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", type=NAME)
@bootstrap_server
@click.option(
    "--partitions",
    cls=Option,
    old=["-p"],
    type=Number(1, 2**31 - 1),
    metavar="N",
    help="How many.  [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor",
    type=Number(1, 2**15 - 1),
    metavar="N",
    help="Copies.  [default: the broker's, 1 on one node]",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    callback=split_config,
    shell_complete=suggestions.topic_pairs,
    help="Set a key of the topic, such as retention.ms=-1. May be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="A topic that exists already is not an error.")
@click.option("--dry-run", is_flag=True, help="Only check whether it could be done.")
def create(
    names: tuple[str, ...],
    servers: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: dict[str, str | None],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics. They accept records when the command ends; of thousands
    of partitions some follow.

    \b
    Example:
      ottla topics create orders --partitions 4 --config retention.ms=-1
    """

    async def create_all(admin: Admin) -> list[str]:
        from ottla.client import AdminError, ErrorCode, NewTopic

        wanted = [NewTopic(name, partitions or -1, replication_factor or -1, configs) for name in names]
        try:
            await admin.create_topics(wanted, validate_only=dry_run)
        except AdminError as refused:
            existing = [name for name, error in refused.errors.items() if error.code is ErrorCode.TOPIC_ALREADY_EXISTS]
            if not if_not_exists or len(existing) < len(refused.errors):
                raise
            return existing
        return []

    existing = _with_admin(servers, create_all)
    for name in names:
        done = f"{name} can be created{NOT_DONE}" if dry_run else f"created {name}"
        click.echo(f"{name} exists already" if name in existing else done)


@click.command("list")
@bootstrap_server
@click.option("-a", "--all", "with_internal", is_flag=True, help="Internal topics too.")
@click.option("-l", "--long", "is_long", is_flag=True, help="With partitions and offsets.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def list_topics(servers: str, with_internal: bool, is_long: bool, as_json: bool) -> None:
    """List the topics, one per line."""

    async def look(admin: Admin) -> tuple[dict[str, TopicDescription], _Edges]:
        found = await admin.describe_topics()
        shown = {name: topic for name, topic in sorted(found.items()) if with_internal or not topic.is_internal}
        return shown, await _edges(admin, shown) if is_long or as_json else {}

    found, edges = _with_admin(servers, look)
    with closed_pipe_ends_quietly():
        if as_json:
            for topic in found.values():
                click.echo(json.dumps(_topic_to_json(topic, edges)))
        elif is_long:
            rows = [(name, len(topic.partitions), _records(topic, edges)) for name, topic in found.items()]
            click.echo(_table(rows, ("topic", "partitions", "records")))
        else:
            for name in found:
                click.echo(name)


@click.command()
@click.argument("names", nargs=-1, metavar="[TOPIC]...", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option(
    "-a",
    "--all",
    "with_defaults",
    cls=Option,
    old=["--configs"],
    is_flag=True,
    help="Every configuration key, also those left at the default.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def describe(names: tuple[str, ...], servers: str, with_defaults: bool, as_json: bool) -> None:
    """Show the partitions, offsets and configuration of topics. Without a name: of all topics that are not internal."""

    async def look(admin: Admin) -> tuple[dict[str, TopicDescription], _Edges, dict[str, list[ConfigEntry]]]:
        from ottla.client import ConfigResource

        found = await admin.describe_topics(names or None)
        shown = {name: topic for name, topic in sorted(found.items()) if names or not topic.is_internal}
        configs = await admin.describe_configs([ConfigResource.topic(name) for name in shown]) if shown else {}
        by_name = {resource.name: list(entries.values()) for resource, entries in configs.items()}
        return shown, await _edges(admin, shown), by_name

    found, edges, configs = _with_admin(servers, look)
    with closed_pipe_ends_quietly():
        for number, (name, topic) in enumerate(found.items()):
            entries = [one for one in configs.get(name, []) if with_defaults or not one.is_default]
            if as_json:
                keys = {one.name: one.value for one in entries}
                click.echo(json.dumps({**_topic_to_json(topic, edges), "configs": keys}))
                continue
            if number:
                click.echo()
            click.echo(click.style(name, bold=True) + f"   id {uuid_to_text(topic.topic_id)}")
            for one in sorted(entries, key=lambda entry: entry.name):
                click.echo(f"  {one.name}={one.value}{_origin(one)}")
            click.echo(
                _table(_partition_rows(topic, edges), ("partition", "leader", "epoch", "start", "end", "records"))
            )


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option(
    "--partitions",
    cls=Option,
    old=["-p"],
    type=Number(1, 2**31 - 1),
    metavar="N",
    required=True,
    help="The new total number of partitions.",
)
@click.option(
    "--dry-run", cls=Option, old=["--validate-only"], is_flag=True, help="Only check whether it could be done."
)
def alter(names: tuple[str, ...], servers: str, partitions: int, dry_run: bool) -> None:
    """Add partitions to topics. They accept records when the command ends.

    Existing records stay where they are, but new records are spread over all partitions, so the records of one key
    may be in two. A topic never shrinks.

    \b
    Example:
      ottla topics alter orders --partitions 8
    """

    async def grow(admin: Admin) -> dict[str, str]:
        from ottla.client import AdminError

        try:
            await admin.create_partitions(dict.fromkeys(names, partitions), validate_only=dry_run)
        except AdminError as refused:
            return {name: f"{error.message} ({error.code.name})" for name, error in refused.errors.items()}
        return {}

    refused = _with_admin(servers, grow)
    for name in dict.fromkeys(names):
        if name not in refused:
            many = counted(partitions, "partition")
            click.echo(f"{name} can have {many}{NOT_DONE}" if dry_run else f"{name} has {many}")
    if refused:
        raise Failure("; ".join(f"{name}: {words}" for name, words in refused.items()))


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option("--force", is_flag=True, help="Internal topics too.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
def delete(names: tuple[str, ...], servers: str, force: bool, dry_run: bool) -> None:
    """Delete topics with all their records. This cannot be undone.

    Internal topics, such as __consumer_offsets, are refused without --force.
    """
    internal = [f"{name} has {_KEPT_IN[name]}" for name in dict.fromkeys(names) if name in _KEPT_IN]
    if internal and not force:
        raise Failure(f"nothing is deleted: {'; '.join(internal)}; --force deletes internal topics")

    async def delete_all(admin: Admin) -> list[str]:
        if not dry_run:
            await admin.delete_topics(names)
            return [f"deleted {name}" for name in names]
        found = await admin.describe_topics(names)
        edges = await _edges(admin, found)
        return [
            f"{name} can be deleted: {counted(len(topic.partitions), 'partition')}, "
            f"{counted(_records(topic, edges), 'record')}{NOT_DONE}"
            for name, topic in found.items()
        ]

    for line in _with_admin(servers, delete_all):
        click.echo(line)


# --- what they share -------------------------------------------------------------------------------------------------

_Edges = dict["TopicPartition", tuple[int, int]]
"""First offset and log end offset."""


def _with_admin(servers: str, work: Callable[[Admin], Awaitable[_T]]) -> _T:
    return with_admin(servers, "ottla-topics", work)


async def _edges(admin: Admin, topics: dict[str, TopicDescription]) -> _Edges:
    from ottla.client import EARLIEST, LATEST, TopicPartition

    partitions = [TopicPartition(name, one.partition) for name, topic in topics.items() for one in topic.partitions]
    first, end = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(partitions, EARLIEST)), admin.list_offsets(dict.fromkeys(partitions, LATEST))
    )
    return {partition: (_offset(first.get(partition)), _offset(end.get(partition))) for partition in partitions}


def _offset(found: OffsetAndTimestamp | None) -> int:
    return found.offset if found is not None else 0


def _partition_rows(topic: TopicDescription, edges: _Edges) -> list[tuple[object, ...]]:
    from ottla.client import TopicPartition

    rows: list[tuple[object, ...]] = []
    for one in topic.partitions:
        first, end = edges[TopicPartition(topic.name, one.partition)]
        rows.append((one.partition, one.leader_id, one.leader_epoch, first, end, end - first))
    return rows


def _records(topic: TopicDescription, edges: _Edges) -> int:
    return sum(end - first for partition, (first, end) in edges.items() if partition.topic == topic.name)


def _topic_to_json(topic: TopicDescription, edges: _Edges) -> dict[str, object]:
    names = ("partition", "leader", "leader_epoch", "start_offset", "end_offset", "records")
    return {
        "topic": topic.name,
        "id": uuid_to_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "partitions": [dict(zip(names, row, strict=True)) for row in _partition_rows(topic, edges)],
    }


def _origin(entry: ConfigEntry) -> str:
    from ottla.client.admin_results import ConfigSource

    words = {
        ConfigSource.TOPIC: "",
        ConfigSource.DEFAULT: "   (default)",
        ConfigSource.STATIC_BROKER: "   (the broker's)",
        ConfigSource.DYNAMIC_BROKER: "   (the broker's)",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "   (the cluster's)",
    }
    return next((word for source, word in words.items() if source == entry.source), "")


def _table(rows: Sequence[Sequence[object]], headings: tuple[str, ...]) -> str:
    return "\n".join(f"  {line}" for line in table_lines(rows, headings))
