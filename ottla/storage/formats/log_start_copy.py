"""`ottla-log-start-offset-copy`: a copy of the rows of `log-start-offset-checkpoint`, with a checksum. A file of
Ottla's.

    0                       as in the checkpoint, byte for byte
    1
    orders 0 1000
    crc32c 2774523562       of everything before this line

The start of a log is the only information in a directory that exists only once: a flipped bit hides records, and
retention removes them permanently. Kafka's file has no field for a checksum, and a Kafka that uses the directory in
between does not know this file. So the copy does not decide, it is only evidence. It is written before the checkpoint,
and is trusted only if the two differ by a single bit and the checkpoint was not rewritten long after. In any other case
(the rows of a Kafka or of a person, a crash between the two writes) the checkpoint stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.checksum import crc32c
from ottla.storage.files.files import Files
from ottla.storage.formats.checkpoint import BrokenFile, encode_offsets, parse_offsets
from ottla.storage.formats.layout import LOG_START_COPY_FILE, LOG_START_OFFSET_CHECKPOINT_FILE, TopicPartition

WRITTEN_TOGETHER_MS: Final = 60_000
"""The two are written one after the other. If the checkpoint is newer by more than this, another program wrote it."""
_SUM: Final = b"crc32c "


class BentRow(NamedTuple):
    """A line of the checkpoint as it is, and as it was written: they differ in one bit."""

    found: str
    written: str

    def __str__(self) -> str:
        return f"a bit has flipped: {self.found!r} was {self.written!r}"


class LogStartCopy(NamedTuple):
    """The copy as it was read: its rows, and the bytes of the checkpoint with these rows."""

    rows: dict[TopicPartition, int]
    content: bytes


def encode_copy(rows: Mapping[TopicPartition, int]) -> bytes:
    """The file's bytes."""
    content = encode_offsets(rows)
    return content + _SUM + b"%d\n" % crc32c(content)


def read_copy(files: Files, directory: Path) -> LogStartCopy | None:
    """The copy; None if there is none. Raises BrokenFile if its checksum is wrong, and OSError."""
    path = directory / LOG_START_COPY_FILE
    try:
        data = files.read_bytes(path)
    except FileNotFoundError:
        return None
    content, _, checksum = data.rpartition(_SUM)
    if checksum != b"%d\n" % crc32c(content):
        raise BrokenFile(path, 1, "the checksum in its last line is not that of the others")
    return LogStartCopy(parse_offsets(path, content.decode("utf-8", "replace")), content)


def bent_row(files: Files, directory: Path, copy: LogStartCopy) -> BentRow | None:
    """The line of the checkpoint in which a bit has flipped since it was written; None if no bit has.

    Raises OSError.
    """
    path = directory / LOG_START_OFFSET_CHECKPOINT_FILE
    try:
        found = files.read_bytes(path)
        later_ms = files.modified_ms(path) - files.modified_ms(directory / LOG_START_COPY_FILE)
    except FileNotFoundError:
        return None
    if len(found) != len(copy.content) or later_ms > WRITTEN_TOGETHER_MS:
        return None
    difference = int.from_bytes(found) ^ int.from_bytes(copy.content)
    if difference.bit_count() != 1:
        return None
    at = len(found) - 1 - (difference.bit_length() - 1) // 8
    first = copy.content.rfind(b"\n", 0, at) + 1
    end = copy.content.find(b"\n", at)
    return BentRow(found[first:end].decode("utf-8", "replace"), copy.content[first:end].decode("utf-8", "replace"))


def copied_rows(files: Files, directory: Path) -> dict[TopicPartition, int] | None:
    """The rows of the checkpoint before a bit in it flipped; None if no bit has. Raises OSError."""
    try:
        copy = read_copy(files, directory)
    except BrokenFile:
        return None
    return copy.rows if copy is not None and bent_row(files, directory, copy) is not None else None
