"""A log that lost its end: offsets that were assigned are never assigned again.

The checkpoints record the offset that a log had reached: everything below its recovery point was on disk, and
everything below its high watermark was visible. If the files end before that, because one was emptied, truncated or
removed, the log continues at the offset that it had reached. The log itself records the missing offsets, so that no
later start, cleaning or verification takes them for damage again, and no consumer waits there forever:

    ...  batch 990-999 | 1000-1499: an empty batch, no records      segment that was active
                       | 1500-                                      a new segment, in a new leader epoch

Kafka's cleaner leaves an empty batch where a producer's last batch has to be remembered; consumers skip it. Ottla's
differs from those because it names no producer. It is on disk when `leave_gap` returns: the next start would treat an
unexplained gap as a new loss (`missing_offsets.py`). Called by `recovery.open_log` only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from ottla.protocol.records.batch import MAGIC, BatchHeader, parse_header, seal_batch
from ottla.storage.errors import StorageError
from ottla.storage.files.files import write_all
from ottla.storage.segment.segment import Segment

MOST_OFFSETS_OF_A_GAP: Final = 1 << 36
"""A checkpoint that exceeds the log's end by this much was not written by a broker: no log reaches that."""
_LARGEST_RELATIVE_OFFSET: Final = (1 << 31) - 1
_NO_TIMESTAMP: Final = -1


def is_gap(header: BatchHeader) -> bool:
    """Whether a batch represents offsets that a log has lost."""
    is_empty = header.magic == MAGIC and not header.record_count and not header.is_control
    return is_empty and header.producer_id < 0 and header.max_timestamp == _NO_TIMESTAMP


def is_possible(end_offset: int, reached: int) -> bool:
    """Whether a log that ends at `end_offset` may have reached the offset `reached`."""
    return reached - end_offset <= MOST_OFFSETS_OF_A_GAP


def require_possible(directory: Path, end_offset: int, reached: int) -> None:
    """Raise StorageError if the offset that the checkpoints record for a log is impossible."""
    if not is_possible(end_offset, reached):
        raise StorageError(
            f"{directory}: the log ends at offset {end_offset}, and the checkpoints in {directory.parent} say that it"
            f" had reached {reached}, which is impossible; stop the broker and run"
            f" `ottla log verify --repair {directory.parent}`"
        )


def leave_gap(
    segments: list[Segment], end_offset: int, next_offset: int, leader_epoch: int, create: Callable[[int], Segment]
) -> None:
    """Let the log, whose batches end at `end_offset`, continue at `next_offset`, in a new segment that `create` makes.

    The batch that represents the missing offsets is on disk afterwards. Raises OSError.
    """
    at = end_offset
    while at < next_offset:
        if next_offset - 1 - segments[-1].base_offset > _LARGEST_RELATIVE_OFFSET and at > segments[-1].base_offset:
            _go_on(segments, at, create)
        active = segments[-1]
        last = min(next_offset - 1, active.base_offset + _LARGEST_RELATIVE_OFFSET)
        _append(active, at, last, leader_epoch)
        at = last + 1
    _go_on(segments, next_offset, create)


def _append(segment: Segment, first: int, last: int, leader_epoch: int) -> None:
    batch = seal_batch(
        b"",
        base_offset=first,
        leader_epoch=leader_epoch,
        attributes=0,
        last_offset_delta=last - first,
        base_timestamp=_NO_TIMESTAMP,
        max_timestamp=_NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    position = segment.size_bytes
    write_all(segment.file, [batch], position)
    segment.file.fdatasync()
    segment.size_bytes = segment.synced_bytes = position + len(batch)
    segment.index(parse_header(batch), position)


def _go_on(segments: list[Segment], base_offset: int, create: Callable[[int], Segment]) -> None:
    segments[-1].seal()
    segments[-1].sync()
    segments.append(create(base_offset))
