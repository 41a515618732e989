"""Index files as they are on disk, read without a lock and without repairs: for the tools that explain and dump them.

The broker itself uses `sparse_index.py`. Here the result keeps the entry's bytes and every comparison of the binary
search.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ottla.storage.files.files import Files

MAX_INDEX_BYTES: Final = 256 * 1024 * 1024
"""The largest index file that is read."""

OFFSET_ENTRY: Final = struct.Struct(">ii")
"""Relative offset, byte position: see offset_index.py."""
TIME_ENTRY: Final = struct.Struct(">qi")
"""Timestamp, relative offset: see time_index.py."""


class Probe(NamedTuple):
    """One comparison of a binary search: entry `slot` has `key`."""

    slot: int
    key: int
    is_floor: bool


class IndexStep(NamedTuple):
    """The greatest entry of an index at or below the wanted key.

    `slot` is None when there is none; `problem` is the reason why an index was not trusted. In an offset index `key` is
    the entry's offset, relative to the base offset, and `value` a byte position in the `.log`; in a time index `key` is
    a timestamp and `value` a relative offset. `file_position` is the position of the entry's bytes, `raw`, in the index
    file.
    """

    path: Path
    base_offset: int
    entry_bytes: int
    entries: int
    target: int
    probes: tuple[Probe, ...]
    slot: int | None
    file_position: int
    raw: bytes
    key: int
    value: int
    problem: str


class StoredIndex(NamedTuple):
    """The entries of an index file, and their problem, if there is one, in one line."""

    rows: Sequence[tuple[int, int]]
    raw: bytes
    problem: str


def read_index(files: Files, path: Path, entry: struct.Struct) -> StoredIndex:
    """The entries before the zero tail that Kafka preallocates. Raises OSError, but not for a missing file."""
    if not files.exists(path):
        return StoredIndex((), b"", "the file is not there")
    size = files.size(path)
    if size > MAX_INDEX_BYTES:
        return StoredIndex((), b"", f"{size} bytes are no index")
    data = files.read_bytes(path)
    count = -(-len(data.rstrip(b"\0")) // entry.size)
    whole = min(count, len(data) // entry.size)
    rows: list[tuple[int, int]] = list(entry.iter_unpack(data[: whole * entry.size]))
    if len(data) % entry.size:
        return StoredIndex(rows, data, f"{len(data)} bytes are not a multiple of the {entry.size} bytes of an entry")
    for number in range(1, whole):
        if rows[number][0] <= rows[number - 1][0] or rows[number][1] < rows[number - 1][1]:
            return StoredIndex(rows, data, f"entry {number} does not come after entry {number - 1}")
    return StoredIndex(rows, data, "")


def floor_entry(files: Files, path: Path, base_offset: int, entry: struct.Struct, target: int) -> IndexStep:
    """The entry with the greatest key at or below `target`, found by a binary search that the step records.

    Raises OSError.
    """
    stored = read_index(files, path, entry)
    rows = stored.rows
    none = IndexStep(path, base_offset, entry.size, len(rows), target, (), None, 0, b"", 0, 0, "")
    if stored.problem:
        return none._replace(problem=f"{stored.problem}; the broker rebuilds the index when it opens the log")
    probes: list[Probe] = []
    low, high = 0, len(rows)  # entries before `low` are at or below the target, those from `high` on above it
    while low < high:
        middle = (low + high) // 2
        below = rows[middle][0] <= target
        probes.append(Probe(middle, rows[middle][0], below))
        low, high = (middle + 1, high) if below else (low, middle)
    if low == 0:
        return none._replace(probes=tuple(probes))
    slot = low - 1
    key, value = rows[slot]
    position = slot * entry.size
    return none._replace(
        probes=tuple(probes),
        slot=slot,
        file_position=position,
        raw=stored.raw[position : position + entry.size],
        key=key,
        value=value,
    )
