"""`ottla log dirs`: the log directories of running brokers, the room in them, and what takes it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from ottla.cli import suggestions
from ottla.cli.admin import with_admin
from ottla.cli.client_options import bootstrap_server
from ottla.cli.failures import closed_pipe_ends_quietly
from ottla.cli.parameters import NAME
from ottla.cli.show import one_line
from ottla.cli.tables import table_lines
from ottla.shown import counted, shown_bytes

if TYPE_CHECKING:
    from ottla.client import Admin, LogDirDescription, ReplicaDescription, TopicPartition

_Replicas = Mapping["TopicPartition", "ReplicaDescription"]


@click.command(short_help="Show the log directories of a running broker, and what takes room in them.")
@click.argument("topics", nargs=-1, metavar="[TOPIC]...", type=NAME, shell_complete=suggestions.topics)
@bootstrap_server
@click.option("-l", "--long", "is_long", is_flag=True, help="Each partition, and not only each topic.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per directory, with its partitions.")
def dirs(topics: tuple[str, ...], servers: str, is_long: bool, as_json: bool) -> None:
    """Show the log directories of a running broker (its log.dirs): the room that is left on the volume, whether the
    directory is offline, and the topics in it, the largest first. With TOPIC: only these topics.

    A directory goes offline when its disk fails; the broker's log says why.

    \b
    Examples:
      ottla log dirs
      ottla log dirs --long | head
      ottla log dirs orders --json
    """
    found = with_admin(servers, "ottla-log", lambda admin: _describe(admin, topics))
    with closed_pipe_ends_quietly():
        for number, (node_id, directory) in enumerate(
            (one, each) for one, several in found.items() for each in several
        ):
            if as_json:
                click.echo(json.dumps(_to_json(node_id, directory)))
                continue
            if number:
                click.echo()
            broker = f"broker {node_id}: " if len(found) > 1 else ""
            click.echo(broker + click.style(one_line(directory.path), bold=True))
            for line in _lines(directory, is_long=is_long):
                click.echo(f"  {line}")


async def _describe(admin: Admin, topics: Sequence[str]) -> dict[int, list[LogDirDescription]]:
    from ottla.client import TopicPartition

    if not topics:
        return await admin.describe_log_dirs()
    described = await admin.describe_topics(list(dict.fromkeys(topics)))
    return await admin.describe_log_dirs(
        [TopicPartition(name, one.partition) for name, topic in described.items() for one in topic.partitions]
    )


def _lines(directory: LogDirDescription, *, is_long: bool) -> Iterator[str]:
    if directory.error is not None:
        yield f"{click.style('offline', fg='red')}: {directory.error.message} ({directory.error.code.name})"
        return
    replicas = directory.replicas
    held = sum(one.size_bytes for one in replicas.values())
    topics = counted(len({one.topic for one in replicas}), "topic")
    cordoned = "; cordoned: it takes no new partitions" if directory.is_cordoned else ""
    yield f"{_room(directory)}; {counted(len(replicas), 'partition')} of {topics}, {shown_bytes(held)}{cordoned}"
    if replicas:
        yield from _partition_lines(replicas) if is_long else _topic_lines(replicas)


def _room(directory: LogDirDescription) -> str:
    if directory.usable_bytes < 0 or directory.total_bytes < 0:  # a broker before Kafka 3.3 does not report them
        return "the free space is not known"
    return f"{shown_bytes(directory.usable_bytes)} of {shown_bytes(directory.total_bytes)} free"


def _topic_lines(replicas: _Replicas) -> list[str]:
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for partition, replica in replicas.items():
        sizes[partition.topic] += replica.size_bytes
        counts[partition.topic] += 1
    rows = [(topic, counts[topic], sizes[topic]) for topic in sorted(counts, key=lambda one: (-sizes[one], one))]
    return table_lines(rows, ("topic", "partitions", "bytes"))


def _partition_lines(replicas: _Replicas) -> list[str]:
    in_order = sorted(replicas.items(), key=lambda one: (-one[1].size_bytes, one[0]))
    rows = [(*partition, replica.size_bytes, _remark(replica)) for partition, replica in in_order]
    return table_lines(rows, ("topic", "partition", "bytes", ""))


def _remark(replica: ReplicaDescription) -> str:
    return f"moving here, {counted(replica.offset_lag, 'offset')} left" if replica.is_future else ""


def _to_json(node_id: int, directory: LogDirDescription) -> dict[str, object]:
    return {
        "broker": node_id,
        "directory": directory.path,
        "error": None if directory.error is None else directory.error.code.name,
        "is_cordoned": directory.is_cordoned,
        "total_bytes": None if directory.total_bytes < 0 else directory.total_bytes,
        "usable_bytes": None if directory.usable_bytes < 0 else directory.usable_bytes,
        "size_bytes": sum(one.size_bytes for one in directory.replicas.values()),
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "size_bytes": replica.size_bytes,
                "offset_lag": replica.offset_lag,
                "is_future": replica.is_future,
            }
            for partition, replica in sorted(directory.replicas.items())
        ],
    }
