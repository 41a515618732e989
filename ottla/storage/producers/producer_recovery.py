"""Producer state at start: the newest sound snapshot, and the headers of the batches after it.

Snapshots speak about everything below the offset in their name; one beyond the log end is of a past that was lost
and is removed before anything else is written. Kafka's ProducerStateManager.truncateAndReload.
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
    """The producers of the log as of its end, the offset of the snapshot that had a part of them, -1 for none, and
    the transactions that were open at the snapshot or came after it.

    Unsound snapshots, and those beyond the end, are removed. Without one, the batches of the first segment that lie
    below the log start count, too, which Kafka leaves out: DeleteRecords may have taken a batch whose answer its
    producer never got, and that is a duplicate when it comes again, whatever crash was between.

    Args:
        snapshots: offsets of the `.snapshot` files where somebody has looked already; those removed are taken out.

    What is damaged is passed over with a line: its readers get CORRUPT_MESSAGE, and the other partitions are served.

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
    """The transactions of a log by all of its batches. Raises OSError."""
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
    """Position and header of each batch from `position` on, continuing after what is none with the next sound one."""
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
    """What a control batch's record says, -1 for one that says nothing."""
    try:
        end = decode_transaction_end(segment.file.pread(header.size_bytes, position))
    except CorruptBatch:
        return -1
    return -1 if end is None else end.coordinator_epoch
