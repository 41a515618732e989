"""`leader-epoch-checkpoint`: the start offset of each leader epoch. Kafka's LeaderEpochCheckpointFile.

    0           version
    2           number of rows
    0 0         epoch 0 begins at offset 0
    3 4711      epoch 3 begins at offset 4711 (epochs 1 and 2 wrote nothing)

Epochs and start offsets both increase from row to row. One file per partition directory, replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BrokenFile, encode_rows, parse_int, read_rows, write_rows
from ottla.storage.formats.layout import LEADER_EPOCH_CHECKPOINT_FILE, MAX_OFFSET

MAX_EPOCH = (1 << 31) - 1


class EpochEntry(NamedTuple):
    """Leader epoch `epoch` begins with the record at `start_offset`."""

    epoch: int
    start_offset: int


def read_leader_epochs(files: Files, directory: Path) -> list[EpochEntry]:
    """The partition's epochs in order; [] when there is no file. Raises BrokenFile."""
    path = directory / LEADER_EPOCH_CHECKPOINT_FILE
    entries: list[EpochEntry] = []
    for line, fields in read_rows(files, path):
        if len(fields) != 2:
            raise BrokenFile(path, line, f"'epoch start-offset' expected, got {len(fields)} fields")
        entry = EpochEntry(
            parse_int(path, line, "a leader epoch", fields[0], 0, MAX_EPOCH),
            parse_int(path, line, "an offset", fields[1], 0, MAX_OFFSET),
        )
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            raise BrokenFile(path, line, f"epoch and offset beyond {tuple(entries[-1])} expected, got {tuple(entry)}")
        entries.append(entry)
    return entries


def write_leader_epochs(files: Files, directory: Path, entries: Iterable[EpochEntry]) -> None:
    """Replace the partition's epochs; durable when this returns. Raises OSError."""
    rows = [f"{entry.epoch} {entry.start_offset}" for entry in entries]
    write_rows(files, directory / LEADER_EPOCH_CHECKPOINT_FILE, rows)


def begin_leader_epochs(files: Files, directory: Path) -> None:
    """Write the file of a new partition, with epoch 0 at offset 0; not durable yet. Raises OSError."""
    files.write_new(directory / LEADER_EPOCH_CHECKPOINT_FILE, encode_rows(["0 0"]))
