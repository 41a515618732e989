"""What `ottla-redo.log` says of one partition, read by struct and the checksum of crcmod, not by the broker's code.

A record is `OTRD`, generation, sequence, length and CRC-32C, and a body of entries: topic id, base offset of the
segment, position, end offset, length of the bytes, length of the name, name of the partition's directory, bytes. The
records of one generation follow each other with sequences from 0 on; anything else ends them.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

import crcmod.predefined

REDO_LOG = "ottla-redo.log"
_HEAD = struct.Struct(">4sqiiI")
_CHECKED = slice(4, 20)
_ENTRY = struct.Struct(">16sqqqiH")
_crc32c = crcmod.predefined.mkCrcFun("crc-32c")


class RedoEntry(NamedTuple):
    """Bytes `[position, end)` of the segment of that base offset; the last record in them is before `end_offset`."""

    segment: int
    position: int
    end: int
    end_offset: int


def redo_entries(directory: Path, partition: str) -> list[RedoEntry]:
    """The entries of a partition's directory, in the order they were written in."""
    path = directory / REDO_LOG
    data = path.read_bytes() if path.exists() else b""
    found: list[RedoEntry] = []
    at, newest, expected = 0, None, 0
    while at + _HEAD.size <= len(data):
        magic, generation, sequence, length, checksum = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + max(length, 0)]
        if magic != b"OTRD" or length < 0 or len(body) < length or sequence != expected:
            break
        if newest not in (None, generation) or _crc32c(data[at:][_CHECKED] + body) != checksum:
            break
        found += _entries(body, partition.encode())
        at, newest, expected = at + _HEAD.size + length, generation, expected + 1
    return found


def _entries(body: bytes, partition: bytes) -> list[RedoEntry]:
    found, at = [], 0
    while at < len(body):
        _, segment, position, end_offset, length, name_length = _ENTRY.unpack_from(body, at)
        at += _ENTRY.size
        if body[at : at + name_length] == partition:
            found.append(RedoEntry(segment, position, position + length, end_offset))
        at += name_length + length
    return found
