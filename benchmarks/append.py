"""The CPU time of `Log.append` for a batch, without the write and the checksum: `python benchmarks/append.py`.

Writes go to a file that discards them, so that the figures are those of Ottla's code.
One line per case: batches a call, bytes a batch.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from uuid import UUID

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.record import Record
from ottla.protocol.types import Buffer
from ottla.storage.files.files import OsFiles
from ottla.storage.log.append import AppendEntry
from ottla.storage.recovery.recovery import open_log

NOW_MS = 1_700_000_000_000


def _swallow(buffers: Sequence[Buffer], position: int) -> int:
    """A write that does nothing."""
    return sum(map(len, buffers))


def measure(per_call: int, size: int, *, idempotent: bool = False, swallow: bool = True, calls: int = 2000) -> float:
    """Microseconds per batch, median of rounds."""
    with tempfile.TemporaryDirectory() as name:
        config = TopicConfig.resolve({"segment.bytes": str((1 << 31) - 1)}, BrokerConfig.of({}))
        log = open_log(
            OsFiles(), Path(name), topic="t", partition=0, topic_id=UUID(int=1), config=config, now_ms=NOW_MS
        )
        if swallow:
            log.segments[-1].file.pwritev = _swallow  # type: ignore[method-assign]  # no disk
        sequence, rounds = 0, []
        for _ in range(7):
            turns = []
            for _ in range(calls):
                entries = []
                for _ in range(per_call):
                    record = Record(0, NOW_MS, None, b"v" * size, ())
                    if idempotent:
                        batch = encode_batch([record], producer_id=1, producer_epoch=0, base_sequence=sequence)
                    else:
                        batch = encode_batch([record])
                    entries.append(AppendEntry(memoryview(batch), 9))
                    sequence += 1
                turns.append(entries)
            started = time.process_time()
            for entries in turns:
                log.append(entries, NOW_MS)
            spent = time.process_time() - started
            rounds.append(spent / calls / per_call * 1e6)
        log.abandon()
        return median(rounds)


def checksum(size: int) -> float:
    """Microseconds of the checksum alone."""
    data = memoryview(b"v" * (size + 50))
    started = time.process_time()
    for _ in range(20000):
        crc32c(data)
    return (time.process_time() - started) / 20000 * 1e6


if __name__ == "__main__":
    for per_call, size in ((100, 100), (10, 100), (1, 100), (1, 16384)):
        plain = measure(per_call, size)
        producers = measure(per_call, size, idempotent=True)
        written = measure(per_call, size, swallow=False, calls=500)
        print(
            f"{per_call:4d} batches of {size:6d} B a call: {plain:6.2f} us each, idempotent {producers:6.2f} us,"
            f" with the write {written:6.2f} us, the checksum alone {checksum(size):5.2f} us"
        )
