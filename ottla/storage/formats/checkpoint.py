"""Offset checkpoints: a small text file per log directory and purpose, in Kafka's format (OffsetCheckpointFile).

    0                       version of the format
    2                       number of rows that follow
    orders 0 4711           topic, partition, offset
    first-2 1 15

`directory_checkpoints.py` has the list of the files and the meaning of their offsets. Files are replaced whole
(`Files.write_atomically`), so a crash leaves the old or the new one.

An invalid file raises `BrokenFile`, which names the file, the line and what was expected: guessing an offset could lose
records. A file without content raises `BlankFile`: Kafka creates its checkpoints empty and writes them a minute later,
and some file systems keep a length without the content. Each reader decides what that means.
`leader_epoch_checkpoint.py` also uses `read_rows` and `write_rows`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.storage.files.files import Files
from ottla.storage.formats.layout import MAX_OFFSET, MAX_PARTITION, TopicPartition, topic_name_problem

VERSION: Final = 0
MAX_CHECKPOINT_BYTES: Final = 256 * 1024 * 1024
"""The largest checkpoint that is read: a million partitions fit. A larger file is not a checkpoint."""


class BrokenFile(ValueError):
    """The content of a small file is invalid; names the file, the line (from 1) and what was expected."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}: line {line}: {problem}")
        self.path = path
        self.line = line
        self.problem = problem


class BlankFile(BrokenFile):
    """The file exists and is empty, or has only zeros (`has_zeros`)."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        super().__init__(path, 1, f"nothing but {size_bytes} zeros" if size_bytes else "the file is empty")
        self.has_zeros = size_bytes > 0


def read_text(files: Files, path: Path) -> str:
    """The content of a small text file. FileNotFoundError when it is missing, BrokenFile when it is too large or not
    UTF-8, and BlankFile when it is blank.
    """
    size = files.size(path)
    if size > MAX_CHECKPOINT_BYTES:
        raise BrokenFile(path, 1, f"{size} bytes, at most {MAX_CHECKPOINT_BYTES} expected")
    data = files.read_bytes(path)
    if not data.strip(b"\0"):
        raise BlankFile(path, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BrokenFile(path, line, f"byte {error.start} is not UTF-8") from error


def read_rows(files: Files, path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a checkpoint as (line number, fields); [] when there is no file. Raises BrokenFile, BlankFile."""
    try:
        text = read_text(files, path)
    except FileNotFoundError:
        return []
    return _parse_rows(path, text)


def _parse_rows(path: Path, text: str) -> list[tuple[int, list[str]]]:
    lines = text.splitlines()
    if not lines or lines[0].strip() != str(VERSION):
        raise BrokenFile(path, 1, f"version {VERSION} expected, got {_shown(lines[0] if lines else '')}")
    count = parse_int(path, 2, "the number of rows", lines[1] if len(lines) > 1 else "", 0, len(lines))
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], 3) if line.strip()]
    if len(rows) != count:
        raise BrokenFile(path, len(lines), f"{count} rows expected, got {len(rows)}")
    return rows


def write_rows(files: Files, path: Path, rows: Sequence[str]) -> None:
    """Replace a checkpoint; durable when this returns. Raises OSError."""
    files.write_atomically(path, encode_rows(rows))


def encode_rows(rows: Sequence[str]) -> bytes:
    """The bytes of a checkpoint."""
    return "\n".join([str(VERSION), str(len(rows)), *rows, ""]).encode("utf-8")


def parse_int(path: Path, line: int, what: str, text: str, least: int, most: int) -> int:
    """A decimal number within bounds, otherwise BrokenFile."""
    try:
        value = int(text) if text.strip().isascii() and "_" not in text else None
    except ValueError:
        value = None
    if value is None or not least <= value <= most:
        raise BrokenFile(path, line, f"{what} expected, between {least} and {most}, got {_shown(text)}")
    return value


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """Offset by partition; empty when there is no file. Raises BrokenFile, BlankFile."""
    return _offsets(path, read_rows(files, path))


def parse_offsets(path: Path, text: str) -> dict[TopicPartition, int]:
    """Offset by partition, of the content of the file at `path`. Raises BrokenFile."""
    return _offsets(path, _parse_rows(path, text))


def _offsets(path: Path, rows: Sequence[tuple[int, list[str]]]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line, fields in rows:
        if len(fields) != 3 or topic_name_problem(fields[0]) is not None:
            raise BrokenFile(path, line, f"'topic partition offset' expected, got {_shown(' '.join(fields))}")
        partition = parse_int(path, line, "a partition", fields[1], 0, MAX_PARTITION)
        offset = parse_int(path, line, "an offset", fields[2], 0, MAX_OFFSET)
        offsets[TopicPartition(fields[0], partition)] = offset
    return offsets


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint by these rows, sorted; durable when this returns. Raises OSError."""
    files.write_atomically(path, encode_offsets(offsets))


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a checkpoint with these rows, sorted."""
    return encode_rows([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
