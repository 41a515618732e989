"""Partitions on the command line: `TOPIC-N`, the name of a directory such as orders-0, and `TOPIC[:P,P]`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failures import Failure
from ottla.storage.formats.layout import DirectoryKind, TopicPartition, parse_partition_directory

if TYPE_CHECKING:
    from ottla import client

DEFAULT_LOG_DIRECTORY = Path("data")
"""The default of `log.dirs`."""


def parse_partition(text: str) -> TopicPartition | None:
    """The partition that `text` names; None if it names none."""
    parsed = parse_partition_directory(text)
    return parsed.topic_partition if parsed is not None and parsed.kind is DirectoryKind.PARTITION else None


def require_partition(text: str) -> TopicPartition:
    """The partition that `text` names. Raises click.BadParameter."""
    partition = parse_partition(text)
    if partition is None:
        raise click.BadParameter(f"{text!r} is not a topic and a partition, such as orders-0", param_hint="TOPIC-N")
    return partition


def find_partition(text: str, log_directory: Path | None) -> tuple[Path, TopicPartition]:
    """(log directory, partition) of `orders-0`, or of a path that ends in it. Raises click.BadParameter."""
    path = Path(text)
    partition = require_partition(path.name)
    return log_directory or (path.parent if "/" in text else DEFAULT_LOG_DIRECTORY), partition


def require_known(topic: str, wanted: Iterable[int], known: Sequence[int]) -> None:
    """Raise Failure for the first of the wanted partitions that the topic does not have."""
    for one in wanted:
        if one not in known:
            raise Failure(f"{topic} has no partition {one}; it has {known[0]} to {known[-1]}")


def choose_partitions(topics: Iterable[str]) -> list[Callable[[client.TopicPartition], bool]]:
    """A predicate of partitions for each `TOPIC` or `TOPIC:P,P`. Raises click.BadParameter."""
    return [_chooser(text) for text in topics]


def _chooser(text: str) -> Callable[[client.TopicPartition], bool]:
    topic, colon, numbers = text.partition(":")
    items = numbers.split(",") if colon else []
    if not topic or not all(item.isdecimal() for item in items):
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:P,P, such as orders:0,2", param_hint="--topic")
    chosen = {int(item) for item in items}
    return lambda one: one.topic == topic and (not chosen or one.partition in chosen)
