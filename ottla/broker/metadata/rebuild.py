"""Writing `__cluster_metadata-0` anew offline, where it cannot be read: from what of it can, and from the partitions.

What is still known: the newest snapshot that can be read, and the log behind it up to the damage. That is how things
stood at some moment. Which topics there are *now* is told by the partitions' directories: the topic id stands in each
`partition.metadata`, the number of partitions follows from their numbers, the leader epoch from their checkpoints.

- a topic of which no directory is left was deleted behind the damage, and is forgotten;
- a topic that only its directories know gets `retention.ms=-1` and `retention.bytes=-1`, because what it was configured
  to is lost, and the broker's defaults would delete its records. `__consumer_offsets` is compacted, as ever;
- producer ids go on far above all that could have been handed out meanwhile;
- users, quotas, and other configurations are as at the damage: said, because somebody has to look.

The new log begins with a snapshot. It is built under another name (`.building`), synced, named `.rebuilt`, and only
then takes the place of the old one, which becomes `-stray` and is never deleted; a crash in between is finished by the
next repair. Called by the command line only, through `ottla.storage.repair`, under the directory's lock.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.broker.groups.home import MAX_MESSAGE_BYTES
from ottla.broker.metadata.batches import decode_data_batch, single_voter
from ottla.broker.metadata.image import TOPIC_RESOURCE, MetadataError, MetadataImage, PartitionState, TopicState
from ottla.broker.metadata.journal import METADATA_DIRECTORY, METADATA_TOPIC_ID, bootstrap_records
from ottla.broker.metadata.opening import DEFAULT_CONTROLLER
from ottla.broker.metadata.quorum_state import QUORUM_STATE_FILE, QuorumState, load_quorum_state
from ottla.broker.metadata.scan import scan_log, segment_offsets
from ottla.broker.metadata.snapshot import (
    BOOTSTRAP_FILE,
    VOTERS_SNAPSHOT,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
)
from ottla.protocol.records.batch import CorruptBatch
from ottla.protocol.stored.metadata import ProducerIdsRecord
from ottla.storage import layout
from ottla.storage.checkpoint import BrokenFile, read_offsets
from ottla.storage.damage import checksum_matches, sound_batch_behind
from ottla.storage.delayed_removal import remove_tree
from ottla.storage.files import Files
from ottla.storage.layout import OFFSETS_TOPIC, DirectoryKind, TopicPartition
from ottla.storage.leader_epoch_checkpoint import read_leader_epochs
from ottla.storage.meta_properties import read_meta_properties
from ottla.storage.partition_metadata import read_partition_metadata, write_partition_metadata
from ottla.storage.producer_state import CorruptSnapshot, parse_snapshot
from ottla.storage.repair import Mend
from ottla.storage.scan import SEQUENTIAL_CHUNK_BYTES, walk

BUILDING: Final = METADATA_DIRECTORY + ".building"
REBUILT: Final = METADATA_DIRECTORY + ".rebuilt"
PRODUCER_IDS_LEFT_OUT: Final = 1_000_000
"""Producer ids above the last one that is known: so many may have been handed out behind the damage."""
CONFIGURATION_IS_LOST: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
OFFSETS_CONFIGURATION: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
}


class MetadataRebuild:
    """See the module; `ottla.storage.repair.MetadataMender`. `others`: further log directories of the same broker."""

    def __init__(self, files: Files, root: Path, now_ms: int, others: Sequence[Path] = ()) -> None:
        """Reads what can be read. Raises OSError."""
        self._files = files
        self._root = root
        self._directory = root / METADATA_DIRECTORY
        self._roots = [root, *others]
        self._now_ms = now_ms
        self._image = MetadataImage()
        self._problem: str | None = None
        """Why a start refuses the log."""
        self._is_complete = False
        """Whether every change that was written is in the image all the same."""
        self._is_here = files.exists(root / BOOTSTRAP_FILE) or files.is_directory(self._directory)
        if self._is_here and not files.is_directory(root / REBUILT):
            self._read()

    # -- what is known

    def _read(self) -> None:
        files, directory = self._files, self._directory
        on_disk = list(self._on_disk())
        if not files.is_directory(directory):
            self._problem = "it is not there" if on_disk else None
            return
        snapshots = list_snapshots(files, directory)
        for snapshot in reversed(snapshots):
            try:
                image = MetadataImage()
                for record in decode_snapshot(files.read_bytes(directory / snapshot.file_name), snapshot.file_name):
                    image.replay(record)
            except MetadataError as error:
                self._problem = self._problem or str(error)
                continue
            self._image = image
            image.end_offset, image.epoch = snapshot
            break
        has_bytes = any(files.size(layout.log_file(directory, one)) for one in segment_offsets(files, directory))
        if on_disk and not snapshots and not has_bytes:
            self._problem = "it is empty"
        try:
            for header, batch in scan_log(files, directory, self._image.end_offset):
                if header.base_offset < self._image.end_offset:
                    raise MetadataError(f"the snapshot of offset {self._image.end_offset} ends inside of a batch")
                if not header.is_control:
                    for record in decode_data_batch(batch):
                        self._image.replay(record)
                self._image.end_offset = header.next_offset
                self._image.epoch = max(self._image.epoch, header.partition_leader_epoch)
        except MetadataError as error:
            self._problem = self._problem or str(error)
        else:
            newest = snapshots[-1].end_offset if snapshots else 0
            self._is_complete = (bool(snapshots) or has_bytes) and self._image.end_offset >= newest

    def _on_disk(self) -> Iterator[tuple[TopicPartition, Path]]:
        for root in self._roots:
            for name in self._files.list_directory(root):
                parsed = layout.parse_partition_directory(name)
                if (
                    parsed is not None
                    and parsed.kind is DirectoryKind.PARTITION
                    and parsed.topic_partition.topic != layout.CLUSTER_METADATA_TOPIC
                    and self._files.is_directory(root / name)
                ):
                    yield parsed.topic_partition, root / name

    def topic_ids(self) -> Mapping[str, UUID]:
        """The metadata's; where that says nothing, what most of a topic's directories say."""
        if not self._is_here:
            return {}
        ids = {} if self._problem and not self._is_complete else {t.name: t.id for t in self._image.topics.values()}
        ids[layout.CLUSTER_METADATA_TOPIC] = METADATA_TOPIC_ID
        said: dict[str, Counter[UUID]] = {}
        for one, path in self._on_disk():
            try:
                topic_id = read_partition_metadata(self._files, path)
            except BrokenFile:
                topic_id = None
            counter = said.setdefault(one.topic, Counter())
            if topic_id is not None:
                counter[topic_id] += 1
        for topic, counter in said.items():
            if topic in ids:
                continue
            if counter:
                ids[topic] = counter.most_common(1)[0][0]
            elif topic in self._image.topics:
                ids[topic] = self._image.topics[topic].id
        return ids

    def is_readable(self, has_damage: bool) -> bool:
        """Whether the log can stay: it can be read, and what is damaged in it, if anything, is a torn tail."""
        return self._problem is None and not (has_damage and self._has_damage_inside())

    def _has_damage_inside(self) -> bool:
        """Damage below the newest snapshot, which a start does not read and recovery would cut the log at."""
        bases = segment_offsets(self._files, self._directory)
        snapshots = list_snapshots(self._files, self._directory)
        for base_offset in bases:
            file = self._files.open(layout.log_file(self._directory, base_offset))
            end, next_offset, limit = 0, base_offset, file.size()
            try:
                for position, header in walk(file.pread, 0, limit, SEQUENTIAL_CHUNK_BYTES):
                    if not checksum_matches(file, position, header):
                        raise CorruptBatch("the checksum does not match")
                    end, next_offset = position + header.size_bytes, header.next_offset
            except CorruptBatch:
                if base_offset != bases[-1] or (snapshots and next_offset < snapshots[-1].end_offset):
                    return True
                return sound_batch_behind(file, end, limit, least_offset=0) is not None
            finally:
                file.close()
        return False

    # -- what is to be done

    def interrupted(self) -> list[Mend]:
        """A rebuilt log that has not taken its place yet; one that was not finished goes."""
        mends = []
        if self._files.is_directory(self._root / REBUILT):
            plan = "an earlier repair had written it: it takes the place of the metadata log"
            mends.append(Mend(self._root / REBUILT, plan, self._put_in_place))
        elif self._files.is_directory(self._root / BUILDING):
            path = self._root / BUILDING
            mends.append(Mend(path, "an unfinished metadata log of an earlier repair is removed", self._clear))
        return mends

    def mends(self, has_damage: bool) -> list[Mend]:
        """To be carried out last: the partitions' own files are needed."""
        if not self._is_here:
            return []
        if self.is_readable(has_damage):
            return self._quorum_state()
        reason = self._problem or "batches below its newest snapshot are damaged"
        missing = self._missing_directories()
        if missing:
            plan = (
                f"cannot be rebuilt from this directory alone ({reason}): the broker had {missing} log directories;"
                " name the others with --also"
            )
            return [Mend(self._directory, plan, lambda: [plan])]
        plan = f"written anew from what can be read of it and from the partitions' directories ({reason})"
        return [Mend(self._directory, plan, self._rebuild)]

    def _missing_directories(self) -> int:
        """How many directories the broker had, where that is more than were named."""
        known = max((len(broker.log_dirs) for broker in self._image.brokers.values()), default=1)
        return known if known > len(self._roots) and not self._is_complete else 0

    def _quorum_state(self) -> list[Mend]:
        if not self._files.is_directory(self._directory):
            return []
        try:
            load_quorum_state(self._files, self._directory)
        except MetadataError as error:
            path = self._directory / QUORUM_STATE_FILE
            return [Mend(path, f"written anew ({error})", partial(self._write_quorum_state, self._directory))]
        return []

    def _write_quorum_state(self, directory: Path) -> list[str]:
        state = QuorumState(self._node_id(), max(self._image.epoch, self._highest()[1]))
        self._files.write_atomically(directory / QUORUM_STATE_FILE, state.encode())
        return [f"written anew: epoch {state.leader_epoch}"]

    def _node_id(self) -> int:
        try:
            properties = read_meta_properties(self._files, self._root)
        except BrokenFile:
            properties = None
        if properties is not None:
            return properties.node_id
        return next(iter(self._image.brokers), 1)

    def _highest(self) -> tuple[int, int]:
        """(offset behind, raft epoch of) the last of the old log that anything tells of."""
        end_offset, epoch = self._image.end_offset, self._image.epoch
        one = TopicPartition(layout.CLUSTER_METADATA_TOPIC, 0)
        for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
            try:
                end_offset = max(end_offset, read_offsets(self._files, self._root / name).get(one, 0))
            except BrokenFile:
                continue
        if not self._files.is_directory(self._directory):
            return end_offset, epoch
        for base_offset in segment_offsets(self._files, self._directory):
            end_offset = max(end_offset, base_offset)
            file = self._files.open(layout.log_file(self._directory, base_offset))
            try:
                limit = file.size()
                position = sound_batch_behind(file, -1, limit, least_offset=0)
                while position is not None:
                    _, header = next(walk(file.pread, position, limit))
                    end_offset = max(end_offset, header.next_offset)
                    epoch = max(epoch, header.partition_leader_epoch)
                    position = sound_batch_behind(file, position, limit, least_offset=0)
            finally:
                file.close()
        for snapshot in list_snapshots(self._files, self._directory):
            end_offset, epoch = max(end_offset, snapshot.end_offset), max(epoch, snapshot.epoch)
        with contextlib.suppress(MetadataError):  # it is written anew
            epoch = max(epoch, load_quorum_state(self._files, self._directory).leader_epoch)
        return end_offset, epoch

    # -- rebuilding

    def _clear(self) -> list[str]:
        remove_tree(self._files, self._root / BUILDING)
        self._files.sync_directory(self._root)
        return ["removed"]

    def _rebuild(self) -> list[str]:
        lines: list[str] = []
        end_offset, epoch = self._highest()
        if not self._is_complete:
            lines.append(
                f"users, quotas and configurations are as at offset {self._image.end_offset} of the old log, which"
                f" reached to {end_offset} at least: look at them"
            )
            looked_at = ", ".join(map(str, self._roots))
            lines.append(f"partitions were looked for in {looked_at}: those elsewhere become -stray at the next start")
            lines.extend(self._reconcile())
        if self._image.transaction is not None:
            self._image.transaction = None
        for record in bootstrap_records(self._image.features):
            self._image.replay(record)
        self._build(max(end_offset, 1), max(epoch, 1))
        lines.extend(self._put_in_place())
        lines.append(
            f"written anew: {len(self._image.topics)} topics with {self._image.partition_count} partitions, from offset"
            f" {max(end_offset, 1)} on"
        )
        return lines

    def _reconcile(self) -> Iterator[str]:
        """Make the image say what the directories say, and tell where it said something else."""
        ids = self.topic_ids()
        found: dict[str, dict[int, Path]] = {}
        for one, path in self._on_disk():
            found.setdefault(one.topic, {})[one.partition] = path
        for topic in list(self._image.topics.values()):
            if topic.name not in found or ids.get(topic.name, topic.id) != topic.id:
                self._forget(topic)
                yield f"topic {topic.name} ({topic.id}): no directory of it is left, it is forgotten"
        for name, directories in sorted(found.items()):
            if name not in ids:
                yield f"topic {name}: no directory says its topic id; its directories become -stray at the next start"
                continue
            if name not in self._image.topics:
                self._add(name, ids[name])
                overrides = ", ".join(f"{k}={v}" for k, v in self._image.topic_configs(name).items())
                yield f"topic {name}: its configuration is lost; {overrides} until somebody sets another"
            self._add_partitions(self._image.topics[name], directories)
        self._image.producer_ids = ProducerIdsRecord(
            broker_id=self._node_id(),
            next_producer_id=max(self._image.next_producer_id, self._largest_producer_id(found) + 1)
            + PRODUCER_IDS_LEFT_OUT,
        )

    def _forget(self, topic: TopicState) -> None:
        del self._image.topics[topic.name]
        del self._image.topics_by_id[topic.id]
        self._image.configs.pop((TOPIC_RESOURCE, topic.name), None)
        self._image.partition_count -= len(topic.partitions)

    def _add(self, name: str, topic_id: UUID) -> None:
        self._image.topics[name] = self._image.topics_by_id[topic_id] = TopicState(name, topic_id)
        overrides = OFFSETS_CONFIGURATION if name == OFFSETS_TOPIC else CONFIGURATION_IS_LOST
        self._image.configs[TOPIC_RESOURCE, name] = dict(overrides)

    def _add_partitions(self, topic: TopicState, directories: Mapping[int, Path]) -> None:
        node_id = self._node_id()
        for index in range(max([*directories, *topic.partitions]) + 1):
            path = directories.get(index)
            epoch = 0 if path is None else self._last_epoch(path)
            known = topic.partitions.get(index)
            if known is not None:
                topic.partitions[index] = replace(known, leader_epoch=max(known.leader_epoch, epoch))
                continue
            topic.partitions[index] = PartitionState(
                replicas=(node_id,),
                isr=(node_id,),
                leader=node_id,
                leader_epoch=epoch,
                partition_epoch=0,
                directories=(self._directory_id(path),),
            )
            self._image.partition_count += 1
        topic.partitions = dict(sorted(topic.partitions.items()))

    def _last_epoch(self, path: Path) -> int:
        try:
            entries = read_leader_epochs(self._files, path)
        except BrokenFile:
            return 0  # it was mended before, unless it belongs to another of the directories
        return entries[-1].epoch if entries else 0

    def _directory_id(self, path: Path | None) -> UUID:
        root = self._root if path is None else path.parent
        try:
            properties = read_meta_properties(self._files, root)
        except BrokenFile:
            properties = None
        return UUID(int=0) if properties is None or properties.directory_id is None else properties.directory_id

    def _largest_producer_id(self, found: Mapping[str, Mapping[int, Path]]) -> int:
        largest = -1
        for directories in found.values():
            for path in directories.values():
                for name in self._files.list_directory(path):
                    if not name.endswith(layout.SNAPSHOT_SUFFIX):
                        continue
                    try:
                        producers = parse_snapshot(self._files.read_bytes(path / name))
                    except CorruptSnapshot:
                        continue
                    largest = max([largest, *(producer.producer_id for producer in producers)])
        return largest

    def _build(self, end_offset: int, epoch: int) -> None:
        """The new directory, whole and synced, under the name that says so."""
        files, building = self._files, self._root / BUILDING
        if files.is_directory(building):
            remove_tree(files, building)
        files.make_directory(building)
        voters = single_voter(self._node_id(), self._directory_id(None), (DEFAULT_CONTROLLER,))
        for snapshot, records in (
            (VOTERS_SNAPSHOT, []),
            (SnapshotId(end_offset, epoch), self._image.records()),
        ):
            content = encode_snapshot(
                records, epoch=snapshot.epoch, now_ms=self._now_ms, last_contained_log_timestamp=0, voters=voters
            )
            files.write_atomically(building / snapshot.file_name, content)
        files.write_atomically(building / QUORUM_STATE_FILE, QuorumState(self._node_id(), epoch).encode())
        write_partition_metadata(files, building, METADATA_TOPIC_ID)
        for path_of in (layout.log_file, layout.offset_index_file, layout.time_index_file):
            empty = files.open(path_of(building, end_offset), create=True)
            empty.fdatasync()
            empty.close()
        files.sync_directory(building)
        if not files.exists(self._root / BOOTSTRAP_FILE):
            bootstrap = encode_snapshot(
                bootstrap_records(), epoch=0, now_ms=self._now_ms, last_contained_log_timestamp=0
            )
            files.write_atomically(self._root / BOOTSTRAP_FILE, bootstrap)
        files.rename(building, self._root / REBUILT)
        files.sync_directory(self._root)

    def _put_in_place(self) -> list[str]:
        lines = []
        if self._files.is_directory(self._directory):
            stray = layout.stray_directory_name(layout.CLUSTER_METADATA_TOPIC, 0)
            self._files.rename(self._directory, self._root / stray)
            # Else the next rename could outlive this one, and there is no directory to rename onto.
            self._files.sync_directory(self._root)
            lines.append(f"the old one is kept as {stray}")
        self._files.rename(self._root / REBUILT, self._directory)
        self._files.sync_directory(self._root)
        self._image = MetadataImage()
        self._problem = None
        self._read()
        return [*lines, "the rebuilt metadata log is in its place"]
