"""The log against a dict: whatever is done in whatever order, what was synced is there, and nothing is invented."""

from __future__ import annotations

import errno
import random

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kit.examples import examples
from kit.logs import NOW_MS, append, batch, disk, open_test_log, stored

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import Compression, decode_batch, iter_batches
from ottla.storage.files.health import IndependentDirectory
from ottla.storage.log.sync import SyncTicket

SMALL = {"segment.bytes": "2048", "index.interval.bytes": "256", "retention.bytes": "6000", "retention.ms": "100000"}


class LogAgainstDict(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[int, bytes] = {}
        self.stamps: dict[int, int] = {}
        self.counter = 0
        self.now_ms = NOW_MS
        self.sequence = 0
        self.ticket: SyncTicket | None = None
        self.checkpoint = (0, 0)
        self.promised = 0
        self.known_start = 0
        self.refused: set[bytes] = set()

    @initialize(acks=st.sampled_from(["sync", "page-cache"]))
    def open(self, acks: str) -> None:
        self.overrides = SMALL | {"ottla.acks.all": acks}
        self.files = disk()
        self.health = IndependentDirectory()
        self.log = open_test_log(self.files, self.overrides, health=self.health)

    def new_batch(self, sizes: list[int], stamp_steps: list[int], compression: Compression, idempotent: bool):
        values, stamps = [], []
        for size, step in zip(sizes, stamp_steps, strict=False):
            self.counter += 1
            values.append(b"%d:" % self.counter + b"x" * size)
            stamps.append(self.now_ms + step)
        producer = {"producer_id": 9, "producer_epoch": 0, "base_sequence": self.sequence} if idempotent else {}
        return values, stamps, batch(*values, stamps=stamps, compression=compression, **producer)

    @rule(
        batches=st.lists(
            st.tuples(
                st.lists(st.integers(0, 200), min_size=1, max_size=5),
                st.lists(st.integers(-500, 500), min_size=5, max_size=5),
                st.sampled_from([Compression.NONE, Compression.GZIP, Compression.LZ4]),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def append(self, batches) -> None:
        made = []
        sequence = self.sequence
        for sizes, steps, compression, idempotent in batches:
            values, stamps, data = self.new_batch(sizes, steps, compression, idempotent)
            if idempotent:
                self.sequence += len(values)
            made.append((values, stamps, data))
        results = append(self.log, *[data for _, _, data in made], now_ms=self.now_ms)
        if self.health.offline_error is not None:
            assert all(result.error_code is ErrorCode.KAFKA_STORAGE_ERROR for result in results)
            self.sequence = sequence
            return
        for (values, stamps, _), result in zip(made, results, strict=True):
            assert result.error_code is ErrorCode.NONE
            assert result.last_offset - result.base_offset + 1 == len(values)
            for number, value in enumerate(values):
                self.values[result.base_offset + number] = value
                self.stamps[result.base_offset + number] = stamps[number]
        assert results[-1].last_offset + 1 == self.log.log_end_offset

    @rule(taken=st.integers(0, 3000), error=st.sampled_from([errno.ENOSPC, errno.EDQUOT]))
    def append_to_a_full_disk(self, taken: int, error: int) -> None:
        before = (self.log.log_end_offset, self.log.size_bytes, [one.base_offset for one in self.log.segments])
        files_before = {path: data for path, data in self.files.written_state().items() if path.endswith(".log")}
        self.files.fail("pwritev", "*.log", error, after_bytes=taken)
        self.counter += 1
        value = b"refused %d" % self.counter + b"y" * 900
        self.refused.add(value)
        results = append(self.log, *[batch(value) for _ in range(4)])
        self.files.heal()
        assert {result.error_code for result in results} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert before == (self.log.log_end_offset, self.log.size_bytes, [one.base_offset for one in self.log.segments])
        assert files_before == {p: data for p, data in self.files.written_state().items() if p.endswith(".log")}

    @precondition(lambda self: self.ticket is None)
    @rule()
    def begin_sync(self) -> None:
        self.ticket = self.log.begin_sync()

    @precondition(lambda self: self.ticket is not None)
    @rule()
    def end_sync(self) -> None:
        assert self.ticket is not None
        self.ticket.run()
        self.log.end_sync(self.ticket)
        assert self.log.synced_offset >= self.ticket.end_offset
        self.ticket = None

    def finish_sync(self) -> None:
        if self.ticket is not None:
            self.end_sync()

    @rule()
    def checkpoint_now(self) -> None:
        self.checkpoint = (self.log.recovery_point, self.log.log_start_offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        target = int(share * self.log.log_end_offset)
        if target > self.log.high_watermark:
            with pytest.raises(KafkaError) as caught:
                self.log.delete_records(target)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            return
        before = self.log.log_start_offset
        assert self.log.delete_records(target) == max(target, before)
        self.checkpoint = (self.checkpoint[0], self.log.log_start_offset)  # synced before DeleteRecords is answered

    @rule(passed_ms=st.integers(0, 60000))
    def retain(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        gone = self.log.retention.apply(self.now_ms)
        assert all(one.base_offset < self.log.log_start_offset for one in gone)
        assert self.log.log_start_offset <= self.log.high_watermark
        self.log.retention.unlink_due(self.now_ms)

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(share=st.floats(0, 1), max_bytes=st.integers(0, 5000))
    def read_anywhere(self, share: float, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.high_watermark
        offset = start + int(share * max(self.log.log_end_offset - start, 0))
        data = self.log.read(offset, max_bytes, end_offset=end).read_blocking()
        if offset >= end:
            assert data == b""
            return
        headers = [(at, header) for at, header in iter_batches(data)]
        first = headers[0][1]
        assert len(data) <= max_bytes or len(headers) == 1
        if offset >= self.known_start:
            assert first.base_offset <= offset <= first.last_offset
        assert headers[-1][1].last_offset < end
        for at, header in headers:
            for record in decode_batch(data[at : at + header.size_bytes]):
                assert record.value == self.values[record.offset]

    @rule(step=st.integers(-600, 600))
    def look_up_time(self, step: int) -> None:
        wanted = self.now_ms + step
        start, end = max(self.log.log_start_offset, self.known_start), self.log.high_watermark
        if self.log.log_start_offset < self.known_start:
            return  # segments that were deleted before a crash came back; there may be holes between them
        expected = next((o for o in range(start, end) if self.stamps[o] >= wanted), None)
        found = self.log.offset_for_timestamp(wanted, end_offset=end)
        assert (found and found[:2]) == (expected if expected is None else (expected, self.stamps[expected]))
        newest = max(range(start, end), key=lambda o: (self.stamps[o], -o), default=None)
        found = self.log.offset_of_max_timestamp(end_offset=end)
        assert (found and found[:2]) == (newest if newest is None else (newest, self.stamps[newest]))

    @rule()
    def stop_cleanly_and_start(self) -> None:
        self.finish_sync()
        end, start = self.log.log_end_offset, self.log.log_start_offset
        self.log.close()
        self.log = open_test_log(
            self.files, self.overrides, now_ms=self.now_ms, log_start_offset=start, health=self.health
        )
        assert (self.log.log_end_offset, self.log.log_start_offset) == (end, start)
        assert self.log.recovery.scanned_bytes == 0

    @rule(seed=st.integers(0, 2**32))
    def crash_and_start(self, seed: int) -> None:
        self.ticket = None
        synced = self.log.synced_offset
        recovery_point, log_start_offset = self.checkpoint
        self.files = self.files.crash(random.Random(seed))
        self.log = open_test_log(
            self.files,
            self.overrides,
            now_ms=self.now_ms,
            was_clean=False,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            health=self.health,
        )
        assert self.log.log_end_offset >= synced
        if not self.log.recovery.quarantined:
            assert self.log.synced_offset == self.log.log_end_offset
        for offset in list(self.values):
            if offset >= self.log.log_end_offset:
                del self.values[offset], self.stamps[offset]
        # A refused batch may come back when the cut that took it back was not synced, but never for a synced one.
        for offset, value in stored(self.log, max(self.known_start, self.log.log_start_offset)).items():
            if offset >= synced and value in self.refused:
                self.values[offset], self.stamps[offset] = value, NOW_MS
        self.resume_sequence()

    def resume_sequence(self) -> None:
        known = self.log.producers.get(9)
        self.sequence = 0 if known is None else known.last_sequence + 1

    @invariant()
    def holds_what_it_should(self) -> None:
        log = self.log
        self.known_start = max(self.known_start, log.log_start_offset)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.synced_offset <= log.log_end_offset
        assert log.size_bytes == sum(one.size_bytes for one in log.segments)
        found = stored(log, max(self.known_start, log.log_start_offset))
        expected = {offset: value for offset, value in self.values.items() if offset >= self.known_start}
        assert found == expected


LogAgainstDict.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=30)
TestLogAgainstDict = LogAgainstDict.TestCase
