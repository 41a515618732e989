"""The content of a data directory's files as rows, one dictionary per batch, record, index entry or line: what
`--json` prints.

Each row has `type`. A row `file` opens each file, and a row `problem` says where it cannot be read any more. Files are
never changed; a `.log` is read batch by batch, so its size does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.cli.batch_words import header_to_json, record_to_json
from ottla.cli.dump_records import Row, Words, control_words, words_of
from ottla.cli.show import show_hex
from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.protocol.records.formats import any_crc_matches, decode_any
from ottla.storage.directories.directory_shapes import SEGMENT_OF_0_7
from ottla.storage.files.files import File, Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.formats.kafka_uuid import uuid_to_text
from ottla.storage.formats.leader_epoch_checkpoint import read_leader_epochs
from ottla.storage.formats.redo_format import records_of, size_of
from ottla.storage.index.index_reading import OFFSET_ENTRY, TIME_ENTRY, read_index
from ottla.storage.producers.snapshot_format import CorruptSnapshot, parse_snapshot
from ottla.storage.producers.transaction_index import ENTRY as TRANSACTION_ENTRY
from ottla.storage.producers.transaction_index import AbortedTransaction
from ottla.storage.recovery.redo import MOST_FILE_BYTES
from ottla.storage.segment.scan import walk, with_inner_offsets
from ottla.storage.tools.readable_files import is_of_a_file, obstacle

MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""Largest batch that is read whole, for its checksum and its records."""
MAX_TEXT_BYTES: Final = 1024 * 1024
"""Largest small text file that is shown."""

UNREAD_0_7: Final = "segment of Kafka 0.7, a format that is not read"
"""The problem of a `*.kafka` file."""
_OFFSET_CHECKPOINTS = (
    layout.RECOVERY_POINT_CHECKPOINT_FILE,
    layout.LOG_START_OFFSET_CHECKPOINT_FILE,
    layout.REPLICATION_OFFSET_CHECKPOINT_FILE,
    layout.CLEANER_OFFSET_CHECKPOINT_FILE,
    layout.INDEX_OFFSET_CHECKPOINT_FILE,
)
_TEXT_FILES = (
    layout.PARTITION_METADATA_FILE,
    layout.META_PROPERTIES_FILE,
    layout.FORMAT_FILE,
    layout.CLOCK_FILE,
    layout.CLEAN_SHUTDOWN_FILE,
    "quorum-state",
)
_LEAVING = (layout.DELETED_SUFFIX, layout.CLEANED_SUFFIX, layout.SWAP_SUFFIX)


def rows_of(files: Files, path: Path, *, with_records: bool) -> Iterator[Row]:
    """The rows of a file, or of all files in a directory and the partition directories in it. Raises OSError."""
    if not files.is_directory(path):
        yield from _file_rows(files, path, with_records)
        return
    names = files.list_directory(path)
    for name in names:
        if not files.is_directory(path / name) or is_of_a_file(name):
            yield from _file_rows(files, path / name, with_records)
    for name in names:
        if files.is_directory(path / name) and layout.parse_partition_directory(name):
            yield from rows_of(files, path / name, with_records=with_records)


def _file_rows(files: Files, path: Path, with_records: bool) -> Iterator[Row]:
    kind, reader = _kind_of(path)
    problem = obstacle(path)
    size_bytes = files.size(path) if problem is None else 0
    yield {"type": "file", "file": str(path), "kind": kind, "size_bytes": size_bytes}
    if problem is not None:
        yield _problem(problem)
    elif reader is not None:
        yield from reader(files, path, with_records)


def _kind_of(path: Path) -> tuple[str, Callable[[Files, Path, bool], Iterator[Row]] | None]:
    name = path.name
    for suffix in _LEAVING:
        name = name.removesuffix(suffix)
    if name == layout.REDO_LOG_FILE:
        return "redo log", _redo_rows
    if name.endswith((layout.LOG_SUFFIX, ".checkpoint")):
        return ("log" if name.endswith(layout.LOG_SUFFIX) else "metadata snapshot"), _batch_rows
    if name.endswith(layout.TIME_INDEX_SUFFIX):
        return "time index", _time_index_rows
    if name.endswith(layout.INDEX_SUFFIX):
        return "offset index", _offset_index_rows
    if name.endswith(layout.TXN_INDEX_SUFFIX):
        return "index of aborted transactions", _transaction_rows
    if name.endswith(layout.SNAPSHOT_SUFFIX):
        return "producer snapshot", _snapshot_rows
    if name in _OFFSET_CHECKPOINTS:
        return "offset checkpoint", _checkpoint_rows
    if name == layout.LEADER_EPOCH_CHECKPOINT_FILE:
        return "leader epochs", _epoch_rows
    if name in _TEXT_FILES:
        return "text", _text_rows
    if SEGMENT_OF_0_7.fullmatch(name):
        return UNREAD_0_7, None
    return "unknown", None


def _problem(text: object) -> Row:
    return {"type": "problem", "problem": str(text)}


# --- batches -----------------------------------------------------------------------------------------------------


def _batch_rows(files: Files, path: Path, with_records: bool) -> Iterator[Row]:
    words = words_of(path)
    size = files.size(path)
    file = files.open(path)
    try:
        for position, header in walk(file.pread, 0, size):
            yield from _one_batch(file, position, header, with_records, words)
    except CorruptBatch as error:
        yield _problem(error)
    finally:
        file.close()


def _one_batch(
    file: File, position: int, header: BatchHeader, with_records: bool, words: Words | None
) -> Iterator[Row]:
    if header.size_bytes > MAX_BATCH_BYTES:
        yield {"type": "batch", **header_to_json(header, position)}
        yield _problem(f"at position {position}: a batch of {header.size_bytes} bytes is not read")
        return
    data = file.pread(header.size_bytes, position)
    placed = with_inner_offsets(file.pread, position, header)
    yield {"type": "batch", **header_to_json(placed, position), "is_crc_right": any_crc_matches(data, header)}
    if not with_records:
        return
    try:
        records = decode_any(data, check_crc=False)
    except CorruptBatch as error:
        yield _problem(f"at position {position}: {error}")
        return
    for record in records:
        if header.is_control:
            yield {"type": "record", **record_to_json(record), **control_words(record)}
        else:
            yield {"type": "record", **record_to_json(record), **({} if words is None else words(record))}


# --- indexes, snapshots, checkpoints ----------------------------------------------------------------------------------


def _offset_index_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    base_offset = _offset_of(path)
    stored = read_index(files, path, OFFSET_ENTRY)
    for number, (relative, position) in enumerate(stored.rows):
        yield {
            "type": "offset index entry",
            "entry": number,
            "bytes": show_hex(stored.raw[number * 8 : number * 8 + 8]),
            "relative_offset": relative,
            "offset": base_offset + relative,
            "position": position,
        }
    if stored.problem:
        yield _problem(stored.problem)


def _time_index_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    base_offset = _offset_of(path)
    stored = read_index(files, path, TIME_ENTRY)
    for number, (timestamp, relative) in enumerate(stored.rows):
        yield {
            "type": "time index entry",
            "entry": number,
            "bytes": show_hex(stored.raw[number * 12 : number * 12 + 12]),
            "timestamp": timestamp,
            "relative_offset": relative,
            "offset": base_offset + relative,
        }
    if stored.problem:
        yield _problem(stored.problem)


def _transaction_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    data = files.read_bytes(path)
    count = len(data) // TRANSACTION_ENTRY.size
    whole = data[: count * TRANSACTION_ENTRY.size]
    for number, (version, *values) in enumerate(TRANSACTION_ENTRY.iter_unpack(whole)):
        yield {
            "type": "aborted transaction",
            "entry": number,
            "version": version,
            **AbortedTransaction(*values)._asdict(),
        }
    if len(data) > len(whole):
        yield _problem(f"{len(data)} bytes are no multiple of an entry's {TRANSACTION_ENTRY.size}")


def _offset_of(path: Path) -> int:
    parsed = layout.parse_offset_file(path.name)
    return parsed.offset if parsed else 0


def _snapshot_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    try:
        producers = parse_snapshot(files.read_bytes(path))
    except CorruptSnapshot as error:
        yield _problem(error)
        return
    for producer in producers:
        last = producer.batches[-1] if producer.batches else None
        yield {
            "type": "producer",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": last.last_offset if last else -1,
            "offset_delta": last.offset_delta if last else 0,
            "timestamp": last.timestamp_ms if last else -1,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": producer.current_txn_first_offset,
        }


def _checkpoint_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    try:
        offsets = read_offsets(files, path)
    except BrokenFile as error:
        yield _problem(error)
        return
    for (topic, partition), offset in offsets.items():
        yield {"type": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def _redo_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    file = files.open(path)
    try:
        data = file.pread(min(file.size(), MOST_FILE_BYTES), 0)
    finally:
        file.close()
    end = 0
    for record in records_of(data):
        position, end = end, end + size_of(record)
        yield {
            "type": "redo record",
            "position": position,
            "generation": record.generation,
            "sequence": record.sequence,
            "entry_count": len(record.entries),
            "size_bytes": end - position,
        }
        for entry in record.entries:
            yield {
                "type": "redo entry",
                "partition": entry.name,
                "topic_id": uuid_to_text(UUID(bytes=entry.topic_id)),
                "base_offset": entry.base_offset,
                "position": entry.position,
                "end_offset": entry.end_offset,
                "size_bytes": len(entry.data),
            }
    if not end and any(data):
        yield _problem("no record can be read at its beginning: a start takes nothing from it")


def _epoch_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    try:
        entries = read_leader_epochs(files, path.parent)
    except BrokenFile as error:
        yield _problem(error)
        return
    for entry in entries:
        yield {"type": "leader epoch", "epoch": entry.epoch, "start_offset": entry.start_offset}


def _text_rows(files: Files, path: Path, _: bool) -> Iterator[Row]:
    if files.size(path) > MAX_TEXT_BYTES:
        yield _problem(f"longer than {MAX_TEXT_BYTES} bytes, so it is not what its name says")
        return
    for number, line in enumerate(files.read_bytes(path).decode("utf-8", "replace").splitlines(), 1):
        yield {"type": "line", "line": number, "text": line}
