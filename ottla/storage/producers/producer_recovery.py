"""Producer state at a start: the newest valid snapshot, and the headers of the batches after it.

A snapshot covers everything below the offset in its name. One after the log end is from records that were lost; it is
removed before anything else is written. Kafka's ProducerStateManager.truncateAndReload.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.protocol.records.control import decode_transaction_end
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.snapshot_format import CorruptSnapshot
from ottla.storage.producers.transactions import TransactionReplay
from ottla.storage.segment.damage import sound_batch_behind
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


def load_producers(
    files: Files,
    directory: Path,
    segments: Sequence[Segment],
    *,
    log_end_offset: int,
    expiration_ms: int,
    now_ms: int,
    snapshots: list[int] | None = None,
) -> tuple[ProducerStates, int, TransactionReplay]:
    """The producers at the end of the log, the offset of the snapshot that was used (-1 for none), and the transactions
    that were open at the snapshot or began after it.

    Invalid snapshots, and those after the end, are removed. Without a snapshot, the batches of the first segment below
    the log start count, too, which Kafka ignores. DeleteRecords may have deleted a batch whose response its producer
    never got; a retry of it is a duplicate, even after a crash.

    Args:
        snapshots: offsets of the `.snapshot` files if they are known already; removed ones are deleted from the list.

    Damaged batches are skipped with a log line: their readers get CORRUPT_MESSAGE, and other partitions are served.

    Raises:
        OSError: the disk failed.
    """
    states = ProducerStates(expiration_ms)
    loaded_offset, start_offset = -1, segments[0].base_offset if segments else log_end_offset
    if snapshots is None:
        snapshots = snapshot_offsets(files, directory)
    for offset in snapshots[::-1]:
        path = layout.snapshot_file(directory, offset)
        if offset > log_end_offset:
            files.unlink(path)
            snapshots.remove(offset)
            continue
        try:
            states.load(files.read_bytes(path), now_ms)
        except CorruptSnapshot as error:
            logger.warning("%s: %s; an older one and the log itself are used instead", path, error)
            files.unlink(path)
            snapshots.remove(offset)
            continue
        loaded_offset = start_offset = offset
        break
    transactions = TransactionReplay(
        {one.producer_id: one.current_txn_first_offset for one in states if one.current_txn_first_offset >= 0}
    )
    _replay(states, transactions, segments, start_offset, log_end_offset, now_ms)
    return states, loaded_offset, transactions


def scan_transactions(segments: Sequence[Segment]) -> TransactionReplay:
    """The transactions of a log, found by reading all of its batches. Raises OSError."""
    transactions = TransactionReplay()
    for segment in segments:
        for position, header in _batches(segment, 0):
            transactions.note(header, partial(segment.file.pread, header.size_bytes, position))
    return transactions


def snapshot_offsets(files: Files, directory: Path) -> list[int]:
    """Offsets of the `.snapshot` files, ascending."""
    parsed = (layout.parse_offset_file(name) for name in files.list_directory(directory))
    return sorted(found.offset for found in parsed if found is not None and found.suffix == layout.SNAPSHOT_SUFFIX)


def remove_stray_snapshots(files: Files, directory: Path, snapshots: list[int], base_offsets: Sequence[int]) -> None:
    """Keep the newest of the `snapshots` and those at the start of a segment, as Kafka does. Raises OSError."""
    for offset in snapshots[:-1]:
        if offset not in base_offsets:
            files.unlink(layout.snapshot_file(directory, offset))
            snapshots.remove(offset)


def _replay(
    states: ProducerStates,
    transactions: TransactionReplay,
    segments: Sequence[Segment],
    start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    for slot, segment in enumerate(segments):
        segment_end = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        if segment_end <= start_offset:
            continue
        position = segment.floor(start_offset)
        for at, header in _batches(segment, position):
            if header.producer_id >= 0 and header.last_offset >= start_offset:
                coordinator_epoch = _coordinator_epoch(segment, at, header) if header.is_control else -1
                states.replay(header, now_ms, coordinator_epoch)
                transactions.note(header, partial(segment.file.pread, header.size_bytes, at))


def _batches(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from `position` on, skipping damage up to the next valid one."""
    next_offset = segment.base_offset
    while True:
        try:
            for at, header in walk(segment.file.pread, position, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
                position, next_offset = at + header.size_bytes, header.next_offset
                yield at, header
            return
        except CorruptBatch as error:
            logger.error(
                "%s: %s; producers and transactions of the batches that are damaged there are not known",
                segment.path,
                error,
            )
            behind = sound_batch_behind(segment.file, position, segment.size_bytes, least_offset=next_offset)
            if behind is None:
                return
            position = behind


def _coordinator_epoch(segment: Segment, position: int, header: BatchHeader) -> int:
    """The coordinator epoch in the record of a control batch, -1 if it has none."""
    try:
        end = decode_transaction_end(segment.file.pread(header.size_bytes, position))
    except CorruptBatch:
        return -1
    return -1 if end is None else end.coordinator_epoch
