"""Partitions without a metadata log: the owner of such a directory, by the files beside them, and the error message.

    `*.kafka` in a partition's directory         Apache Kafka 0.7, a format that no supported version reads
    `meta.properties` of version 0, or none      an Apache Kafka whose topics are in ZooKeeper (until 3.9); before
      with a `broker.id`                         0.10.1 it had no `cluster.id`
    traces of a metadata log                     it was here: the directory was copied without it
    `meta.properties` of version 1, no trace     one of several `log.dirs`, or a copy: nothing here shows which
    no `meta.properties`                         partitions that a person has put into an empty directory

A start refuses all of them before it writes anything, even the lock: without the topics' records every partition would
be renamed to `-stray`. `ottla log verify --repair` creates topics from the partitions, except for those of 0.7.
Read-only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.storage.errors import StorageError
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.formats.layout import (
    CLUSTER_METADATA_TOPIC,
    DirectoryKind,
    TopicPartition,
    parse_partition_directory,
)
from ottla.storage.formats.meta_properties import read_meta_properties

if TYPE_CHECKING:
    from ottla.storage.files.files import Files

METADATA: Final = TopicPartition(CLUSTER_METADATA_TOPIC, 0)
BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
"""A file beside a metadata log (see `ottla.broker.metadata.snapshot`)."""
_VOTERS_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
SEGMENT_OF_0_7: Final = re.compile(r"[0-9]{1,20}\.kafka")


class Shape(Enum):
    """The kinds of log directories that have partitions and no metadata log."""

    ZOOKEEPER = auto()
    COPIED = auto()
    NO_PROPERTIES = auto()
    ONE_OF_SEVERAL = auto()
    """Or a copy without its metadata log and the files beside it."""


def segment_of_0_7(files: Files, path: Path) -> str | None:
    """The name of a segment of Kafka 0.7 in a partition's directory, which has no other. Raises OSError."""
    names = files.list_directory(path)
    if any(name.endswith(layout.LOG_SUFFIX) for name in names):
        return None
    return next((name for name in sorted(names) if SEGMENT_OF_0_7.fullmatch(name)), None)


def words_of_0_7(segment: Path) -> str:
    """The error message for a segment of Kafka 0.7: what it is, and what can be done, in one line."""
    return (
        f"{segment} is of Apache Kafka 0.7, where a file is named by a position in bytes: Ottla does not read that"
        " format, nor does any Kafka since 0.8; start it with Kafka 0.7 and copy its records with the"
        " KafkaMigrationTool of Kafka 0.8, or with a mirror, to an empty directory"
    )


def refuse_0_7(files: Files, directory: Path) -> None:
    """Raise StorageError for a partition of Kafka 0.7 in a log directory. Raises OSError."""
    for path in partitions_in(files, directory):
        segment = segment_of_0_7(files, path)
        if segment is not None:
            raise StorageError(words_of_0_7(path / segment))


def partitions_in(files: Files, directory: Path) -> Iterator[Path]:
    """The partitions' directories in a log directory, the metadata log's left out. Raises OSError."""
    for name in sorted(files.list_directory(directory)):
        parsed = parse_partition_directory(name)
        if (
            parsed is not None
            and parsed.kind is DirectoryKind.PARTITION
            and parsed.topic_partition.topic != CLUSTER_METADATA_TOPIC
            and files.is_directory(directory / name)
        ):
            yield directory / name


def has_metadata_log(files: Files, directory: Path) -> bool:
    """Whether a log directory has a metadata log with a byte or a snapshot in it. Raises OSError."""
    path = directory / str(METADATA)
    if not files.is_directory(path):
        return False
    return any(
        (name.endswith(".checkpoint") and name != _VOTERS_SNAPSHOT)
        or (name.endswith(layout.LOG_SUFFIX) and files.size(path / name))
        for name in files.list_directory(path)
    )


def shape_of(files: Files, directory: Path, others: Sequence[Path] = ()) -> Shape | None:
    """The kind of a log directory; None if it or one of `others` has a metadata log, or it has no partition. Raises
    OSError.
    """
    if any(has_metadata_log(files, one) for one in (directory, *others)):
        return None
    if next(partitions_in(files, directory), None) is None:
        return None
    try:
        properties = read_meta_properties(files, directory)
    except BrokenFile:
        return Shape.COPIED if _has_traces(files, directory) else Shape.ONE_OF_SEVERAL
    if properties is None:
        return Shape.NO_PROPERTIES
    if properties.version == 0:
        return Shape.ZOOKEEPER
    return Shape.COPIED if _has_traces(files, directory) else Shape.ONE_OF_SEVERAL


def _has_traces(files: Files, directory: Path) -> bool:
    if files.exists(directory / BOOTSTRAP_FILE) or files.is_directory(directory / str(METADATA)):
        return True
    try:
        return METADATA in read_offsets(files, directory / layout.RECOVERY_POINT_CHECKPOINT_FILE)
    except BrokenFile:
        return False


def refuse_partitions_without_metadata(files: Files, directories: Sequence[Path]) -> None:
    """Raise StorageError, in one line, where a start on `log.dirs` would rename every partition to `-stray`.

    Nothing is written, and nothing needs to be locked. Returns if a directory cannot be listed: it may have the
    metadata log.
    """
    try:
        there = [path for path in directories if files.is_directory(path)]
        if any(has_metadata_log(files, path) for path in there):
            return
        for path in there:
            refuse_0_7(files, path)
        for path in there:
            shape = shape_of(files, path)
            if shape is not None:
                raise StorageError(_refusal(files, path, shape))
    except OSError:
        return


def _refusal(files: Files, path: Path, shape: Shape) -> str:
    repair = f"`ottla log verify --repair {path}` (and --also for each further one of log.dirs)"
    if shape is Shape.ZOOKEEPER:
        return (
            f"{path} is of an Apache Kafka with ZooKeeper, which has its topics; {repair} makes a metadata log from the"
            " partitions' directories, but without the topics' configurations"
        )
    first = next(partitions_in(files, path), path)
    return (
        f"{first} exists, but the metadata log {path / str(METADATA)} is missing or empty: name the directory that has"
        f" it in log.dirs, or put it back; if there is none, {repair} makes topics of the partitions"
    )
