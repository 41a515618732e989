"""Planted bugs of transactions: of the coordinator, the log, its readers, and the offsets of groups (`bugs.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, nothing

from ottla.broker.groups.offset_shard import OffsetShard
from ottla.broker.groups.offsets import Offsets
from ottla.broker.groups.pending_offsets import PendingOffsets
from ottla.broker.partitions.partition import Partition
from ottla.broker.partitions.visibility import VisibleCallback
from ottla.broker.transactions import machine
from ottla.broker.transactions.shard import TransactionShard
from ottla.broker.transactions.state import Transaction
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.stored.transaction import TransactionStatus
from ottla.storage.producers import producer_snapshots
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.transactions import NONE_OPEN, LogTransactions
from ottla.storage.recovery import recovery

bug = partial(planting.bug, transactions=True)


@bug("an end acknowledged before its markers", "EndTxn is answered when the end is decided, and readers wait on")
def _acknowledged_before_markers() -> Any:
    def replace(prepare: Any) -> Any:
        def patched(self: TransactionShard, prepared: Transaction, *given: Any) -> None:
            prepare(self, prepared, *given)
            transactional_id = prepared.transactional_id
            answer = EndTxnResponse(producer_id=prepared.producer_id, producer_epoch=prepared.producer_epoch)
            self.log.when_durable(transactional_id, lambda _: self._answer_ends(transactional_id, answer))

        return patched

    return before(TransactionShard, "_prepare", replace)


@bug("markers before the decision", "an end is written into partitions before the record that decides it is on disk")
def _markers_before_decision() -> Any:
    def at_once(self: TransactionShard, transactional_id: str) -> None:
        self._mark(self.transactions[transactional_id])

    return mock.patch.object(TransactionShard, "_mark_when_durable", at_once)


@bug("a decided end not finished", "a start takes up no end that was decided before the crash")
def _decided_end_not_finished() -> Any:
    def replace(begin: Any) -> Any:
        def patched(self: TransactionShard, transaction: Transaction) -> None:
            if not transaction.is_prepared:
                begin(self, transaction)

        return patched

    return before(TransactionShard, "_begin", replace)


@bug("timeouts forgotten by a start", "a transaction that was open before a start never times out")
def _timeouts_forgotten() -> Any:
    def replace(begin: Any) -> Any:
        def patched(self: TransactionShard, transaction: Transaction) -> None:
            if transaction.is_prepared:
                begin(self, transaction)

        return patched

    return before(TransactionShard, "_begin", replace)


@bug("an unknown open transaction left open", "what a crash left open in a log, and no record names, is never ended")
def _unknown_left_open() -> Any:
    return mock.patch.object(TransactionShard, "_adopt_open", nothing)


@bug("zombies are not fenced", "a producer of an older epoch may add partitions, write and commit offsets")
def _zombies_not_fenced() -> Any:
    def replace(check: Any) -> Any:
        def patched(known: Transaction | None, producer: machine.ProducerIdAndEpoch) -> Transaction:
            if known is not None and known.producer_id == producer.producer_id:
                producer = producer._replace(epoch=known.producer_epoch)
            found: Transaction = check(known, producer)
            return found

        return patched

    return before(machine, "check_producer", replace)


@bug("a new producer goes on with the open transaction", "InitProducerId aborts nothing, what was open is committed")
def _open_one_not_aborted() -> Any:
    def init_producer_id(self: TransactionShard, transactional_id: str, *given: Any) -> None:
        known = self.transactions.get(transactional_id)
        if known is not None and known.status is TransactionStatus.ONGOING:
            self.transactions[transactional_id] = known._replace(status=TransactionStatus.EMPTY)
            original(self, transactional_id, *given)
            new = self.transactions[transactional_id]
            self._put(transactional_id, new._replace(status=known.status, partitions=known.partitions))
            return
        original(self, transactional_id, *given)

    original = TransactionShard.init_producer_id
    return mock.patch.object(TransactionShard, "init_producer_id", init_producer_id)


@bug("the epoch stays at an end", "of KIP-890: a late batch of a transaction that has ended begins another one")
def _epoch_stays() -> Any:
    def replace(end: Any) -> Any:
        def patched(*given: Any, **more: Any) -> Transaction:
            ended: Transaction = end(*given, **(more | {"client_version": 0}))
            return ended

        return patched

    return before(machine, "end", replace)


@bug("a timeout that commits", "a transaction that was open for too long is committed, not aborted")
def _timeout_commits() -> Any:
    def replace(fence: Any) -> Any:
        def patched(*given: Any, **more: Any) -> Transaction:
            fenced: Transaction = fence(*given, **more)
            return fenced._replace(status=TransactionStatus.PREPARE_COMMIT)

        return patched

    return before(machine, "fence", replace)


@bug("committed readers read to the high watermark", "the last stable offset is not looked at")
def _read_to_high_watermark() -> Any:
    return mock.patch.object(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


@bug("only the newest open transaction counts", "the last stable offset passes by those that began before it")
def _newest_open_counts() -> Any:
    def replace(show: Any) -> Any:
        def patched(self: LogTransactions, high_watermark: int) -> None:
            show(self, high_watermark)
            self.first_open_offset = next(reversed(self._unstable), NONE_OPEN)

        return patched

    return before(LogTransactions, "show", replace)


@bug("a marker counts before it is on disk", "a transaction ends for its readers when the marker is written")
def _marker_before_sync() -> Any:
    def replace(end: Any) -> Any:
        def patched(self: Partition, *given: Any, **more: Any) -> int:
            bound = inspect.signature(end).bind(self, *given, **more)
            done, bound.arguments["done"] = bound.arguments["done"], nothing
            offset: int = end(*bound.args, **bound.kwargs)
            done(None)
            return offset

        return patched

    return before(Partition, "end_transaction", replace)


@bug("aborted ones forgotten by a start", "a start does not read which transactions were aborted")
def _aborted_forgotten() -> Any:
    def replace(load: Any) -> Any:
        def patched(*given: Any, **more: Any) -> LogTransactions:
            return LogTransactions((), load(*given, **more).open_offsets)

        return patched

    return before(recovery, "load_transactions", replace)


def forget_open(self: LogTransactions) -> None:
    """Nothing is open."""
    self._unstable.clear()
    self.first_open_offset = NONE_OPEN


@bug("open ones forgotten by a start", "after a start readers of committed records get what is not decided")
def _open_forgotten() -> Any:
    def replace(load: Any) -> Any:
        def patched(*given: Any, **more: Any) -> LogTransactions:
            loaded: LogTransactions = load(*given, **more)
            forget_open(loaded)
            return loaded

        return patched

    return before(recovery, "load_transactions", replace)


@bug("snapshots without open transactions", "a start after a stop in good order does not know what was open")
def _snapshots_without_open() -> Any:
    def replace(encode: Any) -> Any:
        def patched(entries: Sequence[ProducerEntry]) -> Any:
            return encode([entry._replace(transaction=(entry.coordinator_epoch, -1)) for entry in entries])

        return patched

    return before(producer_snapshots, "encode_snapshot", replace)


@bug("a list without those that began before", "of an answer in the middle of an aborted transaction")
def _list_too_short() -> Any:
    def replace(between: Any) -> Any:
        def patched(self: LogTransactions, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
            return [one for one in between(self, first_offset, end_offset) if one[1] >= first_offset]

        return patched

    return before(LogTransactions, "between", replace)


@bug("a list that goes too far", "an aborted transaction is in the list of answers after it")
def _list_too_long() -> Any:
    def replace(between: Any) -> Any:
        def patched(self: LogTransactions, first_offset: int, end_offset: int) -> list[tuple[int, int]]:
            found: list[tuple[int, int]] = between(self, 0, end_offset)
            return found

        return patched

    return before(LogTransactions, "between", replace)


@bug("offsets count at once", "offsets of a transaction are committed before it is")
def _offsets_at_once() -> Any:
    def replay(self: Offsets, producer_id: int, key: Any, value: Any) -> None:
        self.replay(key, value)

    return mock.patch.object(Offsets, "replay_open", replay)


@bug("offsets of an aborted transaction count", "the marker in __consumer_offsets is taken for a commit")
def _aborted_offsets_count() -> Any:
    def replace(end: Any) -> Any:
        def patched(self: PendingOffsets[Any], producer_id: int, *, is_commit: bool) -> Any:
            return end(self, producer_id, is_commit=True)

        return patched

    return before(PendingOffsets, "end", replace)


@bug("offsets of a committed transaction lost", "the marker in __consumer_offsets drops what was pending")
def _committed_offsets_lost() -> Any:
    def replace(end: Any) -> Any:
        def patched(self: PendingOffsets[Any], producer_id: int, *, is_commit: bool) -> Any:
            return end(self, producer_id, is_commit=False)

        return patched

    return before(PendingOffsets, "end", replace)


@bug("offsets without a marker", "the end of a transaction is applied to its offsets in memory only")
def _offsets_without_marker() -> Any:
    def end_transaction(self: OffsetShard, end: Any, done: VisibleCallback) -> None:
        self.offsets.end_transaction(end.producer_id, is_commit=end.is_commit)
        done(None)

    return mock.patch.object(OffsetShard, "end_transaction", end_transaction)
