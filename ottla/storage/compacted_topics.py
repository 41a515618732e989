"""Which topics are compacted, by the metadata log of a directory: for tools that have no broker to ask.

Only compaction lets offsets be missing inside of a log, so whoever verifies one has to know. What is read is the
ConfigRecord `cleanup.policy` of each topic, in the newest snapshot and the log behind it; a policy that a broker's
configuration sets for all topics is not in there, but the cleaner's checkpoint has a row for each log that it cleaned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records.batch import CorruptBatch, decode_batch
from ottla.protocol.stored.metadata import ConfigRecord, decode_metadata_record
from ottla.storage import layout
from ottla.storage.files import Files
from ottla.storage.scan import walk

_TOPIC: Final = 2
"""Kafka's ConfigResource.Type.TOPIC."""
_SNAPSHOT_SUFFIX: Final = ".checkpoint"
_BOOTSTRAP: Final = "bootstrap"


def compacted_topics(files: Files, log_directory: Path) -> set[str] | None:
    """Names of compacted topics; None when the directory has no metadata log, or one that cannot be read.

    Raises OSError.
    """
    directory = log_directory / layout.partition_directory_name(layout.CLUSTER_METADATA_TOPIC, 0)
    if not files.is_directory(directory):
        return None
    names = files.list_directory(directory)
    snapshots = [name for name in names if name.endswith(_SNAPSHOT_SUFFIX) and not name.startswith(_BOOTSTRAP)]
    logs = [name for name in names if name.endswith(layout.LOG_SUFFIX)]
    if not logs and not snapshots:
        return None
    found: set[str] = set()
    try:
        for name in (*snapshots[-1:], *logs):
            _read(files, directory / name, found)
    except (CorruptBatch, MalformedMessage):
        return None
    return found


def _read(files: Files, path: Path, found: set[str]) -> None:
    file = files.open(path)
    try:
        for position, header in walk(file.pread, 0, file.size()):
            if header.is_control:
                continue
            for record in decode_batch(file.pread(header.size_bytes, position)):
                told = decode_metadata_record(record.value or b"")
                if isinstance(told, ConfigRecord) and told.resource_type == _TOPIC and told.name == "cleanup.policy":
                    if "compact" in (told.value or ""):
                        found.add(told.resource_name)
                    else:
                        found.discard(told.resource_name)
    finally:
        file.close()
