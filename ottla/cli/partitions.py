"""Partitions on the command line: `TOPIC-N`, the name of a directory such as orders-0, and `TOPIC[:P,P]`."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.failures import Failure
from ottla.cli.parameters import is_digits
from ottla.storage.formats.layout import DirectoryKind, TopicPartition, parse_partition_directory

if TYPE_CHECKING:
    from ottla import client

DEFAULT_LOG_DIRECTORY = Path("data")
"""The default of `log.dirs`."""
_GIVE_ONE = "give a data directory, one of the broker's log.dirs (--log-dir)"


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


def require_log_directory(directory: Path) -> None:
    """Raise Failure if there is no such directory. Raises OSError."""
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise Failure(f"{directory} {what}: {_GIVE_ONE}")


def require_partition_in(directory: Path, partition: TopicPartition | None) -> None:
    """Raise Failure if there is no such directory, or if it does not have the partition, with what it has instead.
    Raises OSError.
    """
    require_log_directory(directory)
    if partition is None or (path := directory / str(partition)).is_dir():
        return
    found = sorted(one for one in map(parse_partition, os.listdir(directory)) if one is not None)
    numbers = [one.partition for one in found if one.topic == partition.topic]
    if not found:
        advice = f", and {directory} has no partitions: {_GIVE_ONE}"
    elif numbers:
        has = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}, {len(numbers)} in all"
        advice = f": of {partition.topic} there is {has}"
    else:
        near = difflib.get_close_matches(partition.topic, {one.topic for one in found}, n=1)
        meant = next((str(one) for one in found if [one.topic] == near), None)
        advice = (
            f": did you mean {meant}?" if meant else ": another one of the broker's log.dirs may have it (--log-dir)"
        )
    raise Failure(f"{path} is not there{advice}")


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
    if not topic or not all(map(is_digits, items)):
        raise click.BadParameter(f"{text!r} is not TOPIC or TOPIC:P,P, such as orders:0,2", param_hint="--topic")
    chosen = {int(item) for item in items}
    return lambda one: one.topic == topic and (not chosen or one.partition in chosen)
