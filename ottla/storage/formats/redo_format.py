"""The bytes of `ottla-redo.log`: the records of rounds of syncs of several logs, in one file.

The file is a sequence of records, one for each round. A record is a head and a body; integers are big-endian:

    head    magic "OTRD" · generation (int64) · sequence (int32) · length of the body (int32) · CRC-32C (uint32) of
            generation, sequence, length and body
    body    entries: topic id (16 bytes) · base offset of the segment (int64) · position in its file (int64) · end
            offset (int64) · length of the bytes (int32) · length of the name (uint16) · name of the partition's
            directory · bytes

An entry means that the `.log` file has these bytes from `position` on, and that they end before `end offset`.

All records of a generation follow each other from the beginning of the file, with sequences from 0 on. A generation
that replaces another one begins with a record without entries. The bytes after the last record are of an earlier
generation, or were torn by a crash, and are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.protocol.records.checksum import crc32c
from ottla.storage.files.files import Buffer

MAGIC: Final = b"OTRD"
_CHECKED = Struct(">qii")
_CHECKSUM = Struct(">I")
_ENTRY = Struct(">16sqqqiH")
HEAD_BYTES: Final = len(MAGIC) + _CHECKED.size + _CHECKSUM.size
ENTRY_HEAD_BYTES: Final = _ENTRY.size

pack_entry = _ENTRY.pack
"""The head of an entry: topic id, base offset, position, end offset, length of the bytes, length of the name."""


class RedoEntry(NamedTuple):
    """Bytes of one segment.

    Attributes:
        topic_id: the id of the partition's topic, 16 bytes.
        name: the name of the partition's directory in the log directory.
        base_offset: the base offset of the segment.
        position: the position of the first byte in the segment's `.log` file.
        end_offset: the offset after the last record of the bytes.
        data: the bytes: one batch or more.
    """

    topic_id: bytes
    name: str
    base_offset: int
    position: int
    end_offset: int
    data: memoryview


class RedoRecord(NamedTuple):
    """The entries of one round."""

    generation: int
    sequence: int
    entries: list[RedoEntry]


def head_of(generation: int, sequence: int, body: Buffer) -> bytes:
    """The head of a record."""
    checked = _CHECKED.pack(generation, sequence, len(body))
    return MAGIC + checked + _CHECKSUM.pack(crc32c(body, crc32c(checked)))


def size_of(record: RedoRecord) -> int:
    """The size of a record in the file, in bytes."""
    entries = sum(ENTRY_HEAD_BYTES + len(entry.name) + len(entry.data) for entry in record.entries)
    return HEAD_BYTES + entries


def records_of(data: Buffer) -> Iterator[RedoRecord]:
    """The records of the newest generation, from the first up to one that is missing, torn or of another generation."""
    view = memoryview(data)
    position, generation, expected = 0, None, 0
    while position + HEAD_BYTES <= len(view):
        body_position = position + HEAD_BYTES
        checked = view[position + len(MAGIC) : body_position - _CHECKSUM.size]
        found, sequence, length = _CHECKED.unpack(checked)
        (checksum,) = _CHECKSUM.unpack(view[body_position - _CHECKSUM.size : body_position])
        if bytes(view[position : position + len(MAGIC)]) != MAGIC or not 0 <= length <= len(view) - body_position:
            return
        if generation not in {None, found} or sequence != expected:
            return
        body = view[body_position : body_position + length]
        if crc32c(body, crc32c(checked)) != checksum:
            return
        entries = _entries_of(body)
        if entries is None:
            return
        yield RedoRecord(found, sequence, entries)
        position, generation, expected = body_position + length, found, expected + 1


def _entries_of(body: memoryview) -> list[RedoEntry] | None:
    """The entries of a body with a correct checksum; None if no Ottla can have written it."""
    entries = []
    position = 0
    while position < len(body):
        if position + ENTRY_HEAD_BYTES > len(body):
            return None
        topic_id, base_offset, place, end_offset, length, name_length = _ENTRY.unpack_from(body, position)
        position += ENTRY_HEAD_BYTES
        end = position + name_length + length
        if length < 0 or end > len(body) or place < 0 or base_offset < 0:
            return None
        name = bytes(body[position : position + name_length])
        if not name.isascii():
            return None
        data = body[position + name_length : end]
        entries.append(RedoEntry(topic_id, name.decode("ascii"), base_offset, place, end_offset, data))
        position = end
    return entries
