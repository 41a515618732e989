"""The offline rebuild of a damaged `__cluster_metadata-0`, from its readable part and from the partitions.

`salvaged.py` reads the readable part; `found_topics.py` derives the current topics from the partitions' directories.
Users, quotas, and other configurations are those before the damage; a line reports that, for a person to check.

The new log begins with a snapshot. It is built under another name (`.building`), synced, renamed to `.rebuilt`, and
only then replaces the old one, which becomes `-stray` and is never deleted. After a crash in between the next repair
finishes it. Called by the command line only, through `ottla.storage.tools.repair`, under the directory's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.broker.metadata.batches import single_voter
from ottla.broker.metadata.features import TRANSACTION_VERSION_FEATURE
from ottla.broker.metadata.found_topics import reconcile
from ottla.broker.metadata.image import MetadataError
from ottla.broker.metadata.image_records import records_of
from ottla.broker.metadata.journal import METADATA_TOPIC_ID, bootstrap_records
from ottla.broker.metadata.opening import DEFAULT_CONTROLLER
from ottla.broker.metadata.quorum_state import QUORUM_STATE_FILE, QuorumState, read_quorum_state
from ottla.broker.metadata.reading import METADATA_DIRECTORY
from ottla.broker.metadata.salvaged import SalvagedMetadata
from ottla.broker.metadata.snapshot import (
    BOOTSTRAP_FILE,
    VOTERS_SNAPSHOT,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
)
from ottla.shown import counted
from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.directories.directory_shapes import Shape, has_metadata_log, shape_of
from ottla.storage.directories.unfinished_deletions import MAX_NAMES_IN_A_LINE, is_deleted
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile
from ottla.storage.formats.directory_format import read_clean_shutdown
from ottla.storage.formats.kafka_uuid import random_uuid, uuid_to_text
from ottla.storage.formats.meta_properties import MetaProperties, write_meta_properties
from ottla.storage.formats.partition_metadata import read_partition_metadata, write_partition_metadata
from ottla.storage.tools.repair import Mend
from ottla.storage.tools.verify_findings import Finding, Severity

BUILDING: Final = METADATA_DIRECTORY + ".building"
REBUILT: Final = METADATA_DIRECTORY + ".rebuilt"


class MetadataRebuild:
    """See the module; `ottla.storage.tools.repair.MetadataMender`. `others`: its other log directories."""

    def __init__(
        self, files: Files, root: Path, now_ms: int, others: Sequence[Path] = (), node_id: int | None = None
    ) -> None:
        """Read what is readable. `node_id`: the broker's, if no file in the directories has it. Raises OSError."""
        self._files = files
        self._root = root
        self._directory = root / METADATA_DIRECTORY
        self._now_ms = now_ms
        self._salvaged = SalvagedMetadata(files, [root, *others], node_id)
        self._shape = shape_of(files, root, others)
        is_elsewhere = any(has_metadata_log(files, other) for other in others)
        has_traces = files.is_directory(self._directory) or (files.exists(root / BOOTSTRAP_FILE) and not is_elsewhere)
        self._is_here = self._shape is not None or has_traces
        self._was_clean = read_clean_shutdown(files, root) is not None
        if self._is_here and not files.is_directory(root / REBUILT):
            self._salvaged.read()
            if self._shape is Shape.ZOOKEEPER:
                self._salvaged.problem = "its topics are in the ZooKeeper of an Apache Kafka"

    def topic_ids(self) -> Mapping[str, UUID]:
        """Known ids of the topics; none if there is no metadata log and none is missing."""
        return self._salvaged.topic_ids() if self._is_here and not self._may_be_elsewhere else {}

    @property
    def _may_be_elsewhere(self) -> bool:
        """Whether another one of `log.dirs`, which was not named, may have the metadata log."""
        return self._shape is Shape.ONE_OF_SEVERAL

    def is_readable(self, has_damage: bool) -> bool:
        """Whether the log can stay: it can be read, and any damage in it is the torn tail of a crash."""
        if self._salvaged.problem is not None:
            return False
        return not has_damage or not (self._was_clean or self._salvaged.has_damage_inside())

    def problems(self, has_damage: bool) -> list[Finding]:
        """Problems that no batch checksum shows and that a start of Ottla or Kafka would refuse: file and reason."""
        if not self._is_here:
            return []
        if self._may_be_elsewhere:
            words = (
                "it is not here, and nothing shows whether it was: name the log directory that has it with --also; a"
                " start on this one alone is refused, until --repair makes topics of what is there"
            )
            return [Finding(Severity.NOTE, self._directory, words)]
        found = [Finding(Severity.DAMAGE, path, problem) for path, problem in self._unreadable_files()]
        if self._salvaged.problem is not None and not has_damage:
            found.insert(0, Finding(Severity.DAMAGE, self._directory, self._salvaged.problem))
        return found

    def _unreadable_files(self) -> list[tuple[Path, str]]:
        """The unreadable ones of `quorum-state` and two files that only Kafka reads: `bootstrap.checkpoint` and the
        snapshot of the voters.
        """
        found = []
        for path in (self._root / BOOTSTRAP_FILE, self._directory / VOTERS_SNAPSHOT.file_name):
            if not self._files.exists(path):
                continue
            try:
                decode_snapshot(self._files.read_bytes(path), path.name)
            except MetadataError as error:
                found.append((path, str(error)))
        if self._files.is_directory(self._directory):
            try:
                read_quorum_state(self._files, self._directory)
            except MetadataError as error:
                found.append((self._directory / QUORUM_STATE_FILE, str(error)))
        return found

    def interrupted(self) -> list[Mend]:
        """Finish the renames of a rebuilt log; remove one that is not complete."""
        mends = []
        if self._files.is_directory(self._root / REBUILT):
            plan = "an earlier repair had written it: it takes the place of the metadata log"
            mends.append(Mend(self._root / REBUILT, plan, self._put_in_place))
        elif self._files.is_directory(self._root / BUILDING):
            path = self._root / BUILDING
            mends.append(Mend(path, "an unfinished metadata log of an earlier repair is removed", self._clear))
        return mends

    def mends(self, has_damage: bool) -> list[Mend]:
        """The repairs of the metadata, to be carried out last: they need the partitions' own files."""
        if not self._is_here:
            return []
        small = [
            Mend(path, f"rewritten ({problem})", partial(self._write_small_file, path))
            for path, problem in self._unreadable_files()
        ]
        if self.is_readable(has_damage):
            return small
        reason = self._salvaged.problem or "batches that were on disk are damaged"
        if self._salvaged.problem is None and not self._salvaged.has_damage_inside():
            self._salvaged.is_complete = False  # its end was lost, and the last changes with it
        missing = self._salvaged.missing_directories()
        if missing:
            plan = (
                f"cannot be rebuilt from this directory alone ({reason}): the broker had {missing} log directories;"
                " name the others with --also"
            )
            return [Mend(self._directory, plan, lambda: [plan])]
        bootstrap = [mend for mend in small if mend.path.name == BOOTSTRAP_FILE]  # the other one is part of the log
        if self._shape is not None:
            return [*bootstrap, self._making(reason)]
        plan = f"rewritten from what can be read of it and from the partitions' directories ({reason})"
        return [*bootstrap, Mend(self._directory, plan, self._rebuild)]

    def _making(self, reason: str) -> Mend:
        """The repair that makes topics of directories, the only trace of them: a person has to decide."""
        found = Counter(one.topic for one, _ in self._salvaged.partition_directories())
        topics = ", ".join(sorted(found)[:MAX_NAMES_IN_A_LINE]) + (", ..." if len(found) > MAX_NAMES_IN_A_LINE else "")
        count = counted(found.total(), "partition")
        plan = f"a metadata log is made with topics as the partitions' directories say ({reason}), once you agree to it"
        question = f"Make a metadata log in {self._root}, with topics of the {count} that are there ({topics})?"
        if self._may_be_elsewhere:
            question = f"{question} Not where another log directory of this broker has it."
        return Mend(self._directory, plan, self._rebuild, question, self._may_be_elsewhere)

    def _write_small_file(self, path: Path) -> list[str]:
        if path.name == BOOTSTRAP_FILE:
            self._write_bootstrap()
            return ["rewritten"]
        salvaged = self._salvaged
        if path.name == VOTERS_SNAPSHOT.file_name:
            self._files.write_atomically(path, self._voters_snapshot())
            return ["rewritten"]
        state = QuorumState(salvaged.node_id(), max(salvaged.image.epoch, salvaged.highest()[1]))
        self._files.write_atomically(path, state.encode())
        return [f"rewritten: epoch {state.leader_epoch}"]

    def _voters_snapshot(self) -> bytes:
        voters = single_voter(self._salvaged.node_id(), self._salvaged.directory_id(self._root), (DEFAULT_CONTROLLER,))
        return encode_snapshot([], epoch=0, now_ms=self._now_ms, last_contained_log_timestamp=0, voters=voters)

    def _write_bootstrap(self) -> None:
        content = encode_snapshot(bootstrap_records(), epoch=0, now_ms=self._now_ms, last_contained_log_timestamp=0)
        self._files.write_atomically(self._root / BOOTSTRAP_FILE, content)

    def _clear(self) -> list[str]:
        remove_tree(self._files, self._root / BUILDING)
        self._files.sync_directory(self._root)
        return ["removed"]

    def _rebuild(self) -> list[str]:
        lines = self._write_properties()
        salvaged, image = self._salvaged, self._salvaged.image
        end_offset, epoch = salvaged.highest()
        if not salvaged.is_complete:
            if end_offset:
                lines.append(
                    f"users, quotas and configurations are as at offset {image.end_offset} of the old log, which"
                    f" reached to {end_offset} at least: check them"
                )
            looked_at = ", ".join(map(str, salvaged.roots))
            lines.append(f"partitions were looked for in {looked_at}: those elsewhere become -stray at the next start")
            lines.extend(self._finish_deletions())
            lines.extend(reconcile(salvaged))
            lines.extend(self._write_identities())
        if image.transaction is not None:
            image.transaction = None
        for record in bootstrap_records({*image.features, TRANSACTION_VERSION_FEATURE}):
            image.replay(record)
        self._build(max(end_offset, 1), max(epoch, 1))
        lines.extend(self._put_in_place())
        written = self._salvaged.image
        lines.append(
            f"rewritten: {counted(len(written.topics), 'topic')} with "
            f"{counted(written.partition_count, 'partition')}, from offset"
            f" {max(end_offset, 1)} on"
        )
        return lines

    def _write_properties(self) -> list[str]:
        """Write the files without which the next start would consider the directory new, and recover nothing."""
        files, root = self._files, self._root
        if files.exists(root / layout.META_PROPERTIES_FILE):
            return []
        node_id = self._salvaged.node_id()
        write_meta_properties(files, root, MetaProperties(uuid_to_text(random_uuid()), node_id, random_uuid()))
        return [f"{layout.META_PROPERTIES_FILE} is written: node.id {node_id}, and a new cluster.id"]

    def _finish_deletions(self) -> Iterator[str]:
        """Mark directories for deletion that a crash has left of topics whose removal is still readable."""
        removed = self._salvaged.image.removed_topics
        for one, path in list(self._salvaged.partition_directories()):
            if one.topic not in self._salvaged.image.topics and is_deleted(self._files, path, one.topic, removed):
                self._files.rename(path, path.with_name(layout.delete_directory_name(*one)))
                self._files.sync_directory(path.parent)
                yield f"{path.name}: its topic was deleted; the next start removes it"

    def _write_identities(self) -> Iterator[str]:
        """Write `partition.metadata` where it is missing or blank."""
        for one, path in self._salvaged.partition_directories():
            topic = self._salvaged.image.topics.get(one.topic)
            if topic is None or path.parent != self._root:
                continue  # the next start writes it, in a directory that is locked then
            try:
                is_missing = read_partition_metadata(self._files, path) is None
            except BlankFile:
                is_missing = True
            except BrokenFile:
                continue  # mended before
            if is_missing:
                write_partition_metadata(self._files, path, topic.id)
                yield f"{path.name}/{layout.PARTITION_METADATA_FILE}: written, topic id {uuid_to_text(topic.id)}"

    def _build(self, end_offset: int, epoch: int) -> None:
        """Write the new directory completely, sync it, and rename it to `.rebuilt`."""
        files, salvaged, building = self._files, self._salvaged, self._root / BUILDING
        if files.is_directory(building):
            remove_tree(files, building)
        files.make_directory(building)
        voters = single_voter(salvaged.node_id(), salvaged.directory_id(self._root), (DEFAULT_CONTROLLER,))
        for snapshot, records in (
            (VOTERS_SNAPSHOT, []),
            (SnapshotId(end_offset, epoch), records_of(salvaged.image)),
        ):
            content = encode_snapshot(
                records, epoch=snapshot.epoch, now_ms=self._now_ms, last_contained_log_timestamp=0, voters=voters
            )
            files.write_atomically(building / snapshot.file_name, content)
        files.write_atomically(building / QUORUM_STATE_FILE, QuorumState(salvaged.node_id(), epoch).encode())
        write_partition_metadata(files, building, METADATA_TOPIC_ID)
        for path_of in (layout.log_file, layout.offset_index_file, layout.time_index_file):
            empty = files.open(path_of(building, end_offset), create=True)
            empty.fdatasync()
            empty.close()
        files.sync_directory(building)
        if not files.exists(self._root / BOOTSTRAP_FILE):
            self._write_bootstrap()
        files.rename(building, self._root / REBUILT)
        files.sync_directory(self._root)

    def _put_in_place(self) -> list[str]:
        lines = []
        if self._files.is_directory(self._directory):
            stray = layout.stray_directory_name(layout.CLUSTER_METADATA_TOPIC, 0)
            self._files.rename(self._directory, self._root / stray)
            # Else only the next rename could reach the disk, although it needs this one.
            self._files.sync_directory(self._root)
            lines.append(f"the old one is kept as {stray}")
        self._files.rename(self._root / REBUILT, self._directory)
        self._files.sync_directory(self._root)
        self._salvaged = SalvagedMetadata(self._files, self._salvaged.roots, self._salvaged.given_node_id)
        self._salvaged.read()
        return [*lines, "the rebuilt metadata log is in its place"]
