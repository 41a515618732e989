"""Compares `.txnindex` files with the markers in the batches: each must have the transactions that were aborted.

If an entry is missing, readers of committed records get aborted records. An index may have more entries than the
batches show: the cleaner removes aborted records and their markers, retention the beginning of a transaction. Nothing
is compared where batches cannot be read, nor below the log start: no reader gets there, and the index may be deleted
earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from ottla.protocol.records.batch import BatchHeader
from ottla.shown import counted
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.producers.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    parse_transaction_index,
)
from ottla.storage.producers.transactions import TransactionReplay
from ottla.storage.tools.verify_findings import Finding, Promises, Severity

MAX_REPORTED: Final = 5
"""The transactions of one index that are reported one by one."""


class TransactionCheck:
    """Call `batch` for each valid batch in order, `hole` where one cannot be read, then `end`."""

    def __init__(self, files: Files, directory: Path, promises: Promises, bases: list[int], indexes: list[int]) -> None:
        self._files = files
        self._directory = directory
        self._promises = promises
        self._bases = bases
        self._indexes = indexes
        self._replay = TransactionReplay()
        self._first_offset: int | None = None
        self._is_blind = False

    def batch(self, header: BatchHeader, read: Callable[[], bytes]) -> None:
        """Process the next valid batch; `read` returns its bytes."""
        if self._first_offset is None:
            self._first_offset = header.base_offset
        self._replay.note(header, read)

    def hole(self) -> None:
        """Note an unreadable batch, which may have been a marker."""
        self._is_blind = True

    def end(self, log_end_offset: int) -> Iterator[Finding]:
        """Process the end of the log."""
        for slot, base_offset in enumerate(self._bases):
            end_offset = self._bases[slot + 1] if slot + 1 < len(self._bases) else log_end_offset
            expected = {
                (one.producer_id, one.last_offset): one
                for one in self._replay.aborted
                if max(base_offset, self._promises.log_start_offset) <= one.last_offset < end_offset
            }
            if base_offset in self._indexes or (expected and not self._is_blind):
                # The index of the active segment is written with delay, and a start after a crash adds missing entries.
                is_behind = slot + 1 == len(self._bases) and self._promises.was_clean is not True
                severity = Severity.UNSURE if is_behind else self._promises.severity_at(end_offset - 1)
                yield from self._index(
                    base_offset, end_offset, expected, severity, is_growing=is_behind and self._promises.is_served
                )

    def _index(
        self,
        base_offset: int,
        end_offset: int,
        expected: dict[tuple[int, int], AbortedTransaction],
        severity: Severity,
        *,
        is_growing: bool,
    ) -> Iterator[Finding]:
        path = layout.txn_index_file(self._directory, base_offset)
        try:
            data = self._files.read_bytes(path) if base_offset in self._indexes else b""
            indexed = {
                (one.producer_id, one.last_offset): one
                for one in parse_transaction_index(data, base_offset, end_offset)
            }
        except FileNotFoundError:
            return  # a running broker has replaced it meanwhile
        except CorruptTransactionIndex as error:
            yield Finding(severity, path, f"{error} (the broker rebuilds it)")
            return
        if self._is_blind:
            return
        if is_growing and (to_come := expected.keys() - indexed.keys()):
            words = (
                f"{counted(len(to_come), 'aborted transaction')} of the active segment will be added by the running"
                " broker, when the segment is full or the broker stops"
            )
            yield Finding(Severity.NOTE, path, words)
            expected = {key: one for key, one in expected.items() if key in indexed}
        problems = [*self._not_indexed(expected, indexed), *self._not_there(expected, indexed)]
        for offset, problem in problems[:MAX_REPORTED]:
            yield Finding(severity, path, problem, offset=offset)
        if len(problems) > MAX_REPORTED:
            yield Finding(severity, path, f"{len(problems) - MAX_REPORTED} more transactions are wrong")

    def _not_indexed(
        self,
        expected: dict[tuple[int, int], AbortedTransaction],
        indexed: dict[tuple[int, int], AbortedTransaction],
    ) -> Iterator[tuple[int, str]]:
        for key, one in expected.items():
            known = indexed.get(key)
            if known is None or known.first_offset > one.first_offset:
                words = "readers of committed records would get its records"
                yield one.first_offset, f"it does not say that {_name(one)} was aborted: {words}"

    def _not_there(
        self,
        expected: dict[tuple[int, int], AbortedTransaction],
        indexed: dict[tuple[int, int], AbortedTransaction],
    ) -> Iterator[tuple[int, str]]:
        first_offset = self._first_offset
        if self._promises.allows_gaps is not False or first_offset is None:
            return
        for key, one in indexed.items():
            if one.first_offset >= max(first_offset, self._promises.log_start_offset) and (
                key not in expected or expected[key].first_offset != one.first_offset
            ):
                yield one.first_offset, f"it says that {_name(one)} was aborted, the log says otherwise"


def _name(one: AbortedTransaction) -> str:
    return f"the transaction of producer {one.producer_id} from offset {one.first_offset} to {one.last_offset}"
