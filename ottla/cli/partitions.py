"""`TOPIC-N` on the command line: a partition by the name of its directory, such as orders-0."""

from __future__ import annotations

from pathlib import Path

import click

from ottla.storage.formats.layout import DirectoryKind, TopicPartition, parse_partition_directory

DEFAULT_LOG_DIRECTORY = Path("data")
"""Where `ottla serve` keeps its data unless it is told otherwise."""


def parse_partition(text: str) -> TopicPartition | None:
    """The partition that `text` names; None when it can be none."""
    parsed = parse_partition_directory(text)
    return parsed.topic_partition if parsed is not None and parsed.kind is DirectoryKind.PARTITION else None


def require_partition(text: str) -> TopicPartition:
    """The partition that `text` names. Raises click.BadParameter."""
    partition = parse_partition(text)
    if partition is None:
        raise click.BadParameter(f"{text!r} is not a topic and a partition, such as orders-0", param_hint="TOPIC-N")
    return partition


def find_partition(text: str, log_directory: Path | None) -> tuple[Path, TopicPartition]:
    """(log directory, partition) of `orders-0`, or of a path that ends so. Raises click.BadParameter."""
    path = Path(text)
    partition = require_partition(path.name)
    return log_directory or (path.parent if "/" in text else DEFAULT_LOG_DIRECTORY), partition
