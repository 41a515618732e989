"""Write a log of any size that takes little room on the disk: Kafka's files, with holes where the records are zeros.

Every batch is valid, with a correct checksum: it has one record whose value is zeros, of which only the first block is
written. So a broker can index, read, check or send any part. In each cycle a batch of 64 KB comes first, for fetches of
one size, and large ones follow. Use it while no broker runs on the directory, after a clean stop: the checkpoints are
rewritten, so that the next start finds a log which was synced to its end.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.record import Record

SEGMENT_BYTES = 1 << 30
SMALL_BYTES, LARGE_BYTES = 64 << 10, 1 << 20
WRITTEN_BYTES = 4096
"""The bytes that are written of each batch, from its first byte on."""
CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "ottla-index-offset-checkpoint")
PRODUCER_SNAPSHOT_VERSION = 1


@dataclass(frozen=True)
class SparseLog:
    """Batches of one record: offsets divisible by `cycle` are those of `small_bytes`, and the log ends at `end`."""

    cycle: int
    small_bytes: int
    end: int

    @property
    def smalls(self) -> int:
        """The number of small batches."""
        return -(-self.end // self.cycle)


def write(data: Path, topic: str, size_bytes: int) -> SparseLog:
    """Replace the log of partition 0 in the directory `data` by one of about `size_bytes`."""
    log = data / f"{topic}-0"
    for path in log.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    stamp_ms = int(time.time() * 1000)
    large_bytes = min(LARGE_BYTES, size_bytes // 16)
    small = _batch(min(SMALL_BYTES, large_bytes), stamp_ms)
    large = _batch(large_bytes, stamp_ms)
    cycle = max(2, min(16, size_bytes // (len(large) * 2)))
    offset, left_bytes = 0, size_bytes
    while left_bytes > 0:
        count, used_bytes = _segment(log, offset, min(left_bytes, SEGMENT_BYTES), [small] + [large] * (cycle - 1))
        (log / f"{offset:020d}.timeindex").write_bytes(struct.pack(">qi", stamp_ms, 0))
        offset, left_bytes = offset + count, left_bytes - used_bytes
    nobody = bytes(4)
    (log / f"{offset:020d}.snapshot").write_bytes(
        struct.pack(">hI", PRODUCER_SNAPSHOT_VERSION, crc32c(nobody)) + nobody
    )
    (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in CHECKPOINTS:
        _set_checkpoint(data / name, topic, offset)
    return SparseLog(cycle, len(small), offset)


def _batch(size_bytes: int, stamp_ms: int) -> bytearray:
    """A valid batch of about this size, at offset 0 in leader epoch 0."""
    batch = bytearray(encode_batch([Record(0, stamp_ms, None, bytes(size_bytes - 80), ())]))
    struct.pack_into(">i", batch, 12, 0)
    return batch


def _segment(log: Path, base: int, size_bytes: int, cycle: list[bytearray]) -> tuple[int, int]:
    """Write one segment and its index; return its batches and bytes. The last batch passes `size_bytes`."""
    count = position = 0
    entries: list[bytes] = []
    with (log / f"{base:020d}.log").open("wb") as file:
        while position < size_bytes:
            batch = cycle[(base + count) % len(cycle)]
            if position + len(batch) > SEGMENT_BYTES:
                break
            struct.pack_into(">q", batch, 0, base + count)
            file.seek(position)
            file.write(batch[:WRITTEN_BYTES])
            if count:
                entries.append(struct.pack(">ii", count, position))
            count, position = count + 1, position + len(batch)
        file.truncate(position)
    (log / f"{base:020d}.index").write_bytes(b"".join(entries))
    return count, position


def _set_checkpoint(path: Path, topic: str, end: int) -> None:
    """Set the offset of the partition's row; add the row if it is missing."""
    if not path.exists():
        return
    rows = [row for row in path.read_text().splitlines()[2:] if not row.startswith(f"{topic} 0 ")]
    rows.append(f"{topic} 0 {end}")
    path.write_text("\n".join(["0", str(len(rows)), *rows]) + "\n")
