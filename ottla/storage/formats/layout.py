"""Names of files and directories, exactly Apache Kafka's (4.1), and what they say about topics.

A log directory (one entry of `log.dirs`) has

    .lock  meta.properties  ottla.format  .kafka_cleanshutdown          the directory's own files
    recovery-point-offset-checkpoint  log-start-offset-checkpoint
    replication-offset-checkpoint  cleaner-offset-checkpoint
    ottla-index-offset-checkpoint  ottla-log-start-offset-copy  ottla.clock
    orders-0/                                                           one directory per partition
        00000000000000000000.log .index .timeindex [.txnindex]          a segment: files named by its base offset
        00000000000000004711.snapshot                                   producer state up to offset 4711
        leader-epoch-checkpoint  partition.metadata
    orders-1.9e107d9d372bb6826bd81d3542a419d6-delete/                   a deleted partition, waiting to be unlinked
    orders-2-stray/                                                     a partition that no catalog knows; never deleted

A base offset has 20 digits, enough for 2^63-1. The name of a file that will be unlinked ends in `.deleted`, of one that
the cleaner is writing in `.cleaned`, of one about to replace others in `.swap`. A directory's partition number is after
its **last** `-`, since a topic's name may contain `-`: `first-2-0` is partition 0 of `first-2`. Follows UnifiedLog,
LogFileUtils and Topic of Kafka. Pure: no file is accessed.
"""

from __future__ import annotations

import re
import uuid
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ottla.config import topic_names
from ottla.storage.files import file_interface

MAX_OFFSET = (1 << 63) - 1

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = file_interface.TEMPORARY_SUFFIX

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"

LOCK_FILE = ".lock"
META_PROPERTIES_FILE = "meta.properties"
FORMAT_FILE = "ottla.format"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLOCK_FILE = "ottla.clock"
"""Ottla's: clock_checkpoint.py."""
RECOVERY_POINT_CHECKPOINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT_FILE = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT_FILE = "cleaner-offset-checkpoint"
INDEX_OFFSET_CHECKPOINT_FILE = "ottla-index-offset-checkpoint"
LOG_START_COPY_FILE = "ottla-log-start-offset-copy"
"""Ottla's: index_syncs.py."""
REDO_LOG_FILE = "ottla-redo.log"
"""Ottla's: redo_format.py."""
LEADER_EPOCH_CHECKPOINT_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

CLUSTER_METADATA_TOPIC = topic_names.CLUSTER_METADATA_TOPIC
OFFSETS_TOPIC = topic_names.OFFSETS_TOPIC
TRANSACTIONS_TOPIC = topic_names.TRANSACTIONS_TOPIC
SHARE_GROUP_STATE_TOPIC = topic_names.SHARE_GROUP_STATE_TOPIC
INTERNAL_TOPICS = topic_names.INTERNAL_TOPICS
MAX_TOPIC_NAME_CHARACTERS = topic_names.MAX_TOPIC_NAME_CHARACTERS
topic_name_problem = topic_names.topic_name_problem

MAX_FILE_NAME_BYTES = 255
MAX_PARTITION = (1 << 31) - 1

_PARTITION_DIRECTORY = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")
_MARKED_DIRECTORY = re.compile(r"(?P<stem>.+)\.(?P<unique>[0-9a-f]{32})")
_OFFSET_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z].*)")


class TopicPartition(NamedTuple):
    """A partition by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class DirectoryKind(Enum):
    """The purpose of a directory inside a log directory, by the end of its name."""

    PARTITION = ""
    DELETED = DELETE_DIRECTORY_SUFFIX
    STRAY = STRAY_DIRECTORY_SUFFIX
    FUTURE = FUTURE_DIRECTORY_SUFFIX


class PartitionDirectory(NamedTuple):
    """A parsed directory name. The topic of a deleted directory is shortened if the name was too long."""

    topic_partition: TopicPartition
    kind: DirectoryKind


class OffsetFile(NamedTuple):
    """A parsed file name: its 20-digit offset and the rest, e.g. `.log`, `.log.deleted`, `.index.swap`."""

    offset: int
    suffix: str


def offset_file_name(offset: int, suffix: str) -> str:
    """`00000000000000368769.log` for (368769, ".log"). Raises ValueError for an offset outside 0..2^63-1."""
    if not 0 <= offset <= MAX_OFFSET:
        raise ValueError(f"an offset lies between 0 and {MAX_OFFSET}: {offset}")
    return f"{offset:020d}{suffix}"


def log_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """The record file of the segment at `base_offset`; `suffix`: one of `.deleted`, `.cleaned`, `.swap` or nothing."""
    return directory / offset_file_name(base_offset, LOG_SUFFIX + suffix)


def offset_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """The offset index of the segment at `base_offset`."""
    return directory / offset_file_name(base_offset, INDEX_SUFFIX + suffix)


def time_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """The time index of the segment at `base_offset`."""
    return directory / offset_file_name(base_offset, TIME_INDEX_SUFFIX + suffix)


def txn_index_file(directory: Path, base_offset: int, suffix: str = "") -> Path:
    """The index of aborted transactions of the segment at `base_offset`."""
    return directory / offset_file_name(base_offset, TXN_INDEX_SUFFIX + suffix)


def snapshot_file(directory: Path, offset: int, suffix: str = "") -> Path:
    """The producer state before `offset`."""
    return directory / offset_file_name(offset, SNAPSHOT_SUFFIX + suffix)


def parse_offset_file(name: str) -> OffsetFile | None:
    """Parse the name of a segment's or snapshot's file; None for any other name, or an offset over 2^63-1."""
    match = _OFFSET_FILE.fullmatch(name)
    if match is None or int(match["offset"]) > MAX_OFFSET:
        return None
    return OffsetFile(int(match["offset"]), match["suffix"])


def partition_directory_name(topic: str, partition: int) -> str:
    """`orders-0` for ("orders", 0)."""
    return f"{topic}-{partition}"


def delete_directory_name(topic: str, partition: int, unique_id: uuid.UUID | None = None) -> str:
    """`orders-0.<32 hex digits>-delete`: the name of a deleted partition until it is removed.

    The topic's name is shortened to fit the 255 bytes of a file name, as in Kafka; the unique id distinguishes two
    partitions with the same shortened name, and two topics that had the same name one after the other.
    """
    return _marked_name(topic, partition, DELETE_DIRECTORY_SUFFIX, unique_id)


def name_when_deleted(one: TopicPartition) -> TopicPartition:
    """The topic and partition that `parse_partition_directory` finds in the name of its `-delete` directory."""
    length = MAX_FILE_NAME_BYTES - len(delete_directory_name("", one.partition))
    return TopicPartition(one.topic[:length], one.partition)


def stray_directory_name(topic: str, partition: int, unique_id: uuid.UUID | None = None) -> str:
    """`orders-0.<32 hex digits>-stray`: the name of a partition that the catalog does not know."""
    return _marked_name(topic, partition, STRAY_DIRECTORY_SUFFIX, unique_id)


def _marked_name(topic: str, partition: int, directory_suffix: str, unique_id: uuid.UUID | None) -> str:
    tail = f"-{partition}.{(unique_id or uuid.uuid4()).hex}{directory_suffix}"
    return topic[: MAX_FILE_NAME_BYTES - len(tail)] + tail


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse a directory's name at its last `-`; None for a name that no partition can have."""
    for kind in (DirectoryKind.DELETED, DirectoryKind.STRAY, DirectoryKind.FUTURE):
        if name.endswith(kind.value):
            stem = name.removesuffix(kind.value)
            marked = _MARKED_DIRECTORY.fullmatch(stem)
            # Kafka before 2.x, and administrators, omit the unique id: `orders-0-stray`.
            topic_partition = _parse_topic_partition(marked["stem"] if marked else stem)
            return PartitionDirectory(topic_partition, kind) if topic_partition else None
    topic_partition = _parse_topic_partition(name)
    return PartitionDirectory(topic_partition, DirectoryKind.PARTITION) if topic_partition else None


def _parse_topic_partition(name: str) -> TopicPartition | None:
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match["partition"]) > MAX_PARTITION or topic_name_problem(match["topic"]) is not None:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def may_collide(topic: str) -> bool:
    """Whether another name may have the same `collision_key`."""
    return "." in topic or "_" in topic


def collision_key(topic: str) -> str:
    """Two topics with the same key collide: Kafka's metric names turn `.` into `_`, so `a.b` and `a_b` may not both
    exist.
    """
    return topic.replace(".", "_")
