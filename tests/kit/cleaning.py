"""Cleaning a log to the end on the spot, and what a compacted log must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from kit.logs import NOW_MS
from kit.simulated_files import CrashPoint

from ottla.protocol.records.batch import decode_batch, iter_batches, parse_header
from ottla.protocol.records.record import Record
from ottla.storage.cleaner.cleanable import LogToAssess, assess
from ottla.storage.cleaner.cleaner import LogCleaning
from ottla.storage.log.log import Log


def no_checkpoint(_: int) -> None:
    """For tests that do not look at the checkpoints."""


def clean(
    log: Log,
    *,
    now_ms: int = NOW_MS,
    clean_offset: int | None = None,
    dedupe_buffer_bytes: int = 1 << 20,
    load_factor: float = 0.9,
    cover: Callable[[int], None] = no_checkpoint,
    checkpoint: Callable[[int], None] = no_checkpoint,
) -> LogCleaning:
    """Clean what may be cleaned, however little; errors as `LogCleaning.run` raises them."""
    state = LogToAssess.of(log, min(log.high_watermark, log.transactions.first_open_offset), clean_offset)
    cleaning = LogCleaning(
        log,
        state,
        assess(state, now_ms),
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        load_factor=load_factor,
        now_ms=now_ms,
        cover=cover,
        checkpoint=checkpoint,
    )
    drive(cleaning)
    return cleaning


def drive(cleaning: LogCleaning) -> None:
    """Run a cleaning and its pieces of work to the end."""
    steps = cleaning.run()
    work = next(steps, None)  # None: there was nothing to clean
    while work is not None:
        try:
            done = work()
        except CrashPoint:
            with suppress(CrashPoint):
                steps.close()
            raise
        except Exception as error:  # whatever a piece of work raises belongs to the generator
            work = steps.throw(error)
            continue
        try:
            work = steps.send(done)
        except StopIteration:
            return


def records_of(log: Log) -> list[Record]:
    """Every record from the log start to the log end, slice by slice; offsets must ascend."""
    found: list[Record] = []
    position = log.log_start_offset
    while position < log.log_end_offset:
        data = log.read(position, 1 << 20, end_offset=log.log_end_offset).read_blocking()
        if not data:
            break  # nothing is left after `position`
        for start, header in iter_batches(data):
            batch = data[start : start + header.size_bytes]
            assert parse_header(batch).next_offset > position
            found += [record for record in decode_batch(batch) if record.offset >= position]
            position = header.next_offset
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return found


def newest_by_key(records: list[Record]) -> Mapping[bytes | None, Record]:
    """The last record of each key."""
    return {record.key: record for record in records}
