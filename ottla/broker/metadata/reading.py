"""The metadata on the disk, read before anything is written: the newest snapshot, and the log after it.

A start reads first and opens the directories later, so that a refused directory stays unchanged. In particular it keeps
the mark of a clean stop: without it, the next attempt would treat damage at the end of the log as a torn write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.broker.metadata.batches import decode_data_batch
from ottla.broker.metadata.image import MetadataError, MetadataImage
from ottla.broker.metadata.quorum_state import load_quorum_state
from ottla.broker.metadata.scan import ScannedBatch, scan_log, segment_offsets
from ottla.broker.metadata.snapshot import VOTERS_SNAPSHOT, SnapshotId, decode_snapshot, list_snapshots
from ottla.plain import Plain, field
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.formats.layout import CLUSTER_METADATA_TOPIC, TopicPartition, partition_directory_name

if TYPE_CHECKING:
    from ottla.storage.files.files import Files

METADATA_DIRECTORY = partition_directory_name(CLUSTER_METADATA_TOPIC, 0)


class MetadataReading(Plain):
    """The result of the reading. The counts are those of the log after the snapshot; `quorum_epoch` is that of
    `quorum-state`; `torn` is the place of a torn end, if there is one.
    """

    image: MetadataImage = field(factory=MetadataImage)
    last_timestamp: int = 0
    records_since_snapshot: int = 0
    bytes_since_snapshot: int = 0
    torn: str | None = None
    quorum_epoch: int = 0


def has_no_metadata(files: Files, root: Path) -> bool:
    """Whether a log directory has no metadata log: no segment with a byte in it and no snapshot. Raises OSError."""
    directory = root / METADATA_DIRECTORY
    if not files.is_directory(directory):
        return True
    if list_snapshots(files, directory):
        return False
    return not any(files.size(layout.log_file(directory, offset)) for offset in segment_offsets(files, directory))


def read_metadata(files: Files, root: Path, *, was_clean: bool) -> MetadataReading:
    """Replay the metadata in `root`; nothing if it has no metadata log. `was_clean`: it was stopped cleanly.

    Raises MetadataError, one line for the user, if anything cannot be read or is inconsistent.
    """
    reading = MetadataReading()
    if has_no_metadata(files, root):
        return reading
    directory = root / METADATA_DIRECTORY
    try:
        _replay_log(files, directory, reading, _load_snapshot(files, directory, reading.image))
        promised_offset = promised_end(files, root)
        if reading.image.end_offset < promised_offset:
            # Refuse before anything is truncated: the partitions of missing topics would become `-stray`.
            raise MetadataError(ends_early(reading.image.end_offset, promised_offset))
        if reading.torn is not None and was_clean:
            raise unfinished_after_a_clean_stop(reading.torn)
    except MetadataError as error:
        raise refused(directory, error) from error
    except OSError as error:
        raise MetadataError(f"the metadata log {directory} cannot be read: {error}") from error
    reading.quorum_epoch = load_quorum_state(files, directory).leader_epoch
    return reading


def refused(directory: Path, error: MetadataError) -> MetadataError:
    """The same error, with the directory and advice."""
    return MetadataError(
        f"the metadata log {directory} cannot be used: {error};"
        f" `ottla log verify --repair {directory.parent}` can rebuild topics from the partitions' own files"
    )


def unfinished_after_a_clean_stop(torn: str) -> MetadataError:
    """The refusal of a torn end after a clean stop, which leaves none: after an append the log would be unreadable."""
    return MetadataError(f"{torn}, and it was stopped cleanly")


def refuse_larger_clusters(image: MetadataImage, node_id: int) -> None:
    """Raise MetadataError for partitions that one broker cannot have."""
    for state in image.topics.values():
        if sorted(state.partitions) != list(range(len(state.partitions))):
            raise MetadataError(f"the partitions of {state.name} are not 0 to {len(state.partitions) - 1}")
        for index, partition in state.partitions.items():
            if partition.replicas != (node_id,):
                raise MetadataError(
                    f"{state.name}-{index} has its replicas on brokers {list(partition.replicas)}, and this is"
                    f" broker {node_id} alone: directories of a larger cluster cannot be served"
                )


def promised_end(files: Files, root: Path) -> int:
    """The offset below which the metadata log was on disk, by the recovery point and the high watermark in its
    directory (which, for this log, is synced); 0 if neither is known.
    """
    promised = 0
    for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
        with contextlib.suppress(BrokenFile):
            rows = read_offsets(files, root / name)
            promised = max(promised, rows.get(TopicPartition(CLUSTER_METADATA_TOPIC, 0), 0))
    return promised


def ends_early(end_offset: int, promised_offset: int) -> str:
    """The problem of a metadata log that has lost acknowledged records."""
    return f"it ends at offset {end_offset}, and offsets below {promised_offset} were on disk"


def _load_snapshot(files: Files, directory: Path, image: MetadataImage) -> SnapshotId:
    snapshots: Sequence[SnapshotId] = list_snapshots(files, directory)
    if not snapshots:
        return VOTERS_SNAPSHOT
    newest = snapshots[-1]
    for record in decode_snapshot(files.read_bytes(directory / newest.file_name), newest.file_name):
        image.replay(record)
    image.end_offset, image.epoch = newest
    return newest


def _replay_log(files: Files, directory: Path, reading: MetadataReading, snapshot: SnapshotId) -> None:
    """Replay the log after the snapshot."""
    batches = scan_log(files, directory, snapshot.end_offset)

    def until_torn() -> Iterator[ScannedBatch]:
        reading.torn = yield from batches

    image = reading.image
    for header, batch in until_torn():
        if header.base_offset < snapshot.end_offset:
            raise MetadataError(f"the snapshot {snapshot.file_name} ends inside of a batch")
        if not header.is_control:
            records = decode_data_batch(batch)
            for record in records:
                image.replay(record)
            reading.records_since_snapshot += len(records)
        image.end_offset = header.next_offset
        image.epoch = max(image.epoch, header.partition_leader_epoch)
        reading.last_timestamp = header.max_timestamp
        reading.bytes_since_snapshot += header.size_bytes
