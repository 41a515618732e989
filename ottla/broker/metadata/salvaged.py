"""The salvage of a broker's metadata whose log may be damaged: its readable part, and the files beside it.

The readable part is the newest valid snapshot and the log after it up to the damage: the state at an earlier time. The
files beside it are the partitions' directories, the checkpoints and `meta.properties`. Nothing is written here.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from ottla.broker.metadata.batches import decode_data_batch
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.journal import METADATA_TOPIC_ID
from ottla.broker.metadata.quorum_state import load_quorum_state
from ottla.broker.metadata.reading import METADATA_DIRECTORY, ends_early, promised_end
from ottla.broker.metadata.scan import scan_log, segment_offsets
from ottla.broker.metadata.snapshot import decode_snapshot, list_snapshots
from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.formats.layout import DirectoryKind, TopicPartition
from ottla.storage.formats.meta_properties import read_meta_properties
from ottla.storage.formats.partition_metadata import read_partition_metadata
from ottla.storage.segment.damage import checksum_matches, sound_batch_behind
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk


class SalvagedMetadata:
    """See the module's text. `roots` are the log directories, the one with the metadata log first; `given_node_id` is
    the broker's if no file in them has it.
    """

    def __init__(self, files: Files, roots: Sequence[Path], given_node_id: int | None = None) -> None:
        self.given_node_id = given_node_id
        self.files = files
        self.roots = roots
        self.image = MetadataImage()
        self.problem: str | None = None
        """Why a start refuses the log."""
        self.is_complete = False
        """Whether the image nevertheless has every written change."""
        self._directory = roots[0] / METADATA_DIRECTORY
        self._promised_offset = 0

    def read(self) -> None:
        """Read everything that is readable. Raises OSError."""
        files, directory = self.files, self._directory
        on_disk = list(self.partition_directories())
        if not files.is_directory(directory):
            self.problem = "it is not there" if on_disk else None
            return
        snapshots = list_snapshots(files, directory)
        for snapshot in reversed(snapshots):
            try:
                image = MetadataImage()
                for record in decode_snapshot(files.read_bytes(directory / snapshot.file_name), snapshot.file_name):
                    image.replay(record)
            except MetadataError as error:
                self.problem = self.problem or str(error)
                continue
            self.image = image
            image.end_offset, image.epoch = snapshot
            break
        has_bytes = any(files.size(layout.log_file(directory, one)) for one in segment_offsets(files, directory))
        if on_disk and not snapshots and not has_bytes:
            self.problem = "it is empty"
        try:
            for header, batch in scan_log(files, directory, self.image.end_offset):
                if header.base_offset < self.image.end_offset:
                    raise MetadataError(f"the snapshot of offset {self.image.end_offset} ends inside of a batch")
                if not header.is_control:
                    for record in decode_data_batch(batch):
                        self.image.replay(record)
                self.image.end_offset = header.next_offset
                self.image.epoch = max(self.image.epoch, header.partition_leader_epoch)
        except MetadataError as error:
            self.problem = self.problem or str(error)
        else:
            newest = snapshots[-1].end_offset if snapshots else 0
            self.is_complete = (bool(snapshots) or has_bytes) and self.image.end_offset >= newest
        self._promised_offset = promised_end(files, self.roots[0])
        if self.image.end_offset < self._promised_offset:
            self.is_complete = False
            self.problem = self.problem or ends_early(self.image.end_offset, self._promised_offset)

    def partition_directories(self) -> Iterator[tuple[TopicPartition, Path]]:
        """Every partition's directory in `roots`, without that of the metadata log."""
        for root in self.roots:
            for name in self.files.list_directory(root):
                parsed = layout.parse_partition_directory(name)
                if (
                    parsed is not None
                    and parsed.kind is DirectoryKind.PARTITION
                    and parsed.topic_partition.topic != layout.CLUSTER_METADATA_TOPIC
                    and self.files.is_directory(root / name)
                ):
                    yield parsed.topic_partition, root / name

    def topic_ids(self) -> Mapping[str, UUID]:
        """The topic ids in the metadata; for other topics, the most frequent id in the topic's directories."""
        ids = {} if self.problem and not self.is_complete else {t.name: t.id for t in self.image.topics.values()}
        ids[layout.CLUSTER_METADATA_TOPIC] = METADATA_TOPIC_ID
        said: dict[str, Counter[UUID]] = {}
        for one, path in self.partition_directories():
            try:
                topic_id = read_partition_metadata(self.files, path)
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
            elif topic in self.image.topics:
                ids[topic] = self.image.topics[topic].id
        return ids

    def missing_directories(self) -> int:
        """The number of the broker's directories, if it is larger than the number of named ones."""
        known = max((len(broker.log_dirs) for broker in self.image.brokers.values()), default=1)
        return known if known > len(self.roots) and not self.is_complete else 0

    def has_damage_inside(self) -> bool:
        """Whether there is damage below the newest snapshot, which a start does not read and where recovery would
        truncate the log.
        """
        bases = segment_offsets(self.files, self._directory)
        snapshots = list_snapshots(self.files, self._directory)
        for base_offset in bases:
            file = self.files.open(layout.log_file(self._directory, base_offset))
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

    def node_id(self) -> int:
        """The node id in the directory's `meta.properties`; else in the metadata; else the given one; else 1."""
        try:
            properties = read_meta_properties(self.files, self.roots[0])
        except BrokenFile:
            properties = None
        if properties is not None:
            return properties.node_id
        return next(iter(self.image.brokers), 1 if self.given_node_id is None else self.given_node_id)

    def directory_id(self, root: Path) -> UUID:
        """The directory id in its `meta.properties`; zero if that has none."""
        try:
            properties = read_meta_properties(self.files, root)
        except BrokenFile:
            properties = None
        return UUID(int=0) if properties is None or properties.directory_id is None else properties.directory_id

    def highest(self) -> tuple[int, int]:
        """The highest (end offset, raft epoch) of the old log in any file."""
        end_offset, epoch = max(self.image.end_offset, self._promised_offset), self.image.epoch
        one = TopicPartition(layout.CLUSTER_METADATA_TOPIC, 0)
        for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
            try:
                end_offset = max(end_offset, read_offsets(self.files, self.roots[0] / name).get(one, 0))
            except BrokenFile:
                continue
        if not self.files.is_directory(self._directory):
            return end_offset, epoch
        for base_offset in segment_offsets(self.files, self._directory):
            end_offset = max(end_offset, base_offset)
            file = self.files.open(layout.log_file(self._directory, base_offset))
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
        for snapshot in list_snapshots(self.files, self._directory):
            end_offset, epoch = max(end_offset, snapshot.end_offset), max(epoch, snapshot.epoch)
        with contextlib.suppress(MetadataError):  # it is rewritten
            epoch = max(epoch, load_quorum_state(self.files, self._directory).leader_epoch)
        return end_offset, epoch
