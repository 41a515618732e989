"""Planted bugs of what transactions leave behind: cleaned logs, and the offsets that groups have committed in them."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, no, nothing

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.replay import NO_PRODUCER_ID, LogReplay
from ottla.broker.groups.offset_shard import OffsetShard
from ottla.broker.groups.pending_offsets import PendingOffsets
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.cleaner import cleaner
from ottla.storage.cleaner.cleanable import LogToAssess
from ottla.storage.cleaner.decided_transactions import DecidedTransactions

bug = partial(planting.bug, transactions=True)
bug_of_cleaning = partial(bug, theme="compacted transactions")


# --- cleaned logs ----------------------------------------------------------------------------------------------------


@bug_of_cleaning("aborted records supersede", "the cleaner takes a committed record away for an aborted one of its key")
def _aborted_supersede() -> Any:
    def replace(put_keys: Any) -> Any:
        def patched(*given: Any) -> bool:
            is_there: bool = put_keys(*given[:6])
            return is_there

        return patched

    return before(cleaner, "put_keys", replace)


@bug_of_cleaning("an abort beyond what is cleaned not seen", "its records count as committed ones of their keys")
def _later_abort_not_seen() -> Any:
    def replace(decide: Any) -> Any:
        def patched(self: DecidedTransactions, later: Any, stored: Any) -> None:
            decide(self, (), stored)

        return patched

    return before(DecidedTransactions, "decide", replace)


@bug_of_cleaning("all of an aborted producer is cleaned", "what it committed later goes with what it aborted")
def _all_of_an_aborted_producer() -> Any:
    def is_aborted(self: DecidedTransactions, header: BatchHeader) -> bool:
        aborted = self._aborted.get(header.producer_id, [])
        return header.is_transactional and any(header.base_offset >= one.first_offset for one in aborted)

    return mock.patch.object(DecidedTransactions, "is_aborted", is_aborted)


@bug_of_cleaning(
    "markers cleaned as tombstones", "a marker goes after its time, though records of its transaction are there"
)
def _markers_cleaned() -> Any:
    return mock.patch.object(DecidedTransactions, "needs_marker", no)


@bug_of_cleaning(
    "what is not decided is cleaned", "an open transaction's records supersede others, and are aborted then"
)
def _undecided_cleaned() -> Any:
    def replace(of: Any) -> Any:
        def patched(log: Any, stable_offset: int, clean_offset: int | None) -> LogToAssess:
            found: LogToAssess = of(log, log.log_end_offset, clean_offset)
            return found

        return patched

    return before(LogToAssess, "of", replace)


# --- offsets ---------------------------------------------------------------------------------------------------------


@bug("offsets of transactions not written", "TxnOffsetCommit is answered, and a crash forgets what was pending")
def _offsets_not_written() -> Any:
    def replace(commit: Any) -> Any:
        def patched(self: OffsetShard, request: Any, version: int, waiter: Any) -> None:
            def forgotten(group_id: str, records: Any, replies: Any, *_: int) -> None:
                self.finish(group_id, Effects([], replies))

            with mock.patch.object(self.log, "write_transactional", forgotten):
                commit(self, request, version, waiter)

        return patched

    return before(OffsetShard, "commit_transactional_offsets", replace)


@bug("a load counts pending offsets", "after a start offsets of an open transaction are taken for committed ones")
def _load_counts_pending() -> Any:
    def replace(note: Any) -> Any:
        def patched(self: LogReplay, key: bytes, value: bytes | None, producer_id: int) -> None:
            note(self, key, value, NO_PRODUCER_ID)

        return patched

    return before(LogReplay, "_note_newest", replace)


@bug("a load drops pending offsets", "offsets of a transaction that was open at a start do not count when it commits")
def _load_drops_pending() -> Any:
    def replace(init: Any) -> Any:
        def patched(self: LogReplay, *given: Any, **more: Any) -> None:
            init(self, *given, **more)
            self._apply_open = nothing

        return patched

    return before(LogReplay, "__init__", replace)


@bug("a load does not look at markers", "offsets of a transaction that has ended stay pending for good")
def _load_without_markers() -> Any:
    return mock.patch.object(LogReplay, "_end_transaction", nothing)


@bug("pending offsets are not looked at", "a reader that asks for stable offsets gets those of before the transaction")
def _pending_not_looked_at() -> Any:
    return mock.patch.object(PendingOffsets, "is_open", no)
