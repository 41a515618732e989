"""The record batches of one fetched chunk: found, checked, chosen and unpacked, without reading a single record.

`survey` walks the lengths of a chunk and reads all headers together into a table (one row per batch). The table gives
the offset of the next Fetch, and the batches to read: control batches, batches outside of the offset range and, with
read_committed, batches of aborted transactions are left out. `unpack` then yields *blocks*: the records of several
batches, one after the other in one buffer. Compressed batches are decompressed, uncompressed ones are never copied.

Every number here came over the network. A batch whose length, magic, count, offsets or checksum is impossible raises
CorruptBatch; the decompressed size of a batch is bounded by MAX_UNPACKED_BATCH_BYTES. A batch cut off at the end
of the chunk is no error: a broker cuts the chunk at `max_bytes`.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ottla.arrow.old_messages import as_batches, is_old
from ottla.arrow.varints import PADDING_BYTES
from ottla.protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    decode_batch,
)
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.compression import Compression, decompress
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.legacy import LEGACY_MAGICS, MAGIC_AT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ottla.arrow.varints import Positions

MAX_UNPACKED_BATCH_BYTES = 256 * 1024 * 1024
"""The largest batch that is decompressed. Kafka has no limit, but the memory of a task is limited."""

BLOCK_BYTES = 8 * 1024 * 1024
"""A block ends with the batch that reaches this size; decoding is faster with more lanes at the same time
(measured: 4.6 M rows a second with 8 MB, 2.5 with 2 MB)."""

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("batch_length", ">i4"),
        ("partition_leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)
"""The 61 bytes before a batch's records (KIP-98), big-endian, without gaps."""

_CRC_END = 21  # the checksum covers the bytes after it, from the attributes on
_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")


class Chunk(NamedTuple):
    """Fetched record batches: `data[start:end]`, in a buffer with at least PADDING_BYTES after `end`."""

    data: npt.NDArray[np.uint8]
    start: int
    end: int


class AbortedTransaction(NamedTuple):
    """A producer whose transaction, from `first_offset` up to its next ABORT marker, must not be read."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True)
class Survey:
    """The complete batches of a chunk: their positions in its data and their headers, columns as in HEADER."""

    chunk: Chunk
    positions: Positions
    headers: npt.NDArray[Any]

    @property
    def next_offset(self) -> int:
        """The offset after the last complete batch. Do not use it when there is none."""
        return int(self.headers["base_offset"][-1]) + int(self.headers["last_offset_delta"][-1]) + 1


class Block(NamedTuple):
    """The records of several batches in one padded buffer; row i of the columns describes the i-th batch."""

    data: memoryview
    starts: Positions
    ends: Positions
    counts: Positions
    base_offsets: Positions
    last_offsets: Positions
    base_timestamps: Positions
    append_timestamps: Positions  # the broker's time for LogAppendTime, only meaningful where `log_append_time`
    log_append_time: npt.NDArray[np.bool_]


def survey(chunk: Chunk) -> Survey:
    """Find the complete batches of `chunk` and read their headers; raises CorruptBatch for an impossible one."""
    positions: list[int] = []
    position = chunk.start
    data = chunk.data.data
    while position + HEADER_BYTES <= chunk.end:
        batch_length, magic = _LENGTH_AND_MAGIC.unpack_from(data, position)
        if magic in LEGACY_MAGICS:
            return _survey_old(chunk)
        if magic != 2:
            raise CorruptBatch(f"a batch of message format {magic}; there are formats 0 to 2")
        if batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
            raise CorruptBatch(f"a batch with the impossible length {batch_length}")
        if position + LENGTH_PREFIX_BYTES + batch_length > chunk.end:
            break
        positions.append(position)
        position += LENGTH_PREFIX_BYTES + batch_length
    if position + MAGIC_AT < chunk.end and is_old(data, position):
        return _survey_old(chunk)  # a message is shorter than a batch's header
    table = np.array(positions, np.int64)
    rows = chunk.data[table[:, None] + np.arange(HEADER_BYTES)]
    headers = rows.reshape(-1).view(HEADER) if positions else np.empty(0, HEADER)
    _check_offsets(headers)
    return Survey(chunk, table, headers)


def _survey_old(chunk: Chunk) -> Survey:
    """Survey a chunk that contains messages of formats v0 and v1: they are replaced by batches."""
    source = chunk.data.data[chunk.start : chunk.end]
    data, size = as_batches(source, most_bytes=MAX_UNPACKED_BATCH_BYTES, padding_bytes=PADDING_BYTES)
    return survey(Chunk(data, 0, size))


def _check_offsets(headers: npt.NDArray[Any]) -> None:
    if not len(headers):
        return
    base = headers["base_offset"].astype(np.int64)
    deltas = headers["last_offset_delta"].astype(np.int64)
    if base.min() < 0 or deltas.min() < 0 or base.max() > np.iinfo(np.int64).max - 2**31:
        raise CorruptBatch("a batch with an offset below 0 or beyond all bounds")
    if (base[1:] <= (base + deltas)[:-1]).any():
        raise CorruptBatch("batches whose offsets do not grow")
    if headers["record_count"].min() < 0:
        raise CorruptBatch("a batch with a count of records below 0")


def choose(
    found: Survey, first_offset: int, end_offset: int, aborted: Sequence[AbortedTransaction] = ()
) -> npt.NDArray[np.bool_]:
    """Return for each batch whether it may hold wanted records, from `first_offset` to before `end_offset`.

    `aborted` are the transactions that the broker returned with these batches for read_committed; empty: none to skip.
    """
    headers = found.headers
    base = headers["base_offset"].astype(np.int64)
    wanted = (base < end_offset) & (base + headers["last_offset_delta"] >= first_offset)
    wanted &= (headers["attributes"] & CONTROL_BIT) == 0
    wanted &= headers["record_count"] > 0
    if aborted:
        wanted &= ~_aborted_batches(found, aborted)
    return np.asarray(wanted, np.bool_)


def _aborted_batches(found: Survey, aborted: Sequence[AbortedTransaction]) -> npt.NDArray[np.bool_]:
    """Follow the batches in order, as Kafka's consumer does: drop a transaction's batches up to its ABORT marker."""
    waiting = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    open_producers: set[int] = set()
    dropped = np.zeros(len(found.headers), np.bool_)
    for row, header in enumerate(found.headers):
        last_offset = int(header["base_offset"]) + int(header["last_offset_delta"])
        while waiting and waiting[0].first_offset <= last_offset:
            open_producers.add(waiting.popleft().producer_id)
        producer_id = int(header["producer_id"])
        if producer_id not in open_producers:
            continue
        if header["attributes"] & CONTROL_BIT:
            if _is_abort_marker(found, row):
                open_producers.remove(producer_id)
        elif header["attributes"] & TRANSACTIONAL_BIT:
            dropped[row] = True
    return dropped


def _is_abort_marker(found: Survey, row: int) -> bool:
    records = decode_batch(_batch_bytes(found, row))
    return bool(records) and decode_control_key(records[0].key) is ControlType.ABORT


def _batch_bytes(found: Survey, row: int) -> memoryview:
    start = int(found.positions[row])
    return found.chunk.data.data[start : start + LENGTH_PREFIX_BYTES + int(found.headers["batch_length"][row])]


def unpack(found: Survey, wanted: npt.NDArray[np.bool_]) -> Iterator[Block]:
    """Yield the records of the wanted batches in blocks of about BLOCK_BYTES.

    Raises CorruptBatch when compressed bytes are broken, DecompressedTooLarge when they exceed the bound.
    """
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return
    if (found.headers["attributes"][rows] & COMPRESSION_MASK).any():
        yield from _unpack_compressed(found, rows)
    else:
        yield from _unpack_in_place(found, rows)


def check_checksums(found: Survey, end_offset: int) -> None:
    """Raise CorruptBatch when the checksum of a batch that begins before `end_offset` is wrong.

    All of them are checked before any field of a header is trusted: a flipped bit can make a batch with records look
    like a control batch, an empty batch, or one that ends before the range.
    """
    data = found.chunk.data.data
    rows = np.flatnonzero(found.headers["base_offset"] < end_offset)
    starts = found.positions[rows]
    ends = starts + LENGTH_PREFIX_BYTES + found.headers["batch_length"][rows]
    for row, start, end, crc in zip(
        rows.tolist(), starts.tolist(), ends.tolist(), found.headers["crc"][rows].tolist(), strict=True
    ):
        if crc32c(data[start + _CRC_END : end]) != crc:
            offset = int(found.headers["base_offset"][row])
            raise CorruptBatch(f"the batch at offset {offset} does not match its checksum")


def _unpack_in_place(found: Survey, rows: Positions) -> Iterator[Block]:
    starts = found.positions[rows] + HEADER_BYTES
    ends = found.positions[rows] + LENGTH_PREFIX_BYTES + found.headers["batch_length"][rows]
    filled = np.cumsum(ends - starts)
    cuts = np.flatnonzero(np.diff(filled // BLOCK_BYTES)) + 1
    data = found.chunk.data.data
    for part in np.split(np.arange(len(rows)), cuts):
        yield _block(found.headers[rows[part]], data, starts[part], ends[part])


def _unpack_compressed(found: Survey, rows: Positions) -> Iterator[Block]:
    parts: list[bytes | memoryview] = []
    taken: list[int] = []
    filled = 0
    codecs = (found.headers["attributes"][rows] & COMPRESSION_MASK).tolist()
    for row, codec in zip(rows.tolist(), codecs, strict=True):
        part = _decompress_records(_batch_bytes(found, row)[HEADER_BYTES:], codec)
        parts.append(part)
        taken.append(row)
        filled += len(part)
        if filled >= BLOCK_BYTES:
            yield _joined(found, parts, taken)
            parts, taken, filled = [], [], 0
    if taken:
        yield _joined(found, parts, taken)


def _decompress_records(records: memoryview, codec: int) -> bytes | memoryview:
    if codec == Compression.NONE:
        return records
    try:
        known = Compression(codec)
    except ValueError:
        raise CorruptBatch(f"a batch compressed with the unknown codec {codec}") from None
    return decompress(known, records, MAX_UNPACKED_BATCH_BYTES)


def _joined(found: Survey, parts: list[bytes | memoryview], taken: list[int]) -> Block:
    ends = np.cumsum(np.array([len(part) for part in parts], np.int64))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    data = memoryview(b"".join([*parts, bytes(PADDING_BYTES)]))
    return _block(found.headers[np.array(taken)], data, starts, ends)


def _block(headers: npt.NDArray[Any], data: memoryview, starts: Positions, ends: Positions) -> Block:
    base_offsets = headers["base_offset"].astype(np.int64)
    return Block(
        data=data,
        starts=starts,
        ends=ends,
        counts=headers["record_count"].astype(np.int64),
        base_offsets=base_offsets,
        last_offsets=base_offsets + headers["last_offset_delta"],
        base_timestamps=headers["base_timestamp"].astype(np.int64),
        append_timestamps=headers["max_timestamp"].astype(np.int64),
        log_append_time=(headers["attributes"] & LOG_APPEND_TIME_BIT) != 0,
    )
