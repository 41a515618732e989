"""Snapshots of the metadata: the image at an offset, so that a start need not read the whole log.

`__cluster_metadata-0/<end offset, 20 digits>-<raft epoch, 10 digits>.checkpoint` contains the image of all records
below the end offset; the epoch is that of the last of them. The file is a list of batches with their own offsets from
0: a control batch (SnapshotHeader, and KRaftVersion with Voters if the quorum has them), data batches, and a control
batch with the SnapshotFooter. A file without the footer is incomplete, which is an error, because a snapshot is written
under another name and renamed when it is complete.

Worked example: `00000000000000004711-0000000003.checkpoint` replaces the records 0 to 4710, the last of epoch 3.

`bootstrap.checkpoint`, in the log directory itself, has the same format and contains what a controller writes into an
empty log: the feature levels. `00000000000000000000-0000000000.checkpoint` contains the voters before the first
election. Follows Kafka's Snapshots, RecordsSnapshotWriter and BootstrapDirectory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.batches import (
    decode_data_batch,
    encode_data_batch,
    snapshot_footer_batch,
    snapshot_header_batch,
)
from ottla.broker.metadata.image import MetadataError
from ottla.protocol.records.batch import BatchHeader, CorruptBatch, crc_matches, decode_batch, iter_batches
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.storage.producers.producer_snapshots import no_pause

if TYPE_CHECKING:
    from ottla.protocol.stored.control import VotersRecord
    from ottla.protocol.stored.metadata import MetadataRecord
    from ottla.storage.files.files import Files
    from ottla.storage.producers.producer_snapshots import Pause

SNAPSHOT_SUFFIX = ".checkpoint"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
RECORDS_PER_BATCH = 200
"""A batch takes a millisecond, for which the encoding thread holds the interpreter's lock."""
_NAME = re.compile(r"(?P<offset>[0-9]{20})-(?P<epoch>[0-9]{10})\.checkpoint")


class SnapshotId(NamedTuple):
    """The extent of a snapshot: all records below `end_offset`, of which the last has raft epoch `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of its file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SNAPSHOT_SUFFIX}"


VOTERS_SNAPSHOT = SnapshotId(0, 0)
"""Kafka's BOOTSTRAP_SNAPSHOT_ID: the voter set with which a directory was formatted."""


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id of a finished snapshot's file name; None for any other name."""
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match["offset"]), int(match["epoch"])) if match else None


def encode_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    now_ms: int,
    last_contained_log_timestamp: int,
    voters: VotersRecord | None = None,
    pause: Pause = no_pause,
) -> bytes:
    """The content of the whole file; `pause` is called between two of its batches."""
    content = snapshot_header_batch(
        epoch=epoch, now_ms=now_ms, last_contained_log_timestamp=last_contained_log_timestamp, voters=voters
    )
    offset = 1 if voters is None else 3
    for chunk in _chunks(records, RECORDS_PER_BATCH):
        content += encode_data_batch(chunk, base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += len(chunk)
        pause()
    content += snapshot_footer_batch(base_offset=offset, epoch=epoch, now_ms=now_ms)
    return bytes(content)


def decode_snapshot(content: bytes, name: str) -> list[MetadataRecord]:
    """The metadata records of a snapshot file. Raises MetadataError (with `name`) if it is incomplete."""
    view = memoryview(content)
    records: list[MetadataRecord] = []
    kinds: list[ControlType | None] = []
    try:
        for position, header in iter_batches(view):
            if kinds and kinds[-1] is ControlType.SNAPSHOT_FOOTER:
                raise CorruptBatch("it continues after its footer")
            batch = view[position : position + header.size_bytes]
            if header.is_control:
                kinds.extend(_control_kinds(batch, header))
            elif not kinds:
                raise CorruptBatch("it does not begin with its header")
            else:
                records.extend(decode_data_batch(batch))
    except (CorruptBatch, MetadataError) as error:
        raise MetadataError(f"the snapshot {name} is damaged: {error}") from error
    if not kinds or kinds[0] is not ControlType.SNAPSHOT_HEADER or kinds[-1] is not ControlType.SNAPSHOT_FOOTER:
        raise MetadataError(f"the snapshot {name} is incomplete: its header or its footer is missing")
    return records


def _control_kinds(batch: memoryview, header: BatchHeader) -> list[ControlType | None]:
    if not crc_matches(batch, header):
        raise CorruptBatch("a control batch's checksum does not match its bytes")
    return [decode_control_key(record.key) for record in decode_batch(batch)]


def list_snapshots(files: Files, directory: Path) -> list[SnapshotId]:
    """Finished snapshots of a metadata directory, the oldest first, without that of the voters."""
    found = (parse_snapshot_name(name) for name in files.list_directory(directory))
    return sorted(snapshot for snapshot in found if snapshot is not None and snapshot != VOTERS_SNAPSHOT)


def _chunks(records: Iterable[MetadataRecord], size: int) -> Iterator[list[MetadataRecord]]:
    chunk: list[MetadataRecord] = []
    for record in records:
        chunk.append(record)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
