"""Signs of log starts that were lost, or never written: in the names of files and in the small files.

A log that begins after its log start has lost its first segments, unless `.deleted` files show that retention was
freeing them when the broker died. A directory without `log-start-offset-checkpoint` that must have had one has lost it.
The functions only report facts: the callers, a start or a tool, decide what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.leader_epoch_checkpoint import read_leader_epochs
from ottla.storage.formats.meta_properties import read_meta_properties

if TYPE_CHECKING:
    from ottla.storage.files.files import Files
    from ottla.storage.formats.layout import TopicPartition


def begins_late(files: Files, path: Path, first_base_offset: int, log_start_offset: int) -> bool:
    """Whether a log that was stopped cleanly lacks its first segments: it begins after its log start, and its leader
    epochs, which are deleted with the segments, begin before its first segment.

    Apache Kafka writes no log start for a log that begins with its first segment; Ottla always writes it.
    """
    if first_base_offset <= log_start_offset:
        return False
    try:
        epochs = read_leader_epochs(files, path)
    except BrokenFile:
        return False
    return bool(epochs) and epochs[0].start_offset < first_base_offset


def has_freed(files: Files, path: Path, first_base_offset: int) -> bool:
    """Whether segments before the first one wait to be unlinked: retention freed them, and a crash came before the log
    start was written, which happens before the first of them is unlinked. Raises OSError.
    """
    parsed = (
        layout.parse_offset_file(name)
        for name in files.list_directory(path)
        if name.endswith(layout.LOG_SUFFIX + layout.DELETED_SUFFIX)
    )
    return any(found is not None and found.offset < first_base_offset for found in parsed)


def freed_starts(
    files: Files, root: Path, partitions: Iterable[TopicPartition], starts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The starts of logs whose first segments retention was freeing when the broker died, if they are after the written
    `starts`. They must be written before a start removes the `.deleted` files. Raises OSError.
    """
    freed = {}
    for one in partitions:
        path = root / layout.partition_directory_name(*one)
        # A segment that the cleaner was swapping in begins where the first of those began that it replaces.
        names = (name.removesuffix(layout.SWAP_SUFFIX) for name in files.list_directory(path))
        parsed = map(layout.parse_offset_file, names)
        bases = [found.offset for found in parsed if found is not None and found.suffix == layout.LOG_SUFFIX]
        first = min(bases, default=0)
        if first > starts.get(one, 0) and has_freed(files, path, first):
            freed[one] = first
    return freed


def has_lost_starts(files: Files, directory: Path, *, is_ours: bool) -> bool:
    """Whether `log-start-offset-checkpoint` existed once. Ottla writes it before `ottla.format`; Kafka with KRaft
    creates it before it opens a log.
    """
    if files.exists(directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE):
        return False
    if is_ours:
        return True
    try:
        owner = read_meta_properties(files, directory)
    except BrokenFile:
        return False
    return (
        owner is not None
        and owner.version == 1
        and files.exists(directory / layout.RECOVERY_POINT_CHECKPOINT_FILE)
        and files.exists(directory / layout.CLEAN_SHUTDOWN_FILE)
    )
