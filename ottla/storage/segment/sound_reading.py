"""Reading bytes of a segment that were not verified yet: the batches up to the first invalid one, for a worker.

Verified ranges are remembered (`soundness.py`), and some of the following batches are checked in the same call.
"""

from __future__ import annotations

from typing import Final

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.soundness import sound_batches

AHEAD: Final = 4
LEAST_AHEAD_BYTES: Final = 256 << 10
MOST_AHEAD_BYTES: Final = 8 << 20
AHEAD_BATCHES: Final = 2_000
"""How far a check goes beyond the bytes to be sent, if the following ones are in memory, so that the next reads need no
worker: this many times their length, within these limits. A request may be for hundreds of partitions, and its response
waits."""
_PIECE_BYTES: Final = 2 << 20


def read_sound(segment: Segment, position: int, end: int, before_offset: int | None, limit: int) -> bytes:
    """The batches between bytes `position`, where one begins, and `end`, up to the first invalid one. Waits for the
    disk: for a worker.

    Also checks some of the following batches, up to byte `limit`, as far as they are in memory.

    Args:
        before_offset: the next segment's base offset, which no batch may reach; None if none follows.

    Raises:
        KafkaError: CORRUPT_MESSAGE, the first batch is invalid, or the file is too short for it.
        OSError: the disk failed, or the segment was deleted.
    """
    try:
        data = segment.file.pread(end - position, position)
    except ValueError:
        raise OSError(f"{segment.path}: deleted while it was being read") from None
    sound_bytes, count, next_offset, problem = sound_batches(data, segment.base_offset, before_offset)
    if problem is None and len(data) < end - position:
        problem = "the file ends here"
    segment.sound.add(position, position + sound_bytes)
    if problem is None:
        ahead_bytes = min(max(AHEAD * (end - position), LEAST_AHEAD_BYTES), MOST_AHEAD_BYTES)
        _look_ahead(segment, end, min(limit, end + ahead_bytes), next_offset, before_offset, AHEAD_BATCHES - count)
        return data
    if sound_bytes:
        return data[:sound_bytes]
    if len(data) < end - position:
        problem = f"{problem}; the file has {position + len(data)} bytes, {limit} were stored"
    raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{segment.path}: at position {position}: {problem}")


def _look_ahead(
    segment: Segment, position: int, stop: int, next_offset: int, before_offset: int | None, batches: int
) -> None:
    """Check batches between bytes `position` and `stop` that are in memory; readers will read them next."""
    while position < stop and batches > 0 and segment.sound.end_from(position) == position:
        data = segment.file.pread_nowait(min(stop - position, _PIECE_BYTES), position)
        if data is None:
            return
        sound_bytes, count, next_offset, _ = sound_batches(data, next_offset, before_offset, batches)
        segment.sound.add(position, position + sound_bytes)
        if not sound_bytes:  # damage, for which the next reader gets the error, or a batch larger than the piece
            return
        position += sound_bytes
        batches -= count
