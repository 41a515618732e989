"""Mending a log directory offline, from what a verification found in it: what would be done, and doing it.

Order, so that a crash anywhere leaves a directory that a start, or another repair, brings to the same end:

1. the directory is locked, so no broker runs on it, and `.kafka_cleanshutdown` goes: whatever comes next, the next
   start is one after a crash (leader epochs grow, what is past the recovery points is checked);
2. what logs lack of the redo log is written, as a start does: none is mended that lacks nothing else;
3. what an interrupted replacement or write has left is finished or removed, as a start does (`leftovers.py`);
4. checkpoints and other small files that cannot be read, or say more than the logs hold, are rewritten;
5. logs: the recovery point is lowered to where the first finding is, then `recovery.open_log` does what it does after a
   crash. What is after damage is quarantined as `<base>.log.corrupt-<ms>`, and said: no sound batch is thrown away. A
   partition in which something is no file (`readable_files.py`) is left as it is: its records may be there;
6. the metadata log, by the `MetadataMender`, which knows its records.

A repair of a sound directory does nothing, and neither does a second repair. Only the command line calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.shown import counted
from ottla.storage.files.files import Files, Lock
from ottla.storage.formats import layout
from ottla.storage.formats.directory_format import remove_clean_shutdown
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.recovery.leftovers import tidy
from ottla.storage.recovery.missing_offsets import ANYWHERE
from ottla.storage.recovery.redo import redo
from ottla.storage.tools.redone import SyncedEnds
from ottla.storage.tools.repair_log import LogMending, mend_leader_epochs, mend_log, mend_transactions
from ottla.storage.tools.repair_small_files import CheckpointMending, small_file_mends
from ottla.storage.tools.verify import Verification
from ottla.storage.tools.verify_findings import Finding, Progress, Severity

METADATA = TopicPartition(layout.CLUSTER_METADATA_TOPIC, 0)
_LEFT_OVER = (layout.DELETED_SUFFIX, layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX, layout.TEMPORARY_SUFFIX)
_SEGMENT_SUFFIXES = (layout.LOG_SUFFIX, layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX)
_METADATA_SNAPSHOT_SUFFIX = ".checkpoint"


class DirectoryInUse(Exception):
    """A broker has the directory: one line for people."""


class Mend(NamedTuple):
    """One thing to mend: where, what will be done, and doing it, which returns what came of it, line by line.

    `question`: a person has to agree first. `is_optional`: nobody knows whether anything is wrong.
    """

    path: Path
    plan: str
    do: Callable[[], list[str]]
    question: str | None = None
    is_optional: bool = False


class MetadataMender(Protocol):
    """Who can read the metadata log, and write it again: `ottla.broker.metadata.rebuild`."""

    def topic_ids(self) -> Mapping[str, UUID]:
        """Ids of the topics that the metadata knows, as far as it can be read."""

    def interrupted(self) -> list[Mend]:
        """What an earlier repair had begun and not finished."""

    def mends(self, has_damage: bool) -> list[Mend]:
        """What has to be done to the metadata log; `has_damage`: there is some in its batches."""

    def problems(self, has_damage: bool) -> list[Finding]:
        """What a start would refuse, that is in no batch's checksum: which file, and why."""

    def is_readable(self, has_damage: bool) -> bool:
        """Whether the log can stay as it is, but for indexes and a torn tail."""


@dataclass(slots=True)
class _Found:
    """What was found in one partition, as far as it decides what to do."""

    first_base_offset: int | None = None
    has_damaged_batches: bool = False
    has_wrong_epochs: bool = False
    has_wrong_transactions: bool = False
    has_broken_identity: bool = False
    snapshots: set[Path] = field(default_factory=set)
    metadata_snapshots: set[Path] = field(default_factory=set)


class Repair:
    """See the module. `look` first, then `plan` or `run`."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        now_ms: int,
        only: TopicPartition | None = None,
        metadata: MetadataMender | None = None,
        agrees: Callable[[str], bool] = lambda question: False,
    ) -> None:
        """`agrees(question)`: whether a person wants what nobody else can decide. Raises NothingToVerify, OSError."""
        self.verification = Verification(files, directory, only)
        self._files = files
        self._directory = directory
        self._now_ms = now_ms
        self._only = only
        self._metadata = metadata
        self._agrees = agrees
        self._found: dict[TopicPartition, _Found] = {}
        self._broken: dict[str, bool] = {}

    def look(self, progress: Progress = lambda size_bytes: None) -> Iterator[Finding]:
        """Every finding of a verification; what they ask for is remembered. Raises OSError."""
        for finding in self.verification.run(progress):
            if finding.severity is not Severity.NOTE:
                self._remember(finding)
            yield finding
        if self._metadata is not None and self._only is None:
            for finding in self._metadata.problems(self._found.get(METADATA, _Found()).has_damaged_batches):
                self.verification.counts.findings[finding.severity] += 1
                yield finding

    def plan(self) -> list[Mend]:
        """What `run` would do, after `look`. Raises OSError."""
        return [*self._lacking(), *self._leftovers(), *self._mends()]

    def run(self, progress: Progress = lambda size_bytes: None) -> Iterator[tuple[Path, str]]:
        """Mend, each thing a path and a line. Does its own looking.

        Raises:
            DirectoryInUse: a broker runs on the directory.
            OSError: the disk failed; another repair continues from there.
        """
        lock = self._lock()
        try:
            yield from self._carry_out([*self._lacking(), *self._leftovers()])
            self.verification = Verification(self._files, self._directory, self._only)
            self._found.clear()
            self._broken.clear()
            for _ in self.look(progress):
                pass
            yield from self._carry_out(self._mends())
        finally:
            lock.release()

    def _lock(self) -> Lock:
        try:
            return self._files.lock(self._directory / layout.LOCK_FILE)
        except BlockingIOError as error:
            raise DirectoryInUse(
                f"{self._directory} is in use by a broker ({error.strerror}): stop it first"
            ) from error

    def _carry_out(self, mends: list[Mend]) -> Iterator[tuple[Path, str]]:
        mends = [one for one in mends if one.question is None or self._agrees(one.question)]
        if mends and self._files.exists(self._directory / layout.CLEAN_SHUTDOWN_FILE):
            remove_clean_shutdown(self._files, self._directory)
            yield self._directory / layout.CLEAN_SHUTDOWN_FILE, "removed: the next start counts as one after a crash"
        for mend in mends:
            for line in mend.do():
                yield mend.path, line

    # -- what was found

    def _is_obstructed(self, path: Path) -> bool:
        """Whether something in a partition's directory is hidden: nothing of it may be mended then."""
        return self._files.is_directory(path) and bool(self._files.obstacles(path))

    def _remember(self, finding: Finding) -> None:
        path = finding.path
        if path in {one for one, _ in self._files.obstacles(path.parent)}:
            return
        if path.parent == self._directory:
            # A row that says too much has an offset; a file that cannot be read has none.
            self._broken[path.name] = self._broken.get(path.name, False) or finding.offset is None
            return
        parsed = layout.parse_partition_directory(path.parent.name)
        if parsed is None:
            return
        found = self._found.setdefault(parsed.topic_partition, _Found())
        name = layout.parse_offset_file(path.name)
        if path.name == layout.PARTITION_METADATA_FILE:
            found.has_broken_identity = True
        elif path.name == layout.LEADER_EPOCH_CHECKPOINT_FILE:
            found.has_wrong_epochs = True
        elif path.name.endswith(layout.TXN_INDEX_SUFFIX):
            found.has_wrong_transactions = True
        elif path.name.endswith(_METADATA_SNAPSHOT_SUFFIX):
            found.metadata_snapshots.add(path)
        elif name is not None and name.suffix == layout.SNAPSHOT_SUFFIX:
            found.snapshots.add(path)
        elif name is not None and name.suffix in _SEGMENT_SUFFIXES:
            known = found.first_base_offset
            # Where offsets are missing between segments, the finding's offset is before the segment that it names.
            first = name.offset if finding.offset is None else min(name.offset, finding.offset)
            found.first_base_offset = first if known is None else min(known, first)
            if name.suffix == layout.LOG_SUFFIX:
                found.has_damaged_batches = True

    # -- what is to be done

    def _lacking(self) -> list[Mend]:
        lacking = self.verification.redone.lacking
        if not lacking:
            return []
        path = self._directory / layout.REDO_LOG_FILE
        what = f"what {counted(len(lacking), 'log')} lack{'s' if len(lacking) == 1 else ''} of it"
        return [Mend(path, f"{what} is written there, as the next start does", self._redo)]

    def _redo(self) -> list[str]:
        written = redo(self._files, self._directory, SyncedEnds(self._files, self._directory).of, self._only)
        return [f"{counted(written, 'segment')} lacked what it has, which is written there"]

    def _leftovers(self) -> list[Mend]:
        mends = [] if self._metadata is None or self._only is not None else self._metadata.interrupted()
        if self._only is None:
            for name in self._files.list_directory(self._directory):
                path = self._directory / name
                if name.endswith(layout.TEMPORARY_SUFFIX) and not self._files.is_directory(path):
                    mends.append(Mend(path, "an unfinished file is removed", partial(self._remove, path)))
        for path in self.verification.partition_directories():
            if self._is_obstructed(path):
                continue
            present = self._files.list_directory(path)
            left = [one for one in present if one.endswith(_LEFT_OVER) and not self._files.is_directory(path / one)]
            orphans = self._indexes_without_log(path)
            if left or orphans:
                what = "what was under way is finished or undone, and unfinished files are removed: "
                names = ", ".join([*left, *orphans])
                mends.append(Mend(path, what + names, partial(self._tidy, path, names)))
        return mends

    def _indexes_without_log(self, path: Path) -> list[str]:
        parsed = [(name, layout.parse_offset_file(name)) for name in self._files.list_directory(path)]
        bases = {one.offset for _, one in parsed if one is not None and one.suffix.startswith(layout.LOG_SUFFIX)}
        suffixes = (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX, layout.TXN_INDEX_SUFFIX)
        return [name for name, one in parsed if one and one.suffix in suffixes and one.offset not in bases]

    def _remove(self, path: Path) -> list[str]:
        self._files.unlink(path)
        self._files.sync_directory(path.parent)
        return ["removed"]

    def _tidy(self, path: Path, names: str) -> list[str]:
        tidy(self._files, path)
        self._files.sync_directory(path)
        return [f"tidied: {names}"]

    def _mends(self) -> list[Mend]:
        mends: list[Mend] = []
        damaged = self._found.get(METADATA, _Found()).has_damaged_batches
        is_rebuilt = self._metadata is not None and not self._metadata.is_readable(damaged)
        checkpoints = CheckpointMending(
            self._files, self._directory, self.verification, self._broken, [METADATA] if is_rebuilt else []
        )
        for path, plan, do in checkpoints.mends():
            mends.append(Mend(path, plan, do))
        if self._only is None:
            node_id = self.verification.node_id
            for path, plan, do in small_file_mends(self._files, self._directory, self._now_ms, self._broken, node_id):
                mends.append(Mend(path, plan, do))
        topic_ids = {} if self._metadata is None else self._metadata.topic_ids()
        for path in self.verification.partition_directories():
            parsed = layout.parse_partition_directory(path.name)
            if parsed is None or self._is_obstructed(path):
                continue
            one = parsed.topic_partition
            found = self._found.get(one, _Found())
            if found.has_broken_identity:
                mends.extend(self._identity(path, one, topic_ids.get(one.topic)))
            if one == METADATA and self._metadata is not None:
                mends.extend(self._older_metadata_snapshots(found))
                if not self._metadata.is_readable(found.has_damaged_batches):
                    continue
            mends.extend(self._log(path, one, found, checkpoints))
        is_obstructed = self._is_obstructed(self._directory / str(METADATA))
        if self._metadata is not None and self._only is None and not is_obstructed:
            found = self._found.get(METADATA, _Found())
            mends.extend(self._metadata.mends(found.has_damaged_batches))
        return mends

    def _older_metadata_snapshots(self, found: _Found) -> Iterator[Mend]:
        for path in sorted(found.metadata_snapshots):
            aside = path.with_name(f"{path.name}.corrupt-{self._now_ms}")
            yield Mend(path, f"quarantined as {aside.name}", partial(self._rename, path, aside))

    def _rename(self, path: Path, aside: Path) -> list[str]:
        if not self._files.exists(path):
            return []
        self._files.rename(path, aside)
        self._files.sync_directory(path.parent)
        return [f"quarantined as {aside.name}"]

    def _identity(self, path: Path, one: TopicPartition, topic_id: UUID | None) -> Iterator[Mend]:
        from ottla.storage.formats.checkpoint import BrokenFile
        from ottla.storage.formats.kafka_uuid import uuid_to_text
        from ottla.storage.formats.partition_metadata import (
            is_flipped,
            read_partition_metadata,
            write_partition_metadata,
        )

        file = path / layout.PARTITION_METADATA_FILE
        try:
            said = read_partition_metadata(self._files, path)
        except BrokenFile:
            said = None

        def write() -> list[str]:
            assert topic_id is not None
            write_partition_metadata(self._files, path, topic_id)
            return [f"rewritten: topic id {uuid_to_text(topic_id)}"]

        if said is None and topic_id is not None:
            yield Mend(file, f"rewritten: topic id {uuid_to_text(topic_id)}, as the metadata says", write)
        elif said is None:
            yield Mend(file, "removed: the broker writes it when it opens the log", partial(self._remove, file))
        elif topic_id is not None and said is not None and is_flipped(said, topic_id):
            yield Mend(file, f"rewritten: topic id {uuid_to_text(topic_id)}, of which a bit has flipped", write)
        elif topic_id is not None and said != topic_id:
            stray = self._directory / layout.stray_directory_name(*one)
            plan = "renamed to -stray: it belongs to another topic id than the metadata's"
            yield Mend(path, plan, partial(self._rename, path, stray))

    def _log(self, path: Path, one: TopicPartition, found: _Found, checkpoints: CheckpointMending) -> Iterator[Mend]:
        if checkpoints.has_lost_recovery_points and self.verification.has_segments(one):
            found.first_base_offset = 0
        end_offset = self.verification.log_end_offsets.get(one, 0)
        has_lost_end = checkpoints.reached(one) > end_offset
        if found.first_base_offset is not None or found.snapshots or has_lost_end:
            start = min(checkpoints.recovery_point(one), end_offset)
            if found.first_base_offset is not None:
                start = min(start, found.first_base_offset)
            mending = LogMending(
                path,
                one,
                recovery_point=start,
                log_end_offset=end_offset,
                gaps_before=self.verification.gaps_before.get(one, ANYWHERE),
                snapshots=sorted(found.snapshots),
            )
            plan = f"checked and synced from offset {start} on as after a crash: indexes are rebuilt"
            if found.has_damaged_batches:
                plan += ", a torn tail is truncated, and what is after damage is quarantined as .corrupt-<ms>"
            if found.snapshots:
                plan += ", producers are taken from the log"
            if has_lost_end:
                reached = checkpoints.reached(one)
                plan += f"; it ends at offset {end_offset} and continues at {reached}, which it had reached"
            yield Mend(path, plan, partial(mend_log, self._files, mending, checkpoints, self._now_ms))
        if found.has_wrong_epochs:
            file = path / layout.LEADER_EPOCH_CHECKPOINT_FILE
            plan = "rewritten from the batches"
            metadata = self.verification.metadata
            current = None if metadata is None else metadata.leader_epoch(one)
            yield Mend(file, plan, partial(mend_leader_epochs, self._files, path, current))
        if found.has_wrong_transactions:
            plan = "the .txnindex files are rewritten from the batches"
            yield Mend(path, plan, partial(mend_transactions, self._files, path))
