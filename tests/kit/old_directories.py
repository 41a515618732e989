"""Data directories that have partitions and no metadata log: each shape in which one comes, and what it holds.

`Shape.make` writes one into an empty directory; partitions 0, 1 and 3 of `orders`, with records, as far as that time
had them. No `.lock` is in it, so that a lock that a refusal leaves would be seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kit.old_segments import STAMP_MS, new_batch, old_messages

from ottla.protocol.records.record import Record
from ottla.storage.files.files import OsFiles
from ottla.storage.formats import layout
from ottla.storage.formats.partition_metadata import write_partition_metadata

Place = tuple[str, int]
Holdings = dict[Place, list[Record]]

TOPIC_ID = UUID("5dd9a2e7-8a02-4a8f-9c0e-7a3f1f0f7b11")
PARTITIONS = (0, 1, 3)
PROPERTIES = (
    "#\n#Thu Jul 04 10:00:00 UTC 2025\nnode.id=1\ndirectory.id=4kCDYg5FQ4Cl4NjE0pOq6w\nversion=1\n"
    "cluster.id=4L6g3nShT-eMCtK--X86sw\n"
)
CHECKPOINT = "0\n{count}\n{rows}\n"


@dataclass(frozen=True)
class Shape:
    """`words` are in the line that refuses it; `is_plain`: nothing in it says that something is missing."""

    name: str
    make: Callable[[Path], Holdings]
    words: str
    is_plain: bool = False


def _partitions(directory: Path, magic: int, *, ids: bool) -> Holdings:
    held: Holdings = {}
    for index in PARTITIONS:
        path = directory / f"orders-{index}"
        path.mkdir(parents=True)
        segment = new_batch(0, 20) if magic == 2 else old_messages(0, 20, magic)
        (path / layout.offset_file_name(0, ".log")).write_bytes(segment.data)
        (path / layout.offset_file_name(0, ".index")).write_bytes(b"")
        if magic:
            (path / layout.offset_file_name(0, ".timeindex")).write_bytes(b"")
        if ids:
            write_partition_metadata(OsFiles(), path, TOPIC_ID)
        held["orders", index] = segment.records
    _write_checkpoints(directory, [f"orders {index} 20" for index in PARTITIONS])
    return held


def _write_checkpoints(directory: Path, rows: list[str]) -> None:
    for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
        (directory / name).write_text(CHECKPOINT.format(count=len(rows), rows="\n".join(rows)))
    (directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE).write_text("0\n0\n")


def _ours_without_metadata(directory: Path) -> Holdings:
    """Copied without `__cluster_metadata-0`: the recovery points tell that it was there."""
    held = _partitions(directory, 2, ids=True)
    (directory / layout.META_PROPERTIES_FILE).write_text(PROPERTIES)
    (directory / layout.FORMAT_FILE).write_text("version=1\n")
    (directory / layout.CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":17}')
    rows = [f"orders {index} 20" for index in PARTITIONS] + ["__cluster_metadata 0 31"]
    _write_checkpoints(directory, rows)
    (directory / "orders-1.9e107d9d372bb6826bd81d3542a419d6-delete").mkdir()
    (directory / "x.tmp").write_bytes(b"x")
    return held


def _kraft_without_metadata(directory: Path) -> Holdings:
    """Kafka's checkpoints have no row of the metadata log, so that it may be one of several log directories."""
    held = _partitions(directory, 2, ids=True)
    (directory / layout.META_PROPERTIES_FILE).write_text(PROPERTIES)
    (directory / layout.CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":17}')
    return held


def _kraft_with_bootstrap(directory: Path) -> Holdings:
    held = _kraft_without_metadata(directory)
    (directory / "bootstrap.checkpoint").write_bytes(b"")
    return held


def _partial_identities(directory: Path) -> Holdings:
    held = _ours_without_metadata(directory)
    (directory / "orders-0" / layout.PARTITION_METADATA_FILE).unlink()
    (directory / "orders-3" / layout.PARTITION_METADATA_FILE).write_bytes(b"")
    return held


def _zookeeper(directory: Path) -> Holdings:
    held = _partitions(directory, 2, ids=False)
    text = "#\nbroker.id=1\nversion=0\ncluster.id=snStTyhwRxOLAX0YhcbINQ\n"
    (directory / layout.META_PROPERTIES_FILE).write_text(text)
    (directory / layout.CLEAN_SHUTDOWN_FILE).write_bytes(b"")
    return held


def _kafka_0_10_0(directory: Path) -> Holdings:
    held = _partitions(directory, 1, ids=False)
    (directory / layout.META_PROPERTIES_FILE).write_text("#\nversion=0\nbroker.id=1\n")
    return held


def _kafka_0_8(directory: Path) -> Holdings:
    held = _partitions(directory, 0, ids=False)
    (directory / layout.META_PROPERTIES_FILE).write_text("broker.id=1\n")
    (directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE).unlink()
    return held


def _partitions_alone(directory: Path) -> Holdings:
    held = _partitions(directory, 2, ids=True)
    for path in directory.iterdir():
        if path.is_file():
            path.unlink()
    return held


SHAPES = [
    Shape("copied without its metadata log", _ours_without_metadata, "is missing or empty"),
    Shape("KRaft's, perhaps one of several", _kraft_without_metadata, "is missing or empty", is_plain=True),
    Shape("KRaft's, with bootstrap.checkpoint", _kraft_with_bootstrap, "is missing or empty"),
    Shape("some topic ids missing", _partial_identities, "is missing or empty"),
    Shape("of ZooKeeper's time", _zookeeper, "is of an Apache Kafka with ZooKeeper"),
    Shape("of Kafka 0.10.0, messages v1", _kafka_0_10_0, "is of an Apache Kafka with ZooKeeper"),
    Shape("of Kafka 0.8, messages v0", _kafka_0_8, "is of an Apache Kafka with ZooKeeper"),
    Shape("partitions alone", _partitions_alone, "is missing or empty"),
]
NEWEST_MS = STAMP_MS + 20


def make_kafka_0_7(directory: Path) -> None:
    """Files named by a position in bytes: 4 bytes of length, magic, attributes, 4 of CRC-32, the value."""
    path = directory / "clicks-0"
    path.mkdir(parents=True)
    (path / "00000000000000000000.kafka").write_bytes(b"\x00\x00\x00\x0b\x01\x00\x12\x34\x56\x78hello")
    (path / "2048.kafka").write_bytes(b"")


def tree(directory: Path) -> dict[str, bytes | None]:
    """All that is in a directory, by its path there; None for directories."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }
