"""Is what is in a log directory what was written? Read-only, offline, finding by finding.

What a start does not look at, because it is below the recovery point, is checked here, byte by
byte: each batch's header and checksum, the order of offsets, both indexes against the batches, leader epochs, producer
snapshots, checkpoints, and the small files. `verify_log.py` goes through a partition, `verify_index.py` compares
indexes; this module knows the directory, `repair.py` mends what is found. Nothing is locked or written here, so a
directory may be checked that is not ours, or that a running broker appends to: what it appends meanwhile is past
the recovery point.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.shown import counted, shown_bytes
from ottla.storage.directories.blank_checkpoints import CONSEQUENCES, STARTS_LOST, Blank, meaning_of
from ottla.storage.directories.directory_shapes import has_metadata_log, segment_of_0_7, words_of_0_7
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile, read_offsets
from ottla.storage.formats.clock_checkpoint import read_known_time
from ottla.storage.formats.directory_format import FORMAT_VERSION, read_clean_shutdown, read_format
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.layout import DirectoryKind, TopicPartition
from ottla.storage.formats.log_start_copy import bent_row, read_copy
from ottla.storage.formats.lost_starts import begins_late, has_freed, has_lost_starts
from ottla.storage.formats.meta_properties import read_meta_properties
from ottla.storage.formats.partition_metadata import is_flipped, read_partition_metadata
from ottla.storage.recovery.missing_offsets import gaps_before
from ottla.storage.tools.metadata_topics import MetadataTopics, metadata_topics
from ottla.storage.tools.missing_files import missing, strays
from ottla.storage.tools.redone import Redone
from ottla.storage.tools.verify_findings import Counts, Finding, Progress, Promises, Severity, obstacles
from ottla.storage.tools.verify_log import PartitionVerification

__all__ = ["Counts", "Finding", "NothingToVerify", "Severity", "Verification"]

METADATA_DIRECTORY: Final = layout.partition_directory_name(layout.CLUSTER_METADATA_TOPIC, 0)
_CHECKPOINTS: Final = (
    layout.RECOVERY_POINT_CHECKPOINT_FILE,
    layout.LOG_START_OFFSET_CHECKPOINT_FILE,
    layout.REPLICATION_OFFSET_CHECKPOINT_FILE,
    layout.CLEANER_OFFSET_CHECKPOINT_FILE,
)
_MEANINGS: Final = {
    layout.RECOVERY_POINT_CHECKPOINT_FILE: "offsets below {} are promised to be on disk",
    layout.LOG_START_OFFSET_CHECKPOINT_FILE: "the log is said to begin at {}",
    layout.REPLICATION_OFFSET_CHECKPOINT_FILE: "consumers have been shown the offsets below {}",
    layout.CLEANER_OFFSET_CHECKPOINT_FILE: "offsets below {} are said to be compacted",
}


class NothingToVerify(ValueError):
    """There is no such directory, or it is no log directory. One line for people."""


class Verification:
    """One look at a log directory, or at one partition of it. `counts` grows while `run` continues."""

    def __init__(self, files: Files, directory: Path, only: TopicPartition | None = None) -> None:
        """Raises NothingToVerify."""
        self.counts = Counts()
        self._directory = directory
        if not files.is_directory(directory):
            raise NothingToVerify(f"{directory} is not a directory")
        self.redone = files = Redone(files, directory, only)
        """The directory as the next start sees it, with what the logs lack now."""
        self._files = files
        parsed = {name: layout.parse_partition_directory(name) for name in files.list_directory(directory)}
        self._partitions = {
            found.topic_partition: directory / name
            for name, found in parsed.items()
            if found is not None and found.kind is DirectoryKind.PARTITION and files.is_directory(directory / name)
        }
        self._strays = [
            directory / name
            for name, found in parsed.items()
            if found is not None and found.kind is DirectoryKind.STRAY
        ]
        if only is not None:
            if only not in self._partitions:
                raise NothingToVerify(f"{directory / str(only)} is not there")
            self._partitions = {only: self._partitions[only]}
            self._strays = []
        self._refuse_0_7()
        has_properties = files.exists(directory / layout.META_PROPERTIES_FILE)
        if only is None and not has_properties and not any(map(self._has_log, self._partitions)):
            raise NothingToVerify(f"{directory} holds no partition and no {layout.META_PROPERTIES_FILE}")
        self._is_whole = only is None
        self.log_end_offsets: dict[TopicPartition, int] = {}
        self.first_offsets: dict[TopicPartition, int] = {}
        self.gaps_before: dict[TopicPartition, int] = {}
        """Below which offset missing ones are no damage (`missing_offsets.py`)."""
        self.node_id: int | None = None
        """Whose the directory is, where `meta.properties` says it with a flipped bit."""
        self.metadata: MetadataTopics | None = None
        """The topics of the metadata log, after `run`; None while it cannot be read."""
        self.begin_late: set[TopicPartition] = set()
        """Logs that lack their first segments, and that nobody deleted."""
        self._with_gaps: set[TopicPartition] = set()

    def _refuse_0_7(self) -> None:
        if has_metadata_log(self._files, self._directory):
            return  # a start looks at no other partition than its own
        for path in self._partitions.values():
            segment = segment_of_0_7(self._files, path)
            if segment is not None:
                raise NothingToVerify(words_of_0_7(path / segment))

    def partition_directories(self) -> list[Path]:
        """Where the partitions lie that are checked, as far as they are still there."""
        return [path for _, path in sorted(self._partitions.items()) if self._files.is_directory(path)]

    def has_segments(self, partition: TopicPartition) -> bool:
        """Whether a partition that is checked has a `.log`."""
        return self._has_log(partition)

    def has_gaps(self, partition: TopicPartition) -> bool:
        """Whether `run` found offsets missing between two batches of it, allowed or not."""
        return partition in self._with_gaps

    def _has_log(self, partition: TopicPartition) -> bool:
        names = self._files.list_directory(self._partitions[partition])
        return any(name.endswith(layout.LOG_SUFFIX) for name in names)

    def size_bytes(self) -> int:
        """Bytes that `run` looks at: the `.log` files."""
        return sum(map(self._log_bytes, self._partitions.values()))

    def _log_bytes(self, directory: Path) -> int:
        try:
            names = self._files.list_directory(directory)
            return sum(self._files.size(directory / name) for name in names if name.endswith(layout.LOG_SUFFIX))
        except FileNotFoundError:  # of a running broker
            return 0

    def run(self, progress: Progress = lambda size_bytes: None) -> Iterator[Finding]:
        """Every finding, as it is made. Raises OSError when the disk itself fails."""
        for finding in self._findings(progress):
            self.counts.findings[finding.severity] += 1
            yield finding

    def _findings(self, progress: Progress) -> Iterator[Finding]:
        checkpoints: dict[str, dict[TopicPartition, int]] = {}
        has_lost_cleaned = False
        for name in _CHECKPOINTS:
            checkpoints[name], broken = self._checkpoint(name)
            yield from broken
            if broken and name == layout.CLEANER_OFFSET_CHECKPOINT_FILE:
                has_lost_cleaned = True
        was_clean = read_clean_shutdown(self._files, self._directory) is not None
        is_served = not was_clean and self._files.is_locked_elsewhere(self._directory / layout.LOCK_FILE)
        yield from self._redo_log(was_clean=was_clean)
        if self._is_whole:
            yield from obstacles(self._files, self._directory)
            yield from self._small_files()
        self.metadata = reported = metadata_topics(self._files, self._directory)
        if self._is_whole and reported is not None:
            yield from self._owner(reported)
        metadata = self._directory / METADATA_DIRECTORY
        ids = {} if reported is None else {topic: (one, metadata) for topic, one in reported.ids.items()}
        for topic_partition, directory in sorted(self._partitions.items()):
            try:
                yield from self._partition(
                    topic_partition,
                    directory,
                    checkpoints,
                    ids,
                    None if reported is None else reported.compacted,
                    progress,
                    was_clean=was_clean,
                    is_served=is_served,
                    has_lost_cleaned=has_lost_cleaned,
                )
            except FileNotFoundError:
                if self._files.is_directory(directory):
                    raise
                words = "a running broker has deleted it meanwhile: not looked at to its end"
                yield Finding(Severity.NOTE, directory, words)
        if reported is not None:
            yield from strays(self._files, reported, self._directory, self._partitions.keys(), was_clean=was_clean)
        if self._is_whole:
            absent: set[TopicPartition] = set()
            if reported is not None:
                for one, finding in missing(
                    self._files,
                    reported,
                    self._directory,
                    self._partitions.keys(),
                    checkpoints,
                    was_clean=was_clean,
                ):
                    absent.add(one)
                    yield finding
            yield from self._leftovers(checkpoints, absent)

    def _partition(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        checkpoints: dict[str, dict[TopicPartition, int]],
        ids: dict[str, tuple[UUID, Path]],
        compacted: set[str] | None,
        progress: Progress,
        *,
        was_clean: bool,
        is_served: bool,
        has_lost_cleaned: bool,
    ) -> Iterator[Finding]:
        is_ours = self._files.exists(self._directory / layout.FORMAT_FILE)
        self.counts.partitions += 1
        yield from self._identity(topic_partition, directory, ids, was_clean)
        recovery_point = checkpoints[layout.RECOVERY_POINT_CHECKPOINT_FILE].get(topic_partition)
        allows_gaps = self._allows_gaps(topic_partition, compacted, checkpoints[layout.CLEANER_OFFSET_CHECKPOINT_FILE])
        promises = Promises(
            recovery_point or 0,
            checkpoints[layout.LOG_START_OFFSET_CHECKPOINT_FILE].get(topic_partition, 0),
            was_clean,
            allows_gaps,
            gaps_before(
                may_be_cleaned=allows_gaps is not False or has_lost_cleaned,
                clean_offset=checkpoints[layout.CLEANER_OFFSET_CHECKPOINT_FILE].get(
                    topic_partition, 0 if has_lost_cleaned else None
                ),
                recovery_point=recovery_point,
                keeps_order=is_ours and not was_clean,
            ),
            is_ours and is_served,
        )
        going = PartitionVerification(self._files, directory, promises, self.counts, progress)
        self.gaps_before[topic_partition] = promises.gaps_before
        yield from going.run()
        yield from self._beginning(topic_partition, directory, promises, going.first_offset)
        self.log_end_offsets[topic_partition] = going.log_end_offset
        self.first_offsets[topic_partition] = going.first_offset
        if going.has_gaps:
            self._with_gaps.add(topic_partition)
        yield from self._against_the_end(checkpoints, topic_partition, going.log_end_offset)

    def _beginning(
        self, topic_partition: TopicPartition, directory: Path, promises: Promises, first_offset: int
    ) -> Iterator[Finding]:
        start = promises.log_start_offset
        if first_offset <= start:
            return
        if promises.was_clean:
            if not begins_late(self._files, directory, first_offset, start):
                return
        elif self._is_freed(topic_partition, directory, first_offset):
            return
        self.begin_late.add(topic_partition)
        path = self._directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE
        words = (
            f"{topic_partition}: the log begins at offset {start}, and its first segment at {first_offset}: put the"
            " files before it back, or a start begins there"
        )
        yield Finding(Severity.DAMAGE, path, words, offset=start)

    def _is_freed(self, topic_partition: TopicPartition, directory: Path, first_offset: int) -> bool:
        """Whether what is not there may have been deleted, of a directory that was not stopped cleanly: the broker may
        run, and have freed segments since the checkpoints were read.
        """
        if topic_partition.topic == layout.CLUSTER_METADATA_TOPIC:
            return True  # one that was rebuilt begins where its snapshot ends
        if not self._files.exists(self._directory / layout.FORMAT_FILE):
            return True  # Kafka writes where a log starts later
        if has_freed(self._files, directory, first_offset):
            return True
        try:
            rows = read_offsets(self._files, self._directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE)
        except BrokenFile:
            return False
        return first_offset <= rows.get(topic_partition, 0)

    def _allows_gaps(
        self, topic_partition: TopicPartition, compacted: set[str] | None, cleaned: dict[TopicPartition, int]
    ) -> bool | None:
        """Whether offsets may be missing: where the topic is compacted, and where the cleaner has been, Ottla's or
        Kafka's configuration had sent it. None: nobody knows.
        """
        if topic_partition in cleaned:
            return True
        return None if compacted is None else topic_partition.topic in compacted

    def _checkpoint(self, name: str) -> tuple[dict[TopicPartition, int], list[Finding]]:
        path = self._directory / name
        is_ours = self._files.exists(self._directory / layout.FORMAT_FILE)
        if name == layout.LOG_START_OFFSET_CHECKPOINT_FILE and has_lost_starts(
            self._files, self._directory, is_ours=is_ours
        ):
            return {}, [Finding(Severity.DAMAGE, path, f"the file is not there any more: {STARTS_LOST}")]
        notes: list[Finding] = []
        if name == layout.LOG_START_OFFSET_CHECKPOINT_FILE:
            try:
                copy = read_copy(self._files, self._directory)
                bent = None if copy is None else bent_row(self._files, self._directory, copy)
            except BrokenFile as error:
                words = f"{error.problem}: it is rewritten when a log start moves"
                notes.append(Finding(Severity.NOTE, error.path, words))
                copy = bent = None
            if copy is not None and bent is not None:
                return copy.rows, [Finding(Severity.DAMAGE, path, f"{bent}, by {layout.LOG_START_COPY_FILE}")]
        try:
            return read_offsets(self._files, path), notes
        except BlankFile as error:
            meaning = meaning_of(name, has_zeros=error.has_zeros, is_ours=is_ours)
            if meaning is Blank.NEVER_WRITTEN:
                return {}, []
            severity = Severity.DAMAGE if meaning is Blank.REFUSED else Severity.UNSURE
            return {}, [Finding(severity, path, f"{error.problem}: {CONSEQUENCES[name]}")]
        except BrokenFile as error:
            return {}, [_broken(path, error)]

    def _redo_log(self, *, was_clean: bool) -> Iterator[Finding]:
        path = self._directory / layout.REDO_LOG_FILE
        lacking = self.redone.lacking
        if lacking:
            words = (
                f"{counted(len(lacking), 'partition')} lack{'s' if len(lacking) == 1 else ''} bytes that this file has"
                f" ({shown_bytes(sum(lacking.values()))}): the next start writes them. Everything below is said of the"
                " logs with them"
            )
            yield Finding(Severity.UNSURE, path, words)
        elif was_clean and self._is_whole and self._files.exists(path):
            yield Finding(Severity.NOTE, path, "left over, since the last stop was clean: the next start removes it")

    def _small_files(self) -> Iterator[Finding]:
        try:
            if read_meta_properties(self._files, self._directory) is None:
                path = self._directory / layout.META_PROPERTIES_FILE
                yield Finding(Severity.NOTE, path, "the file is not there: no broker has finished a start here")
        except BrokenFile as error:
            yield _broken(error.path, error)
        try:
            version = read_format(self._files, self._directory)
        except BrokenFile as error:
            yield _broken(error.path, error)
        else:
            if version is not None and version > FORMAT_VERSION:
                path = self._directory / layout.FORMAT_FILE
                yield Finding(Severity.NOTE, path, f"version {version} is newer than this Ottla's {FORMAT_VERSION}")
        try:
            read_known_time(self._files, self._directory)
        except BrokenFile as error:
            found = _broken(error.path, error, Severity.NOTE)
            yield found._replace(problem=f"{found.problem}: the next start rewrites it (docs/clock.md)")

    def _owner(self, reported: MetadataTopics) -> Iterator[Finding]:
        """A `node.id` with a flipped bit: a start would be refused, and the metadata knows whose the partitions are."""
        try:
            owner = read_meta_properties(self._files, self._directory)
        except BrokenFile:
            return
        nodes = {node for its in reported.partitions.values() for place in its.values() for node in place.replicas}
        if owner is None or len(nodes) != 1 or owner.node_id in nodes:
            return
        (known,) = nodes
        said, right = str(owner.node_id).encode(), str(known).encode()
        if len(said) == len(right) and (int.from_bytes(said) ^ int.from_bytes(right)).bit_count() == 1:
            self.node_id = known
            words = f"node.id {owner.node_id}, and all partitions are of node {known}: a bit has flipped"
            yield Finding(Severity.DAMAGE, self._directory / layout.META_PROPERTIES_FILE, words)

    def _identity(
        self, topic_partition: TopicPartition, directory: Path, ids: dict[str, tuple[UUID, Path]], was_clean: bool
    ) -> Iterator[Finding]:
        path = directory / layout.PARTITION_METADATA_FILE
        try:
            topic_id = read_partition_metadata(self._files, directory)
        except BrokenFile as error:
            finding = _broken(path, error, Severity.UNSURE if isinstance(error, BlankFile) else Severity.DAMAGE)
            if finding.severity is Severity.DAMAGE:
                finding = finding._replace(
                    problem=f"{finding.problem}: a start leaves the partition away until --repair"
                )
            yield finding
            return
        if topic_id is None:
            yield Finding(Severity.NOTE, path, "the file is not there; the broker writes it when it opens the log")
            return
        known, where = ids.setdefault(topic_partition.topic, (topic_id, directory))
        if known == topic_id:
            return
        problem = f"topic id {uuid_to_text(topic_id)}, while {where.name} says {uuid_to_text(known)}"
        is_leftover = (
            not was_clean and where == self._directory / METADATA_DIRECTORY and not is_flipped(topic_id, known)
        )
        if is_leftover:  # of a topic that was deleted, or lived before under this name
            yield Finding(Severity.UNSURE, path, f"{problem}: the next start takes the directory out of the way")
        else:
            yield Finding(Severity.DAMAGE, path, problem)

    def _against_the_end(
        self, checkpoints: dict[str, dict[TopicPartition, int]], topic_partition: TopicPartition, log_end_offset: int
    ) -> Iterator[Finding]:
        for name in _CHECKPOINTS:
            offset = checkpoints[name].get(topic_partition, 0)
            if offset > log_end_offset:
                problem = f"{topic_partition}: {_MEANINGS[name].format(offset)}, and the log ends at {log_end_offset}"
                yield Finding(Severity.DAMAGE, self._directory / name, problem, offset=offset)

    def _leftovers(
        self, checkpoints: dict[str, dict[TopicPartition, int]], absent: set[TopicPartition]
    ) -> Iterator[Finding]:
        for name, rows in checkpoints.items():
            for topic_partition in sorted(rows.keys() - self._partitions.keys() - absent):
                yield Finding(Severity.NOTE, self._directory / name, f"a row for {topic_partition}, which is not here")
        for path in self._strays:
            words = (
                "renamed by a start, since the metadata did not know it; not checked: `ottla log strays` says why,"
                " and removes it"
            )
            yield Finding(Severity.NOTE, path, words)


def _broken(path: Path, error: BrokenFile, severity: Severity = Severity.DAMAGE) -> Finding:
    return Finding(severity, path, str(error).removeprefix(f"{error.path}: "))
