"""Logs on a simulated disk, batches as clients send them, and what is in a log as a plain dict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from kit.simulated_files import SimulatedFiles

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import Compression, decode_batch, encode_batch, iter_batches
from ottla.protocol.records.record import Record
from ottla.storage.files.health import DirectoryHealth
from ottla.storage.log.append import AppendEntry, AppendResult
from ottla.storage.log.log import Log
from ottla.storage.log.sync import SyncTicket
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.snapshot_format import encode_snapshot
from ottla.storage.recovery.recovery import open_log

DIRECTORY = Path("/data/orders-0")
TOPIC_ID = UUID(int=7)
NOW_MS = 1_700_000_000_000
BROKER = BrokerConfig.of({})


def topic_config(overrides: Mapping[str, str] | None = None) -> TopicConfig:
    return TopicConfig.resolve(dict(overrides or {}), BROKER)


def disk() -> SimulatedFiles:
    files = SimulatedFiles()
    files.make_directory(DIRECTORY, parents=True)
    files.sync_directory(DIRECTORY.parent)
    files.sync_directory(DIRECTORY.parent.parent)
    return files


def open_test_log(
    files: SimulatedFiles,
    overrides: Mapping[str, str] | None = None,
    *,
    now_ms: int = NOW_MS,
    was_clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    indexed_offset: int = 0,
    gaps_before: int = 0,
    health: DirectoryHealth | None = None,
    topic: str = "orders",
) -> Log:
    return open_log(
        files,
        DIRECTORY,
        topic=topic,
        partition=0,
        topic_id=TOPIC_ID,
        config=topic_config(overrides),
        now_ms=now_ms,
        was_clean=was_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        indexed_offset=indexed_offset,
        gaps_before=gaps_before,
        health=health,
    )


def batch(
    *values: bytes,
    stamps: Sequence[int] | None = None,
    key: bytes | None = b"k",
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    stamps = stamps or [NOW_MS] * len(values)
    records = [Record(number, stamps[number], key, value, ()) for number, value in enumerate(values)]
    return encode_batch(
        records,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def entry(data: bytearray | bytes, api_version: int = 9) -> AppendEntry:
    return AppendEntry(memoryview(bytearray(data)), api_version)


def append(log: Log, *batches: bytearray, now_ms: int = NOW_MS) -> Sequence[AppendResult]:
    return log.append([entry(one) for one in batches], now_ms)


def append_values(log: Log, *values: bytes, now_ms: int = NOW_MS) -> AppendResult:
    (result,) = append(log, batch(*values), now_ms=now_ms)
    assert result.error_code is ErrorCode.NONE
    return result


def sync(log: Log) -> None:
    ticket = log.begin_sync()
    if ticket is not None:
        ticket.run()
        log.end_sync(ticket)


def ticket_with_steps(ticket: SyncTicket, steps: Sequence[Callable[[], None]]) -> SyncTicket:
    """A sync of the same that does these steps in place of its own."""
    return SyncTicket(
        ticket.end,
        dirty=ticket.dirty,
        finished=ticket.finished,
        directory_changes=ticket.directory_changes,
        files=(),
        steps=[lambda _, step=step: step() for step in steps],  # type: ignore[misc]  # its default
    )


def write_snapshot(log: Log) -> bool:
    """As the chore does, once; whether one waited whose records are on disk."""
    write = log.begin_snapshot()
    if write is None:
        return False
    write.run()
    log.end_snapshot(write)
    return True


def snapshot_of(producers: Iterable[ProducerEntry]) -> bytes:
    """A `.snapshot` file of these producers."""
    data = bytearray(10)
    for position, piece in encode_snapshot(list(producers)):
        data[position : position + len(piece)] = piece
    return bytes(data)


def stored(log: Log, offset: int | None = None, *, max_bytes: int = 1 << 20) -> dict[int, bytes | None]:
    """Values by offset from `offset` (the log start) to the log end, read slice by slice."""
    found: dict[int, bytes | None] = {}
    first = position = log.log_start_offset if offset is None else offset
    while position < log.log_end_offset:
        data = log.read(position, max_bytes, end_offset=log.log_end_offset).read_blocking()
        assert data, f"nothing at offset {position} of a log that ends at {log.log_end_offset}"
        for start, header in iter_batches(data):
            assert header.next_offset > position
            for record in decode_batch(data[start : start + header.size_bytes]):
                if record.offset >= first:
                    found[record.offset] = record.value
            position = header.next_offset
    return found
