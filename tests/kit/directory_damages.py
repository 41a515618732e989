"""Every kind of damage to a directory that `left_behind` makes. Each does it, and returns from which offset on records
are missing after a repair (None: none are).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kit.left_behind import METADATA, ORDERS, PLACE, change, flip, logs_of
from kit.nodes import DATA
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.batch import HEADER_BYTES
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import read_offsets, write_offsets
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, write_leader_epochs
from ottla.storage.segment.scan import walk


def bad_batch(files: SimulatedFiles) -> int:
    path = logs_of(files)[1]
    positions = [at for at, _ in walk(files.open(path).pread, 0, files.size(path))]
    offset = _offset_at(files, path, positions[1])
    flip(files, path, positions[1] + HEADER_BYTES + 3)
    return offset


def bad_first_header(files: SimulatedFiles) -> int:
    change(files, logs_of(files)[0], 0, bytes(64))
    return 0


def bad_last_batch(files: SimulatedFiles) -> int:
    path = [path for path in logs_of(files) if files.size(path)][-1]
    at, header = list(walk(files.open(path).pread, 0, files.size(path)))[-1]
    flip(files, path, at + HEADER_BYTES + 3)
    return header.base_offset


def torn_tail(files: SimulatedFiles) -> int:
    path = [path for path in logs_of(files) if files.size(path)][-1]
    at, header = list(walk(files.open(path).pread, 0, files.size(path)))[-1]
    file = files.open(path, writable=True)
    file.truncate(at + header.size_bytes - 5)
    file.fdatasync()
    return header.base_offset


def lost_segment(files: SimulatedFiles) -> int:
    path = logs_of(files)[2]
    for suffix in (".log", ".index", ".timeindex"):
        files.unlink(path.with_suffix(suffix))
    return int(path.stem)


def bad_index(files: SimulatedFiles) -> None:
    flip(files, logs_of(files)[1].with_suffix(".index"), 5)


def bad_time_index(files: SimulatedFiles) -> None:
    flip(files, logs_of(files)[1].with_suffix(".timeindex"), 3)


def lost_index(files: SimulatedFiles) -> None:
    files.unlink(logs_of(files)[1].with_suffix(".index"))


def stray_index(files: SimulatedFiles) -> None:
    files.write_atomically(PLACE / layout.offset_file_name(999, ".index"), bytes(8))


def bad_snapshot(files: SimulatedFiles) -> None:
    path = [PLACE / name for name in files.list_directory(PLACE) if name.endswith(".snapshot")][-1]
    flip(files, path, 20)


def bad_epochs(files: SimulatedFiles) -> None:
    write_leader_epochs(files, PLACE, [EpochEntry(0, 0), EpochEntry(7, 5)])


def unreadable_epochs(files: SimulatedFiles) -> None:
    files.write_atomically(PLACE / layout.LEADER_EPOCH_CHECKPOINT_FILE, b"?")


def flipped_epoch(files: SimulatedFiles) -> None:
    """Of a batch in the middle; the field is in no checksum."""
    path = logs_of(files)[1]
    positions = [at for at, _ in walk(files.open(path).pread, 0, files.size(path))]
    change(files, path, positions[1] + 13, b"\x40")


def flipped_epoch_at_the_end(files: SimulatedFiles) -> None:
    path = [path for path in logs_of(files) if files.size(path)][-1]
    at, _ = list(walk(files.open(path).pread, 0, files.size(path)))[-1]
    change(files, path, at + 14, b"\x40")


def flipped_epoch_of_the_only_batch_of_its_epoch(files: SimulatedFiles) -> None:
    """The first batch of the log; all others were written in epoch 1. What the checkpoint says of it is right."""
    for path in logs_of(files):
        for at, header in list(walk(files.open(path).pread, 0, files.size(path))):
            change(files, path, at + 12, (1 if header.base_offset else 64).to_bytes(4, "big"))
    write_leader_epochs(files, PLACE, [EpochEntry(0, 0), EpochEntry(1, 3)])


def flipped_epoch_of_the_first_batch_and_no_checkpoint(files: SimulatedFiles) -> None:
    flipped_epoch_of_the_only_batch_of_its_epoch(files)
    unreadable_epochs(files)


def flipped_epoch_in_the_checkpoint(files: SimulatedFiles) -> None:
    path = PLACE / layout.LEADER_EPOCH_CHECKPOINT_FILE
    files.write_atomically(path, files.read_bytes(path).replace(b"0 0\n", b"4 0\n"))


def bad_identity(files: SimulatedFiles) -> None:
    files.write_atomically(PLACE / layout.PARTITION_METADATA_FILE, b"version: 0\ntopic_id: ?")


def flipped_identity(files: SimulatedFiles) -> None:
    path = PLACE / layout.PARTITION_METADATA_FILE
    text = bytearray(files.read_bytes(path))
    text[-3] = ord("A") if text[-3] != ord("A") else ord("B")
    files.write_atomically(path, bytes(text))


def unreadable_recovery_points(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, b"0\n7\norders 0 1\n")


def unreadable_log_starts(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.LOG_START_OFFSET_CHECKPOINT_FILE, b"\xff")


def unreadable_high_watermarks(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.REPLICATION_OFFSET_CHECKPOINT_FILE, b"")


def unreadable_clean_offsets(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.CLEANER_OFFSET_CHECKPOINT_FILE, b"1\n0\n")


def rows_beyond_the_end(files: SimulatedFiles) -> None:
    for name in (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE):
        write_offsets(files, DATA / name, read_offsets(files, DATA / name) | {ORDERS: 4711})


def log_start_beyond_the_end(files: SimulatedFiles) -> None:
    write_offsets(files, DATA / layout.LOG_START_OFFSET_CHECKPOINT_FILE, {ORDERS: 4711})


def bad_properties(files: SimulatedFiles) -> None:
    path = DATA / layout.META_PROPERTIES_FILE
    text = files.read_bytes(path).replace(b"directory.id=", b"directory.id=!")
    files.write_atomically(path, text)


def lost_properties(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.META_PROPERTIES_FILE, b"\xff\xfe")


def bad_format(files: SimulatedFiles) -> None:
    files.write_atomically(DATA / layout.FORMAT_FILE, b"?")


def temporary_files(files: SimulatedFiles) -> None:
    files.write_atomically(PLACE / (layout.PARTITION_METADATA_FILE + ".tmp"), b"x")
    files.write_atomically(DATA / "x.tmp", b"x")
    files.write_atomically(PLACE / layout.offset_file_name(3, ".log.cleaned"), b"x")
    files.write_atomically(PLACE / layout.offset_file_name(0, ".log.deleted"), b"x")


def metadata_damage(files: SimulatedFiles) -> None:
    flip(files, logs_of(files, METADATA)[0], 100)


def metadata_without_a_byte(files: SimulatedFiles) -> None:
    path = logs_of(files, METADATA)[0]
    file = files.open(path, writable=True)
    file.truncate(0)
    file.fdatasync()


def metadata_gone(files: SimulatedFiles) -> None:
    for name in files.list_directory(METADATA):
        files.unlink(METADATA / name)
    files.remove_directory(METADATA)


def partitions_alone(files: SimulatedFiles) -> None:
    """Everything beside them is gone, and who they are."""
    metadata_gone(files)
    for name in files.list_directory(DATA):
        if not files.is_directory(DATA / name):
            files.unlink(DATA / name)
    files.unlink(PLACE / layout.PARTITION_METADATA_FILE)


def metadata_index(files: SimulatedFiles) -> None:
    files.write_atomically(logs_of(files, METADATA)[0].with_suffix(".timeindex"), bytes(7))


def quorum_state(files: SimulatedFiles) -> None:
    files.write_atomically(METADATA / "quorum-state", b"{")


DAMAGES: list[Callable[[SimulatedFiles], int | None]] = [
    bad_batch,
    bad_first_header,
    bad_last_batch,
    torn_tail,
    lost_segment,
    bad_index,
    bad_time_index,
    lost_index,
    stray_index,
    bad_snapshot,
    bad_epochs,
    unreadable_epochs,
    flipped_epoch,
    flipped_epoch_at_the_end,
    flipped_epoch_of_the_only_batch_of_its_epoch,
    flipped_epoch_of_the_first_batch_and_no_checkpoint,
    flipped_epoch_in_the_checkpoint,
    bad_identity,
    flipped_identity,
    unreadable_recovery_points,
    unreadable_log_starts,
    unreadable_high_watermarks,
    unreadable_clean_offsets,
    rows_beyond_the_end,
    log_start_beyond_the_end,
    bad_properties,
    lost_properties,
    bad_format,
    temporary_files,
    metadata_damage,
    metadata_without_a_byte,
    metadata_gone,
    partitions_alone,
    metadata_index,
    quorum_state,
]


def _offset_at(files: SimulatedFiles, path: Path, position: int) -> int:
    """The offset of the batch at `position`."""
    for at, header in walk(files.open(path).pread, 0, files.size(path)):
        if at == position:
            return header.base_offset
    raise AssertionError(position)
