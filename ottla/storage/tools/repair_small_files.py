"""Repairing the small files of a log directory offline: checkpoints, `meta.properties`, `ottla.format`.

A checkpoint that cannot be read is rewritten from its rows that are still plausible and from the content of the logs,
but is not trusted for more than that:

    recovery-point     no row: all logs are checked from their start, and get a row when they are synced
    log-start-offset   the rows of its copy, if a bit has flipped (`log_start_copy.py`); else rows that are inside their
                       logs; else the log begins with its first segment
    replication-offset rows are not above the log ends
    cleaner-offset     rows inside their logs; a log with gaps gets one, since only the cleaner leaves gaps

A recovery point or a high watermark after its log's end shows what the log has lost, and stays: the log continues there
(`lost_end.py`), unless that offset is impossible. A clean offset after that is lowered to it. A log start after it,
which would hide everything, is set to the first segment. Rows of partitions in other directories stay. Only `repair.py`
calls this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets, write_offsets
from ottla.storage.formats.directory_format import write_format
from ottla.storage.formats.kafka_uuid import uuid_from_text
from ottla.storage.formats.layout import TopicPartition, topic_name_problem
from ottla.storage.formats.log_start_copy import copied_rows, encode_copy
from ottla.storage.formats.meta_properties import MAX_NODE_ID, MetaProperties, write_meta_properties
from ottla.storage.recovery.lost_end import MOST_OFFSETS_OF_A_GAP

if TYPE_CHECKING:
    from ottla.storage.tools.verify import Verification

MendParts = tuple[Path, str, Callable[[], list[str]]]
"""The parts of a `repair.Mend`."""

_ROW: Final = re.compile(rb"([a-zA-Z0-9._-]{1,249}) (0|[1-9][0-9]{0,9}) (0|[1-9][0-9]{0,18})")
_PROPERTY: Final = re.compile(r"([a-z.]+)=([A-Za-z0-9_-]+)")
RECOVERY_POINTS: Final = layout.RECOVERY_POINT_CHECKPOINT_FILE
LOG_STARTS: Final = layout.LOG_START_OFFSET_CHECKPOINT_FILE
HIGH_WATERMARKS: Final = layout.REPLICATION_OFFSET_CHECKPOINT_FILE
CLEANED: Final = layout.CLEANER_OFFSET_CHECKPOINT_FILE
_NAMES: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANED)


class CheckpointMending:
    """The rows of a directory's checkpoints during a repair. `broken`: file name → whether it cannot be read."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        verification: Verification,
        broken: Mapping[str, bool],
        left_alone: Collection[TopicPartition] = (),
    ) -> None:
        """`left_alone`: logs that are rewritten as a whole; their rows show the offsets that they had reached."""
        self.has_lost_recovery_points = broken.get(RECOVERY_POINTS, False)
        self._files = files
        self._directory = directory
        self._verification = verification
        self._left_alone = left_alone
        self._broken = broken
        self._rows: dict[str, dict[TopicPartition, int]] = {}
        self._changes: dict[str, list[str]] = {}
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED):  # the latter are compared with the former
            self._rows[name], self._changes[name] = self._mended(name)

    def mends(self) -> Iterator[MendParts]:
        """The files to write, with the changes in them."""
        for name in _NAMES:
            if self._broken.get(name, False) or self._changes[name]:
                changed = "; ".join(self._changes[name])
                if self._broken.get(name, False):
                    words = f"rewritten with {len(self._rows[name])} rows"
                else:
                    words = "rows that contradict the logs are changed"
                words = f"{words}: {changed}" if changed else words
                yield self._directory / name, words, partial(self._write_one, name, words)

    def _write_one(self, name: str, words: str) -> list[str]:
        self._write(name)
        return [words]

    def _write(self, name: str) -> None:
        if name == LOG_STARTS:
            self._files.write_atomically(self._directory / layout.LOG_START_COPY_FILE, encode_copy(self._rows[name]))
        write_offsets(self._files, self._directory / name, self._rows[name])

    def _mended(self, name: str) -> tuple[dict[TopicPartition, int], list[str]]:
        path = self._directory / name
        is_broken = self._broken.get(name, False)
        copied = copied_rows(self._files, self._directory) if is_broken and name == LOG_STARTS else None
        if copied is not None:
            return copied, ["a bit has flipped; its copy has the rows"]
        try:
            rows = _readable_rows(self._files, path) if is_broken else read_offsets(self._files, path)
        except BrokenFile:
            return {}, []  # empty: Kafka has never written it
        except FileNotFoundError:
            rows = {}  # removed
        if is_broken and name == RECOVERY_POINTS:
            return {}, ["every log is checked from its start"]
        changes: list[str] = []
        for one, end_offset in sorted(self._verification.log_end_offsets.items()):
            if one in self._left_alone:
                continue
            first_offset = self._verification.first_offsets.get(one, 0)
            if name == LOG_STARTS and one in self._verification.begin_late:
                changes.append(f"{one} begins at offset {first_offset}, not {rows.get(one, 0)}")
                rows[one] = first_offset
            elif name == LOG_STARTS and one in rows and rows[one] > self.reached(one):
                changes.append(f"{one} begins at offset {first_offset}, not {rows[one]}")
                rows[one] = first_offset
            elif name == CLEANED and one in rows and rows[one] > self.reached(one):
                changes.append(f"{one} from {rows[one]} to {self.reached(one)}")
                rows[one] = self.reached(one)
            elif name in (RECOVERY_POINTS, HIGH_WATERMARKS) and rows.get(one, 0) - end_offset > MOST_OFFSETS_OF_A_GAP:
                changes.append(f"{one} from {rows[one]} to {end_offset}")
                rows[one] = end_offset
            elif is_broken and name == CLEANED and one not in rows and self._verification.has_gaps(one):
                changes.append(f"{one} has been cleaned before, from offset {first_offset} on it will be again")
                rows[one] = first_offset
            elif is_broken and name == LOG_STARTS and one not in rows:
                changes.append(f"{one} begins at offset {first_offset}, with its first segment")
        return rows, changes

    # -- for the repair of the logs

    def recovery_point(self, one: TopicPartition) -> int:
        """The offset up to which the log is known to be on disk."""
        return self._rows[RECOVERY_POINTS].get(one, 0)

    def log_start_offset(self, one: TopicPartition) -> int:
        """The log start offset, 0 without a row."""
        return self._rows[LOG_STARTS].get(one, 0)

    def reached(self, one: TopicPartition) -> int:
        """The offset that the log had reached, by its checkpoints and its batches: none below is assigned again."""
        return max(self._verification.log_end_offsets.get(one, 0), self.promised(one))

    def promised(self, one: TopicPartition) -> int:
        """The same by its checkpoints alone: the offsets of a damaged batch cannot be trusted."""
        return max(self._rows[name].get(one, 0) for name in (RECOVERY_POINTS, HIGH_WATERMARKS))

    def lower(self, one: TopicPartition, recovery_point: int) -> None:
        """Drop the recovery point before a log is changed after `recovery_point`, so that after a crash the next start
        checks all of it. A lower row would mean that nothing above was cleaned (`missing_offsets.py`). The offset that
        the log had reached stays in the other file. Raises OSError.
        """
        if self._rows[RECOVERY_POINTS].get(one, -1) > recovery_point:
            if self._rows[HIGH_WATERMARKS].get(one, 0) < self.promised(one):
                self._rows[HIGH_WATERMARKS][one] = self.promised(one)
                self._write(HIGH_WATERMARKS)
            del self._rows[RECOVERY_POINTS][one]
            self._write(RECOVERY_POINTS)

    def set_end(self, one: TopicPartition, log_end_offset: int) -> None:
        """Set the rows of a log that was recovered and synced up to its end: higher ones are wrong. Raises OSError."""
        if self._rows[RECOVERY_POINTS].get(one) != log_end_offset:
            self._rows[RECOVERY_POINTS][one] = log_end_offset
            self._write(RECOVERY_POINTS)
        for name in (HIGH_WATERMARKS, CLEANED):
            if self._rows[name].get(one, -1) > log_end_offset:
                self._rows[name][one] = log_end_offset
                self._write(name)


def _readable_rows(files: Files, path: Path) -> dict[TopicPartition, int]:
    """The rows of a broken checkpoint that are whole lines and plausible."""
    rows: dict[TopicPartition, int] = {}
    for line in files.read_bytes(path).splitlines():
        found = _ROW.fullmatch(line)
        if found is None:
            continue
        topic, partition, offset = found[1].decode("ascii"), int(found[2]), int(found[3])
        if topic_name_problem(topic) is None and partition <= layout.MAX_PARTITION and offset <= layout.MAX_OFFSET:
            rows[TopicPartition(topic, partition)] = offset
    return rows


def small_file_mends(
    files: Files, directory: Path, now_ms: int, broken: Mapping[str, bool], node_id: int | None = None
) -> Iterator[MendParts]:
    """The repairs of a `meta.properties` or `ottla.format` that cannot be read. `node_id`: used if it has another."""
    if broken.get(layout.META_PROPERTIES_FILE, False):
        path = directory / layout.META_PROPERTIES_FILE
        properties = _readable_properties(files, path)
        if properties is not None and node_id is not None:
            properties = properties._replace(node_id=node_id)
        if properties is None:
            aside = path.with_name(f"{path.name}.corrupt-{now_ms}")
            words = f"quarantined as {aside.name}: the next start writes one, with the node.id of its configuration"
            yield path, words, partial(_rename, files, path, aside, words)
        else:
            words = f"rewritten: cluster.id {properties.cluster_id}, node.id {properties.node_id}"
            yield path, words, partial(_write_properties, files, directory, properties, words)
    if broken.get(layout.FORMAT_FILE, False):
        words = "rewritten"
        yield directory / layout.FORMAT_FILE, words, partial(_write_format, files, directory, words)


def _readable_properties(files: Files, path: Path) -> MetaProperties | None:
    """The content of the readable lines; None when it is not enough."""
    text = files.read_bytes(path).decode("utf-8", "replace")
    values: dict[str, str] = {found[1]: found[2] for found in map(_PROPERTY.fullmatch, text.splitlines()) if found}
    node_id = values.get("node.id", values.get("broker.id", ""))
    if not values.get("cluster.id") or not node_id.isdecimal() or int(node_id) > MAX_NODE_ID:
        return None
    try:
        directory_id = uuid_from_text(values["directory.id"])
    except (KeyError, ValueError):
        directory_id = None  # the next start makes one
    return MetaProperties(values["cluster.id"], int(node_id), directory_id)


def _rename(files: Files, path: Path, aside: Path, words: str) -> list[str]:
    files.rename(path, aside)
    files.sync_directory(path.parent)
    return [words]


def _write_properties(files: Files, directory: Path, properties: MetaProperties, words: str) -> list[str]:
    write_meta_properties(files, directory, properties)
    return [words]


def _write_format(files: Files, directory: Path, words: str) -> list[str]:
    write_format(files, directory)
    return [words]
