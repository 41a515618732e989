"""Transactions in a log against a plain list of batches: whatever is done in whatever order, the last stable offset,
the list of aborted transactions and what a reader of committed records gets are those of the list.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kit.cleaning import clean
from kit.examples import examples
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, sync, write_snapshot
from kit.simulated_files import SimulatedFiles
from kit.transactional import transactional_batch

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import ControlType, decode_control_key
from ottla.storage.formats import layout
from ottla.storage.log.append import TAKES_TRANSACTIONS
from ottla.storage.log.log import Log
from ottla.storage.producers.transaction_index import AbortedTransaction, encode_transaction_index
from ottla.storage.producers.transactions import NONE_OPEN

PRODUCERS = (1, 2, 3, 4)
SMALL = {
    "segment.bytes": "1024",
    "index.interval.bytes": "100",
    "cleanup.policy": "compact,delete",
    "retention.ms": "-1",
}


@dataclass(eq=False)
class Transaction:
    """`marker` is -1 as long as it is open; `known_first` what the log knows of its beginning."""

    producer_id: int
    batches: list[int] = field(default_factory=list)
    marker: int = -1
    is_aborted: bool = False
    known_first: int = -1
    stable_offset: int = -1


@dataclass(eq=False)
class Stored:
    """A record, and the transaction that it is of."""

    offset: int
    key: bytes
    value: bytes
    transaction: Transaction | None


def committed_view(log: Log, first_offset: int, end_offset: int, max_bytes: int) -> list[tuple[int, bytes | None]]:
    """What a consumer gets that leaves out what the list of each answer says, as Kafka's clients do."""
    found: list[tuple[int, bytes | None]] = []
    position = first_offset
    while position < end_offset:
        data = log.read(position, max_bytes, end_offset=end_offset).read_blocking()
        if not data:
            break
        headers = list(iter_batches(data))
        listed = sorted(log.transactions.between(position, headers[-1][1].next_offset), key=lambda one: one[1])
        aborted: set[int] = set()
        for start, header in headers:
            while listed and listed[0][1] <= header.last_offset:
                aborted.add(listed.pop(0)[0])
            records = decode_batch(data[start : start + header.size_bytes])
            if header.is_control:
                if records and decode_control_key(records[0].key) is ControlType.ABORT:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [(one.offset, one.value) for one in records if one.offset >= first_offset]
        position = headers[-1][1].next_offset
    return found


class TransactionsAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.files: SimulatedFiles = disk()
        self.log = open_test_log(self.files, SMALL)
        self.records: list[Stored] = []
        self.transactions: list[Transaction] = []
        self.open: dict[int, Transaction] = {}
        self.counter = 0
        self.cleaned_before = 0
        """Up to where the log was cleaned, and so may lack records."""
        self.is_as_kafka_wrote_it = True
        """Whether nothing was rebuilt from a part of the log: the indexes are those that Kafka would have."""

    # -- writing

    def next_value(self) -> bytes:
        self.counter += 1
        return b"%d" % self.counter + b"x" * (self.counter % 40)

    @rule(
        steps=st.lists(
            st.tuples(st.sampled_from(PRODUCERS), st.sampled_from(["write", "write", "abort", "abort", "commit"])),
            min_size=4,
            max_size=16,
        ),
        rolls=st.booleans(),
    )
    def many(self, steps: list[tuple[int, str]], rolls: bool) -> None:
        """What most of a log's life is; the other rules do something special once."""
        for number, (producer_id, what) in enumerate(steps):
            if what == "write":
                self.write_in_transaction(producer_id, number % 4, 1 + number % 2)
            else:
                self.end(producer_id, what == "commit")
        self.show()
        if rolls:
            self.roll()

    @rule(producer_id=st.sampled_from(PRODUCERS), key=st.integers(0, 3), count=st.integers(1, 3))
    def write_in_transaction(self, producer_id: int, key: int, count: int) -> None:
        known = self.log.producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        value, key_bytes = self.next_value(), b"%d" % key
        data = transactional_batch(producer_id, sequence, count, value=value, key=key_bytes)
        (result,) = self.log.append_batches([memoryview(data)], NOW_MS, TAKES_TRANSACTIONS)
        assert result.error_code is ErrorCode.NONE
        transaction = self.open.get(producer_id)
        if transaction is None:
            transaction = self.open[producer_id] = Transaction(producer_id, known_first=result.base_offset)
            self.transactions.append(transaction)
        transaction.batches.append(result.base_offset)
        for offset in range(result.base_offset, result.last_offset + 1):
            self.records.append(Stored(offset, key_bytes, value, transaction))

    @rule(key=st.integers(0, 3))
    def write_without(self, key: int) -> None:
        value, key_bytes = self.next_value(), b"%d" % key
        (result,) = append(self.log, batch(value, key=key_bytes))
        self.records.append(Stored(result.base_offset, key_bytes, value, None))

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end(self, producer_id: int, is_commit: bool) -> None:
        result = self.marker(producer_id, is_commit)
        assert result.error_code is ErrorCode.NONE
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            transaction.marker, transaction.is_aborted = result.base_offset, not is_commit
            still_open = [one.known_first for one in self.open.values()]
            transaction.stable_offset = min(still_open, default=result.base_offset + 1)

    def marker(self, producer_id: int, is_commit: bool):
        return self.log.append_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=NOW_MS)

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans(), taken=st.integers(0, 100))
    def end_on_a_full_disk(self, producer_id: int, is_commit: bool, taken: int) -> None:
        self.files.fail("pwritev", "*.log", errno.ENOSPC, after_bytes=taken)
        before = self.log.log_end_offset
        result = self.marker(producer_id, is_commit)
        self.files.heal()
        if result.error_code is ErrorCode.NONE:  # there was room for it
            transaction = self.open.pop(producer_id, None)
            if transaction is not None:
                transaction.marker, transaction.is_aborted = result.base_offset, not is_commit
                still_open = [one.known_first for one in self.open.values()]
                transaction.stable_offset = min(still_open, default=result.base_offset + 1)
        else:
            assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
            assert self.log.log_end_offset == before

    # -- time passes

    @rule()
    def show(self) -> None:
        sync(self.log)
        self.log.transactions.show(self.log.high_watermark)

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule()
    def snapshot(self) -> None:
        while write_snapshot(self.log):
            pass

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log.delete_records(int(share * self.log.high_watermark))

    @rule()
    def retain(self) -> None:
        self.log.retention.apply(NOW_MS)
        self.log.retention.unlink_due(NOW_MS + 10**9)

    @rule(later_ms=st.sampled_from([0, 10**9]))
    def clean_up(self, later_ms: int) -> None:
        self.show()
        stable = min(self.log.high_watermark, self.log.transactions.first_open_offset, self.log.recovery_point)
        cleaning = clean(self.log, now_ms=NOW_MS + later_ms)
        self.log.retention.unlink_due(NOW_MS + later_ms + 10**9)
        if cleaning.end_offset > self.log.log_start_offset:
            assert cleaning.end_offset <= max(stable, self.log.log_start_offset)
            self.forget_superseded(cleaning.end_offset)
            self.cleaned_before = max(self.cleaned_before, cleaning.end_offset)
            self.is_as_kafka_wrote_it = False

    def forget_superseded(self, end_offset: int) -> None:
        start_offset = self.log.log_start_offset
        newest: dict[bytes, int] = {}
        for one in self.records:
            if start_offset <= one.offset < end_offset and not self.is_aborted(one):
                newest[one.key] = one.offset
        self.records = [
            one
            for one in self.records
            if one.offset < start_offset or one.offset >= end_offset or newest.get(one.key) == one.offset
        ]

    def is_aborted(self, one: Stored) -> bool:
        return one.transaction is not None and one.transaction.is_aborted

    # -- starts

    @rule(
        how=st.sampled_from(["clean", "killed", "power cut"]),
        lose=st.sampled_from(["nothing", "nothing", "snapshots", "indexes"]),
        seed=st.integers(0, 10**6),
    )
    def start_again(self, how: str, lose: str, seed: int) -> None:
        recovery_point, log_start_offset = self.log.recovery_point, self.log.log_start_offset
        if how == "clean":
            self.log.close()
            self.check_indexes()
            recovery_point = self.log.recovery_point
            self.files.kill()
        elif how == "killed":
            self.log.abandon()
            self.files.kill()
        else:
            self.files = self.files.crash(random.Random(seed))
        if lose != "nothing":
            suffixes = (".snapshot",) if lose == "snapshots" else (".snapshot", ".txnindex")
            for name in self.files.list_directory(DIRECTORY):
                if name.endswith(suffixes):
                    self.files.unlink(DIRECTORY / name)
        self.log = open_test_log(
            self.files,
            SMALL,
            was_clean=how == "clean",
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            gaps_before=self.cleaned_before,
        )
        assert self.log.log_end_offset >= recovery_point
        self.take_back(self.log.log_end_offset)
        if lose != "nothing":
            self.forget_what_is_gone()

    def take_back(self, end_offset: int) -> None:
        """A power cut took what comes after."""
        self.records = [one for one in self.records if one.offset < end_offset]
        for one in self.transactions:
            one.batches = [base for base in one.batches if base < end_offset]
            if one.marker >= end_offset:
                one.marker, one.is_aborted = -1, False
        self.transactions = [one for one in self.transactions if one.batches]
        self.open = {one.producer_id: one for one in self.transactions if one.marker < 0}

    def forget_what_is_gone(self) -> None:
        """Without a snapshot a start knows what the batches say that are there."""
        first = self.log.segments[0].base_offset
        if first or self.cleaned_before:
            self.is_as_kafka_wrote_it = False
        for one in list(self.open.values()):
            left = [base for base in one.batches if base >= first]
            if left:
                one.known_first = left[0]
            else:
                del self.open[one.producer_id]
                self.transactions.remove(one)

    # -- what must be so

    @invariant()
    def what_is_open_is_exact(self) -> None:
        transactions = self.log.transactions
        expected = {one.producer_id: one.known_first for one in self.open.values()}
        assert transactions.open_offsets == expected
        assert list(transactions.open_offsets.values()) == sorted(expected.values())
        hidden = [one.known_first for one in self.transactions if one.marker >= self.log.high_watermark]
        shown = [*expected.values(), *hidden]
        if not self.hides_shown_markers():
            assert transactions.first_open_offset == min(shown, default=NONE_OPEN)

    def hides_shown_markers(self) -> bool:
        """Whether `show` was not called since the high watermark moved: a start does not wait for it."""
        return any(
            self.log.transactions.first_open_offset <= one.known_first and 0 <= one.marker < self.log.high_watermark
            for one in self.transactions
        )

    @invariant()
    def the_list_is_exact_where_nothing_was_cleaned_or_lost(self) -> None:
        if not self.is_as_kafka_wrote_it or self.hides_shown_markers():
            return
        log = self.log
        end_offset = max(min(log.high_watermark, log.transactions.first_open_offset), log.log_start_offset)
        for first, end in ((log.log_start_offset, end_offset), ((log.log_start_offset + end_offset) // 2, end_offset)):
            expected = [
                (one.producer_id, one.known_first)
                for one in sorted(self.transactions, key=lambda one: one.marker)
                if one.is_aborted and first <= one.marker < log.high_watermark and one.known_first < end
            ]
            assert log.transactions.between(first, end) == expected

    @precondition(lambda self: self.log.high_watermark > self.log.log_start_offset)
    @rule(share=st.floats(0, 1), max_bytes=st.sampled_from([1, 300, 10_000]))
    def read_committed(self, share: float, max_bytes: int) -> None:
        self.log.transactions.show(self.log.high_watermark)
        start, end_offset = self.log.log_start_offset, self.log.high_watermark
        end_offset = max(min(end_offset, self.log.transactions.first_open_offset), start)
        first = start + int(share * (end_offset - start))
        expected = [
            (one.offset, one.value)
            for one in self.records
            if first <= one.offset < end_offset and not self.is_aborted(one)
        ]
        assert committed_view(self.log, first, end_offset, max_bytes) == expected

    def check_indexes(self) -> None:
        """After a clean stop the files say what Kafka's would."""
        if not self.is_as_kafka_wrote_it:
            return
        bases = [segment.base_offset for segment in self.log.segments]
        for base_offset, end_offset in zip(bases, [*bases[1:], self.log.log_end_offset], strict=True):
            expected = [
                AbortedTransaction(one.producer_id, one.known_first, one.marker, one.stable_offset)
                for one in sorted(self.transactions, key=lambda one: one.marker)
                if one.is_aborted and base_offset <= one.marker < end_offset
            ]
            path = layout.txn_index_file(DIRECTORY, base_offset)
            data = self.files.read_bytes(path) if self.files.exists(path) else b""
            assert data == encode_transaction_index(expected)


TestTransactionsAgainstList = TransactionsAgainstList.TestCase
TestTransactionsAgainstList.settings = settings(max_examples=examples(100), stateful_step_count=40, deadline=None)
